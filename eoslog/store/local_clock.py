"""The file system's idea of the time, which is the clock of a local store."""

from __future__ import annotations

import contextlib
import os

from eoslog.store.environment import Environment, host_time_ms


class LocalClockFile:
    """A file that is touched to learn the time. One for each user, who may be unable to touch another's."""

    def __init__(self, root: str, temporary: str, environment: Environment) -> None:
        self._root = root
        self._environment = environment
        self._file = os.path.join(temporary, f"clock-{os.geteuid()}")

    def date_ms(self) -> int:
        """The file system's time now (ms since the epoch).

        Where nothing can be written there is no way to ask for it, and such a process cannot expire or delete anything
        either: only there the host's time serves.
        """
        try:
            return self._touch()
        except FileNotFoundError:
            pass
        except OSError:
            return host_time_ms()
        try:
            return self._create()
        except OSError:
            return host_time_ms()

    def _touch(self) -> int:
        os.utime(self._file, follow_symlinks=False)
        return os.lstat(self._file).st_ctime_ns // 1_000_000

    def _create(self) -> int:
        """Make the file if the store has been written to; otherwise leave nothing behind in a foreign directory."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        kept = os.path.isdir(os.path.dirname(self._file))
        name = self._file if kept else os.path.join(self._root, f".clock-{self._environment.new_token()}")
        descriptor = os.open(name, flags, 0o600)
        try:
            return os.fstat(descriptor).st_ctime_ns // 1_000_000
        finally:
            os.close(descriptor)
            if not kept:
                with contextlib.suppress(OSError):
                    os.unlink(name)
