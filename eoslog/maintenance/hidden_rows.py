"""Rewriting of data files that hold visible rows beside hidden ones.

``delete_records`` may move the log start into the middle of a file. While a topic is not published, compaction may put
committed and aborted rows into one file. Readers of the log skip the hidden rows. Engines that read a file by itself
would show them, so a published topic has no such file.
"""

from __future__ import annotations

from contextlib import suppress

from eoslog.maintenance.file_compaction import FileCompaction
from eoslog.maintenance.sealing import seal_segment
from eoslog.maintenance.segment_rewriting import TARGET_FILE_BYTES, SegmentRun, SegmentsChanged, current_partition
from eoslog.session.session import Session
from eoslog.state.topics import topic_named


def rewrite_hidden_rows(session: Session, topic: str) -> None:
    """Rewrite the files of a published topic that hold visible rows beside hidden ones, without the hidden rows.

    Another process may change a partition at the same time. Then such a file may remain. The caller calls again.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: a file is missing or damaged.
    """
    for partition_id in session.log.read(lambda state, slot: topic_named(state, topic).partition_ids()):
        found = current_partition(session, partition_id)
        if found is None:
            continue
        first = next(iter(found[1].active), None)
        if first is not None and first.base_offset < found[1].log_start_offset:
            # Only files of sealed segments can be replaced. The log start is at most the last stable offset. So the
            # outcome of the batch is known.
            seal_segment(session, *found, first.end_offset)
            session.environment.reached("segment.hidden_rows.sealed")
            found = current_partition(session, partition_id)
            if found is None:
                continue
        each, partition = found
        for segment in partition.sealed:
            run = SegmentRun(each, partition_id.partition, (segment,))
            start = partition.log_start_offset
            with suppress(SegmentsChanged):
                FileCompaction(session, run, start, TARGET_FILE_BYTES, joins_files=False).run()
