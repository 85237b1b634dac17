"""Completion of names in a shell: topics, consumer groups and transactional ids of the store that the line names.

A shell asks while the user types. So a completion answers fast, from one read of the store, and is silent about
errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import eoslog

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
_PATIENCE_ON_S3 = {"max_attempts": 1, "connect_timeout_ms": 1_000, "read_timeout_ms": 3_000}


def _completing(names: Callable[[eoslog.Store], list[str]]) -> Complete:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before = logging.root.manager.disable
        # A warning would be printed into the line that the user types.
        logging.disable(logging.CRITICAL)
        try:
            # The run of the command, as the global options before the cursor describe it.
            session = context.find_root().obj
            is_on_s3 = (session.store_url or "").lower().startswith(("s3:", "s3a:"))
            found = names(session.store(**(_PATIENCE_ON_S3 if is_on_s3 else {})))
        except Exception:
            # Whatever the reason, the shell completes nothing. The command itself will say what is wrong.
            return []
        finally:
            logging.disable(before)
        # The shell's protocol has a line for each name.
        return sorted(name for name in found if name.startswith(incomplete) and name.isprintable())

    return complete


topics = _completing(lambda store: store.admin.list_topics())
groups = _completing(lambda store: [each.group_id for each in store.admin.list_consumer_groups()])
transactional_ids = _completing(lambda store: [each.transactional_id for each in store.admin.list_transactions()])

BY_NAME: dict[str, Complete] = {
    "topic": topics,
    "topics": topics,
    "group": groups,
    "transactional_id": transactional_ids,
}
"""The completions of parameters by their names."""
