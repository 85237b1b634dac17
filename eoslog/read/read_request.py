"""The rows that a read wants of each of its topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eoslog.format.partitioner import RowKeys
from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.isolation import IsolationLevel
from eoslog.read.latest_rows import latest_keys
from eoslog.read.planner import ReadPlanner
from eoslog.read.predicate import Predicate
from eoslog.read.time_travel import AsOf
from eoslog.state.store_state import Topic


class TopicRead(NamedTuple):
    """The read of one topic."""

    planner: ReadPlanner
    predicate: Predicate | None
    """Only rows for which it is true are read; None: all rows."""
    latest: RowKeys | None
    """Only the newest row of each of these keys is read; None: all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The rows that a read wants, in the same form for every topic."""

    isolation: IsolationLevel
    as_of: AsOf | None = None
    """The end of a ``snapshot``; None for the newest state."""
    control_rows: bool = False
    predicate: str | None = None
    """The text of a condition for the rows; None for all rows."""
    latest_by_key: bool = False
    """True if only the newest row of each key is wanted."""

    def of_topic(self, indexes: SegmentIndexes, topic: Topic) -> TopicRead:
        """Return the read of a topic.

        Raises:
            InvalidOption: the predicate does not fit the topic's columns, or the topic has no key.
        """
        predicate = None if self.predicate is None else compiled(self.predicate, topic)
        latest = latest_keys(topic) if self.latest_by_key else None
        # A row that does not match may be the newest of its key, so the predicate leaves out no file.
        file_predicate = None if self.latest_by_key else predicate
        planner = ReadPlanner(
            indexes=indexes,
            topic=topic.topic,
            isolation=self.isolation,
            as_of=self.as_of,
            control_rows=self.control_rows,
            predicate=file_predicate,
        )
        return TopicRead(planner, predicate, latest)


def compiled(predicate: str, topic: Topic) -> Predicate:
    """Return the predicate that a text means for the rows of a topic.

    Raises:
        InvalidOption: the text is not a predicate, or does not fit the topic's columns.
    """
    # Only a read with a predicate loads the parser of SQL.
    from eoslog.read.predicate_text import compile_predicate

    return compile_predicate(predicate, topic)
