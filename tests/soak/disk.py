"""A small disk for the store alone, that can be made full: a file system in memory, in a mount space of our own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_MARK = "EOSLOG_TEST_OWN_MOUNTS"


def enter_own_mount_space(module: str) -> None:
    """Run this program anew where it may mount a file system that nobody else sees, if there is such a place.

    What is mounted there goes with the last process, however it ends.
    """
    if os.environ.get(_MARK):
        return
    unshare = shutil.which("unshare")
    options = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    if unshare is None or subprocess.run([unshare, *options, "true"], capture_output=True).returncode != 0:
        return
    os.environ[_MARK] = "1"
    os.execv(unshare, [unshare, *options, sys.executable, "-m", module, *sys.argv[1:]])


class SmallDisk:
    """A file system of ``megabytes`` at ``path``. It is full when it is made as small as what it holds."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._bytes = megabytes << 20
        path.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._bytes},mode=0755", "tmpfs", str(path))

    @property
    def store(self) -> Path:
        return self.path / "store"

    def fill(self) -> None:
        """Leave no space. Call it again while the disk is to be full: what is deleted meanwhile makes some."""
        used = shutil.disk_usage(self.path).used
        # Refused if more was written just now; the next call sees that.
        with contextlib.suppress(subprocess.CalledProcessError):
            self._resize(used)

    def free(self) -> None:
        self._resize(self._bytes)

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.path))

    def unmount(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("umount", "--lazy", str(self.path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
