"""Reading files that an entry of the log names: they are there, and they are what the entry says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eoslog.errors import CorruptRecord
from eoslog.rules.entry_fields import FileReference
from eoslog.segment.data_file import check_file
from eoslog.store.object_store import ObjectNotFound, ObjectStore

_FILES_AT_ONCE = 64
_BYTES_AT_ONCE = 32 << 20


def read_file(store: ObjectStore, file: FileReference) -> bytes:
    """The whole file.

    Raises:
        CorruptRecord: the file is missing, or not what its entry says.
    """
    try:
        body = store.get(file.path).body
    except ObjectNotFound:
        raise _missing(store, file) from None
    check_file(body, file.length, file.crc32c, file.path)
    return body


def read_files(store: ObjectStore, files: Sequence[FileReference]) -> Iterator[bytes]:
    """The whole files in their order, small ones fetched together where that pays.

    Raises:
        CorruptRecord: a file is missing, or not what its entry says.
    """
    first = 0
    while first < len(files):
        end, size = first + 1, files[first].length
        while end < len(files) and end - first < _FILES_AT_ONCE and size + files[end].length <= _BYTES_AT_ONCE:
            size += files[end].length
            end += 1
        for file, found in zip(files[first:end], store.get_many([file.path for file in files[first:end]]), strict=True):
            if found is None:
                raise _missing(store, file)
            check_file(found.body, file.length, file.crc32c, file.path)
            yield found.body
        first = end


def _missing(store: ObjectStore, file: FileReference) -> CorruptRecord:
    return CorruptRecord(f"file {file.path} is missing from {store.url}, though the log names it")
