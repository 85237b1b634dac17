"""Which segments a topic no longer keeps (Kafka's ``UnifiedLog.deleteOldSegments``)."""

from __future__ import annotations

import pytest

from eoslog.state.entries import TopicConfig
from eoslog.state.log_start import retention_offset
from eoslog.state.producer_ids import ProducerIdentity
from tests.unit.state.histories import NOW_MS, History


def append(history: History, identity: ProducerIdentity, sequence: int, timestamp: int) -> None:
    batch = history.batch(identity, sequence, transactional_id=None, min_timestamp=timestamp, max_timestamp=timestamp)
    history.append(lambda draft: draft.append(batch).base_offset)


@pytest.fixture
def history() -> History:
    """Three sealed segments of one row each, at 1, 2 and 3 s, and an active one of one row at 4 s."""
    history = History()
    identity = history.init(None)
    for sequence in range(4):
        append(history, identity, sequence, NOW_MS + 1000 * (sequence + 1))
        if sequence < 3:
            history.seal(sequence + 1)
    return history


def test_nothing_goes_by_default(history: History) -> None:
    assert retention_offset(history.partition(), TopicConfig(), NOW_MS + 10**12) is None


@pytest.mark.parametrize(
    ("age_ms", "offset"), [(0, None), (1000, None), (1001, 1), (2000, 1), (2001, 2), (3001, 3), (4000, 3), (4001, 4)]
)
def test_a_segment_goes_when_its_latest_row_is_older_than_the_retention_time(
    history: History, age_ms: int, offset: int | None
) -> None:
    config = TopicConfig(retention_ms=5000)

    assert retention_offset(history.partition(), config, NOW_MS + 5000 + age_ms) == offset


@pytest.mark.parametrize(
    ("retention_bytes", "offset"), [(401, None), (400, None), (301, None), (300, 1), (299, 1), (200, 2), (1, 3), (0, 4)]
)
def test_the_oldest_segments_go_while_enough_is_left_without_them(
    history: History, retention_bytes: int, offset: int | None
) -> None:
    config = TopicConfig(retention_bytes=retention_bytes)

    assert retention_offset(history.partition(), config, NOW_MS) == offset


def test_an_old_segment_behind_a_younger_one_stays() -> None:
    history = History()
    identity = history.init(None)
    for sequence, timestamp in enumerate((NOW_MS, NOW_MS + 9000, NOW_MS)):
        append(history, identity, sequence, timestamp)
        history.seal(sequence + 1)

    assert retention_offset(history.partition(), TopicConfig(retention_ms=0), NOW_MS + 8000) == 1


def test_an_active_segment_in_which_a_transaction_is_open_stays(history: History) -> None:
    history.send(history.init())
    config = TopicConfig(retention_ms=0, retention_bytes=0)

    assert retention_offset(history.partition(), config, NOW_MS + 10**9) == 3
    assert history.partition().last_stable_offset == 4


def test_a_topic_that_is_compacted_and_does_not_delete_loses_nothing(history: History) -> None:
    for policy, offset in (("compact", None), ("compact,delete", 4)):
        config = TopicConfig(retention_ms=0, cleanup_policy=policy)
        assert retention_offset(history.partition(), config, NOW_MS + 10**9) == offset
