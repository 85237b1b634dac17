"""Mutations of shared objects: where their files are, and when they go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eoslog.format import file_writer
from eoslog.maintenance import vacuum
from eoslog.state.entry_fields import SharedPosition
from eoslog.state.partitions import check_shared, oldest_shared_ms_of
from tests.simulation.mutations.mutation import instead_of, method, mutation

TESTS = "unit/session/test_shared_objects.py::"
STATE_TESTS = "unit/state/test_shared_files.py::"


@mutation(unit_test=TESTS + "test_a_flush_over_100_partitions_is_two_requests")
def files_at_the_start_of_their_shared_object() -> Iterator[None]:
    """Each file of a shared object counts as being at its start: readers get rows of other files, or none."""

    def at_the_start(*, path: str, position: int) -> SharedPosition:
        return SharedPosition(path=path, position=0)

    with method(file_writer, "SharedPosition", at_the_start):
        yield


@mutation(unit_test=TESTS + "test_a_shared_object_stays_while_one_of_its_files_does")
def shared_objects_deleted_with_their_first_file() -> Iterator[None]:
    """A shared object is deleted with its first sealed partition: the rows of the others are lost."""

    def without_the_object(file: Any) -> Iterator[str]:
        yield file.path

    with instead_of(vacuum._paths_of, without_the_object):
        yield


@mutation(unit_test=TESTS + "test_a_shared_object_goes_a_day_after_its_last_file")
def shared_objects_deleted_under_older_plans() -> Iterator[None]:
    """A seal lets shared objects be deleted at once: a reader with an older plan misses rows."""
    with instead_of(oldest_shared_ms_of, lambda batches: None):
        yield


@mutation(unit_test=STATE_TESTS + "test_a_shared_object_may_be_named_for_a_day_of_the_log")
def shared_objects_named_however_old() -> Iterator[None]:
    """An entry may name a shared object of any age: vacuum may have deleted it."""
    with instead_of(check_shared, lambda draft, file: None):
        yield


@mutation(unit_test=TESTS + "test_rows_keep_their_order_whatever_place_their_files_have")
def uploaded_contents_go_last() -> Iterator[None]:
    """Files that a prepare uploads come after the files that were uploaded before: rows change their order."""
    original = file_writer.DataFileWriter.upload_contents

    def last(self: Any, files: Any, placement: Any) -> Any:
        found = original(self, files, placement)
        inline = {file.path for file in files if file.content is not None}
        return sorted(found, key=lambda file: file.path in inline)

    with method(file_writer.DataFileWriter, "upload_contents", last):
        yield
