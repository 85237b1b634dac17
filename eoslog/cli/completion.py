"""Completion of names in a shell: the topics, consumer groups and transactional ids of the store on the command line.

A shell asks while the user types. So a completion reads the store once, gives up early, and reports no error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import eoslog

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
_PATIENCE = {"max_attempts": 1, "connect_timeout_ms": 1_000, "read_timeout_ms": 3_000}


def _completing(names: Callable[[eoslog.Store], list[str]]) -> Complete:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before = logging.root.manager.disable
        # A warning would be printed into the line that the user types.
        logging.disable(logging.CRITICAL)
        try:
            # The invocation has the global options that are before the cursor.
            invocation = context.find_root().obj
            scheme, separator, _ = (invocation.store_url or "").lower().partition("://")
            is_remote = bool(separator) and scheme not in ("file", "memory")
            found = names(invocation.store(**(_PATIENCE if is_remote else {})))
        except Exception:
            # After any error the shell completes nothing. The command itself will report the error.
            return []
        finally:
            logging.disable(before)
        # The shell reads one name a line, so a name must not have a line break.
        return sorted(name for name in found if name.startswith(incomplete) and name.isprintable())

    return complete


topics = _completing(lambda store: store.admin.list_topics())
groups = _completing(lambda store: [each.group_id for each in store.admin.list_consumer_groups()])
transactional_ids = _completing(lambda store: [each.transactional_id for each in store.admin.list_transactions()])
