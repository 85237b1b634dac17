"""A verification that the console runs in the background. It reads the store, and writes nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import eoslog
from eoslog.errors import EosLogError
from eoslog.verification.findings import Finding

MOST_FINDINGS = 2_000
"""The console keeps this number of findings. ``eoslog verify`` shows all."""


@dataclass(frozen=True, slots=True)
class VerificationStatus:
    """The progress of a verification, and its findings."""

    started_ms: int
    topic: str | None
    """The topic whose files are checked; None for all."""
    data: bool
    """True if every data file is read."""
    step: str = ""
    done: int = 0
    step_total: int | None = None
    findings: tuple[Finding, ...] = ()
    is_cut: bool = False
    """True if there were more than ``MOST_FINDINGS``."""
    ended_ms: int | None = None
    error: str | None = None
    """The reason why the store could not be checked."""


class VerificationRun:
    """The last verification of this process. One runs at a time."""

    def __init__(self, store: eoslog.Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.status: VerificationStatus | None = None
        """None before the first."""

    @property
    def is_running(self) -> bool:
        return self.status is not None and self.status.ended_ms is None

    def start(self, topic: str | None, *, data: bool) -> bool:
        """Start a verification. Return False if one is running."""
        with self._lock:
            if self.is_running:
                return False
            self.status = VerificationStatus(self._store.now_ms(), topic, data)
        self._store.environment.background(self._run)
        return True

    def _run(self) -> None:
        status = self.status
        assert status is not None
        found: list[Finding] = []
        error = None
        try:
            for finding in self._store.admin.verify(status.topic, data=status.data, progress=self._progress):
                if len(found) == MOST_FINDINGS:
                    self._change(is_cut=True)
                    break
                found.append(finding)
                self._change(findings=tuple(found))
        except EosLogError as raised:
            error = str(raised)
        except Exception as raised:
            error = f"the verification failed: {type(raised).__name__}"
            raise
        finally:
            self._change(ended_ms=self._store.now_ms(), error=error)

    def _progress(self, step: str, done: int, total: int | None) -> None:
        self._change(step=step, done=done, step_total=total)

    def _change(self, **changes: object) -> None:
        assert self.status is not None
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]
