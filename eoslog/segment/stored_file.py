"""Reading a file that an entry of the log names: it is there, and it is what the entry says."""

from __future__ import annotations

from eoslog.errors import CorruptRecord
from eoslog.rules.entries import FileReference
from eoslog.segment.data_file import check_file
from eoslog.store.object_store import ObjectNotFound, ObjectStore


def read_file(store: ObjectStore, file: FileReference) -> bytes:
    """The whole file.

    Raises:
        CorruptRecord: the file is missing, or not what its entry says.
    """
    try:
        body = store.get(file.path).body
    except ObjectNotFound:
        raise CorruptRecord(f"file {file.path} is missing from {store.url}, though the log names it") from None
    check_file(body, file.length, file.crc32c, file.path)
    return body
