"""Decides when a checkpoint is written. The process whose append made it due writes it, in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from eoslog.errors import EosLogError
from eoslog.log.replica import Replica
from eoslog.storage.environment import Environment

_logger = logging.getLogger(__name__)
_AT_MOST_EVERY = 16
_OVERDUE = 4
_LONGEST_WAIT_S = 2.0


class Checkpointing:
    """Runs one checkpoint at a time in this process. If it fails, no append fails."""

    def __init__(self, environment: Environment, write: Callable[[], object]) -> None:
        self._environment = environment
        self._write = write
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._runner = 0
        """The thread that writes a checkpoint, 0 if none does. Its own appends do not wait for it."""

    def run_if_due(self, replica: Replica[Any]) -> None:
        """Write a checkpoint if enough slots followed the last one: in the background, or here if it is overdue."""
        every = replica.config.checkpoint_slots
        since = replica.slots_since_checkpoint()
        if since < every and not (since >= min(_AT_MOST_EVERY, every) and replica.tail_overflows()):
            return
        overdue = since >= _OVERDUE * every
        with self._lock:
            running = not self._idle.is_set()
            if not running:
                self._idle.clear()
        if running:
            if overdue and self._runner != threading.get_ident():
                self._environment.wait_for(self._idle, _LONGEST_WAIT_S)
            return
        try:
            if overdue:
                self._run()
            else:
                self._environment.background(self._run)
        except RuntimeError:  # The interpreter shuts down and starts no thread.
            self._idle.set()
        except BaseException:
            self._idle.set()
            raise

    def _run(self) -> None:
        self._runner = threading.get_ident()
        try:
            self._write()
        except EosLogError as error:
            _logger.info("no checkpoint was written: %s", error)
        except Exception:  # The append that made it due has succeeded.
            _logger.exception("no checkpoint was written")
        finally:
            self._runner = 0
            self._idle.set()
