"""The location of a stream's checkpoint. It distinguishes a new query from the query whose checkpoint was there before.

The id of a query is in its checkpoint: Spark keeps it in the file ``metadata``. A new checkpoint at the location of an
earlier one has a new id. Its query begins at batch 0, and may deliver rows that the earlier query has committed. So
each commit of a stream records the location of its checkpoint. The first commit of a new query is compared with it.

Spark passes only the text of the option ``checkpointLocation``. Two checkpoints may have the same text: in two working
directories, on two hosts, or in two pods. So a local location is an absolute path with the name of the host. A text
without a scheme belongs to Spark's default file system, which only the JVM knows. It is local if the driver's host has
the checkpoint of this query there.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from eoslog.producer.job import CheckpointLocation

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_LARGEST_METADATA = 64 * 1024
_ANCESTORS = 3
"""The driver's JVM is at most this many processes above a worker: worker, daemon, JVM."""
_S3 = frozenset({"s3", "s3n", "s3a"})


@dataclass(frozen=True, slots=True)
class PlannedCheckpoint:
    """The checkpoint of a stream, as far as it is known when a micro-batch is planned."""

    text: str
    """The location in its default spelling: a URL, or a path of Spark's default file system."""
    local_path: str | None = None
    """The absolute path, if the checkpoint may be on the driver's host."""
    query_id: str | None = None
    """The query whose checkpoint is at ``local_path``."""
    is_url: bool = False

    def of_query(self, query_id: str | None) -> CheckpointLocation:
        """Return the location of this query's checkpoint. The local path counts only if its checkpoint is there."""
        if self.local_path is not None and (self.is_url or query_id == self.query_id):
            return CheckpointLocation(self.local_path, socket.gethostname())
        return CheckpointLocation(self.text)


def planned_checkpoint(location: str) -> PlannedCheckpoint:
    """Return the checkpoint that the option ``checkpointLocation`` names, whatever its spelling."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        text = _plain(location)
        for path in _local_paths(location):
            query_id = _query_at(path)
            if query_id is not None:
                return PlannedCheckpoint(text, path, query_id)
        return PlannedCheckpoint(text)
    if scheme[1].lower() == "file":
        path = os.path.realpath("/" + location[scheme.end() :].lstrip("/"))
        return PlannedCheckpoint(path, path, _query_at(path), is_url=True)
    parts = urlsplit(location)
    name = parts.scheme.lower()
    # The user part of a URL may hold credentials. The location is the same for every user.
    host = parts.netloc.rpartition("@")[2].lower() if name in _S3 else parts.netloc
    return PlannedCheckpoint(f"{'s3' if name in _S3 else name}://{host}{_plain('/' + parts.path)}", is_url=True)


def _plain(path: str) -> str:
    """Return a path without a slash at its end, and without parts that are empty or ``.``."""
    return posixpath.normpath(path).replace("//", "/")


def _local_paths(location: str) -> Iterator[str]:
    """Yield the paths on this host that Spark may mean by a path without a scheme."""
    yield os.path.realpath(location)
    if os.path.isabs(location):
        return
    # A worker of Spark Connect works in a directory of its session. Spark takes relative paths from the directory of
    # its JVM, which is above the worker.
    process = os.getppid()
    for _ in range(_ANCESTORS):
        try:
            directory = os.readlink(f"/proc/{process}/cwd")
            with open(f"/proc/{process}/stat") as status:
                process = int(status.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield os.path.realpath(os.path.join(directory, location))


def _query_at(path: str) -> str | None:
    """Return the id of the query whose checkpoint is at a local path; None if there is none."""
    try:
        with open(os.path.join(path, "metadata"), "rb") as file:
            found = json.loads(file.read(_LARGEST_METADATA))
    except (OSError, ValueError, RecursionError):
        return None
    query_id = found.get("id") if isinstance(found, dict) else None
    return query_id if isinstance(query_id, str) else None
