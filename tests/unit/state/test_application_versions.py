"""Application versions: repeated work is recognized, and other work of the same number is not taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CheckpointMismatch, ProducerFenced, Replayed
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.application_versions import location_name
from eoslog.state.end_requests import TransactionContent, end_request
from eoslog.state.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.producer_ids import LAST_USABLE_EPOCH
from eoslog.state.store_state import ApplicationVersionKey, LastVersion, TransactionState
from eoslog.state.transaction_entries import ApplicationVersion, QueryVersion
from tests.unit.state.histories import TOPIC_ID, History, planned_expiry

SINK = f"t:{TOPIC_ID}"


def application_version(version: int, application_id: str = "app", sink: str = "*") -> ApplicationVersion:
    return ApplicationVersion(application_id=application_id, sink=sink, version=version)


def after(version: int, query_id: str | None = "query") -> QueryVersion:
    return QueryVersion(query_id=query_id, version=version)


def commits(history: History) -> int:
    """How many files were committed."""
    return sum(batch.file is not None for batch in history.partition().active)


def expire_ids(history: History) -> None:
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    history.append(lambda draft: draft.append(planned))


def test_an_application_version_at_or_below_the_last_committed_one_is_a_replay() -> None:
    history = History()
    identity = history.commit(history.init(), application_version=application_version(5))

    for version in (5, 4, 0):
        content = TransactionContent(application_version=application_version(version))
        request = end_request("tx", identity, "commit", content=content, time_ms=0)
        error = history.refused(lambda draft, r=request: draft.append(r))
        assert isinstance(error, Replayed)
        assert (error.version, error.committed) == (version, 5)
    history.commit(identity, application_version=application_version(6))


def test_application_versions_of_other_applications_and_sinks_are_kept_apart() -> None:
    history = History()
    identity = history.commit(history.init(), application_version=application_version(5))

    identity = history.commit(identity, application_version=application_version(1, application_id="another"))
    history.commit(identity, application_version=application_version(1, sink=SINK))

    assert set(history.state.application_versions.values()) == {LastVersion(5), LastVersion(1)}
    assert history.state.application_versions[ApplicationVersionKey("tx", "app", "*")] == LastVersion(5)


def test_a_commit_with_nothing_but_an_application_version_writes_it() -> None:
    history = History()

    history.commit(history.init(), application_version=application_version(0))

    assert history.state.application_versions[ApplicationVersionKey("tx", "app", "*")] == LastVersion(0)
    assert history.transaction().state is TransactionState.COMPLETE_COMMIT
    assert history.partition().next_offset == 0


def test_the_query_of_an_application_version_outlives_its_transactional_id_and_a_checkpoint() -> None:
    history = History()
    history.micro_batch(3)
    expire_ids(history)

    restored = restore({part.name: part.encode() for part in parts(history.state, history.slot)})

    assert restored == history.state
    assert restored.application_versions == {ApplicationVersionKey("job", "job", SINK): LastVersion(3, "query")}
    with pytest.raises(CheckpointMismatch):
        history.micro_batch(0, "another query", owner="another run")


@pytest.mark.parametrize("batch_id", [0, 3, 4, 9])
def test_another_query_is_refused_whatever_its_micro_batch_and_told_what_to_do(batch_id: int) -> None:
    history = History()
    history.micro_batch(3, "lost")

    with pytest.raises(CheckpointMismatch) as refused:
        history.micro_batch(batch_id, "fresh", owner="another run")

    for part in ("topic t", "version 3 of streaming query lost", f"Version {batch_id} of streaming query fresh"):
        assert part in str(refused.value)
    for part in ("restore it", "another transactionalId", "startAnewAfter='lost:3'"):
        assert part in str(refused.value)
    assert commits(history) == 1
    history.micro_batch(4, "lost")


LOCATION = location_name("0123456789abcdef", "host")


def stream(history: History, query: str, batch_id: int, *, location: str = LOCATION, **options: Any) -> None:
    """A micro-batch whose job is named after its query and the location of its checkpoint."""
    job = f"spark-{query}-{location}"
    history.micro_batch(
        batch_id, query, job_id=job, application_id=location, owner=options.pop("owner", query), **options
    )


def test_a_new_query_at_the_place_of_another_is_refused_at_its_first_commit_only() -> None:
    history = History()
    stream(history, "lost", 3)

    with pytest.raises(CheckpointMismatch, match=r"version 3 of streaming query lost.*startAnewAfter='lost:3'"):
        stream(history, "new", 0)
    stream(history, "new", 0, location=location_name("0123456789abcdef", "other"))
    stream(history, "new", 1)
    stream(history, "third", 0, sink="*")

    assert commits(history) == 4


def test_a_query_that_starts_anew_takes_the_place_over() -> None:
    history = History()
    stream(history, "first", 7)
    with pytest.raises(CheckpointMismatch):
        stream(history, "second", 0, after=after(6, "first"))
    for batch_id in (0, 1):
        stream(history, "second", batch_id, after=after(7, "first"))
    with pytest.raises(Replayed):
        stream(history, "second", 1, after=after(7, "first"), owner="restarted")
    with pytest.raises(CheckpointMismatch, match="'second:1'"):
        stream(history, "third", 0, after=after(7, "first"))
    stream(history, "third", 0, after=after(1, "second"))

    assert commits(history) == 4


def test_queries_of_one_place_that_write_to_two_topics_do_not_fence_each_other() -> None:
    history = History()
    for batch_id in range(3):
        stream(history, "a", batch_id)
        stream(history, "b", batch_id, sink="*")

    assert commits(history) == 6


def test_a_place_is_remembered_after_the_ids_expired_and_a_checkpoint() -> None:
    history = History()
    stream(history, "lost", 3, rows=1)
    expire_ids(history)
    restored = restore({part.name: part.encode() for part in parts(history.state, history.slot)})

    assert restored.application_versions == history.state.application_versions
    with pytest.raises(CheckpointMismatch, match="'lost:3'"):
        stream(history, "new", 0)
    with pytest.raises(Replayed):
        stream(history, "lost", 3, rows=1, owner="restarted")


def test_a_stream_named_after_the_text_of_its_location_goes_on_under_its_place() -> None:
    history = History()
    history.micro_batch(3, "query", job_id="spark-text", owner="before")

    with pytest.raises(Replayed):
        stream(history, "query", 3)
    stream(history, "query", 4)
    with pytest.raises(ProducerFenced):
        history.micro_batch(4, "query", job_id="spark-text", owner="before")

    assert commits(history) == 2


def test_a_moved_sink_is_compared_with_what_its_query_committed() -> None:
    history = History()
    stream(history, "query", 3, rows=2)

    with pytest.raises(CheckpointMismatch, match="with 2 rows, and has 3 now"):
        stream(history, "query", 3, rows=3, sink="*", owner="restarted")
    with pytest.raises(Replayed):
        stream(history, "query", 3, rows=2, sink="*", owner="restarted")
    with pytest.raises(CheckpointMismatch, match="with 2 rows, and has 3 now"):
        stream(history, "query", 3, rows=3, location=location_name("other", None))


def test_another_query_starts_anew_after_exactly_what_was_committed_last() -> None:
    history = History()
    history.micro_batch(3, "lost")
    for wrong in (after(2, "lost"), after(3, "other"), after(3, None)):
        with pytest.raises(CheckpointMismatch):
            history.micro_batch(0, "fresh", owner="another run", after=wrong)

    history.micro_batch(0, "fresh", owner="another run", after=after(3, "lost"))

    with pytest.raises(Replayed):
        history.micro_batch(0, "fresh", owner="another run", after=after(3, "lost"))
    history.micro_batch(1, "fresh", owner="another run", after=after(3, "lost"))
    with pytest.raises(CheckpointMismatch):
        history.micro_batch(0, "third", owner="third run", after=after(3, "lost"))
    with pytest.raises(CheckpointMismatch):
        history.micro_batch(4, "lost", owner="restored run")
    assert commits(history) == 3


def test_the_last_micro_batch_is_a_replay_earlier_ones_are_refused() -> None:
    history = History()
    history.micro_batch(0)
    history.micro_batch(1)

    with pytest.raises(Replayed):
        history.micro_batch(1, owner="restarted")
    with pytest.raises(
        CheckpointMismatch, match=r"a second driver.*older copy.*newest checkpoint.*startAnewAfter='query:1'"
    ):
        history.micro_batch(0, owner="restarted")
    assert commits(history) == 2
    history.micro_batch(0, owner="restarted", after=after(1))
    assert commits(history) == 3


def test_copies_of_a_query_under_other_ids_and_topics_are_independent() -> None:
    history = History()
    history.micro_batch(3)

    history.micro_batch(0, "another query", sink="t:" + "c" * 32)
    history.micro_batch(2, sink="u:" + "d" * 32, job_id="copy", owner="copy")

    assert commits(history) == 3


@pytest.mark.parametrize("sinks", [(SINK, "*"), ("*", SINK), (SINK, "u:" + "d" * 32)])
def test_a_query_is_known_across_a_change_of_its_sink(sinks: tuple[str, str]) -> None:
    history = History()
    before, sink = sinks
    history.micro_batch(3, sink=before)

    with pytest.raises(Replayed):
        history.micro_batch(3, sink=sink, owner="restarted")
    with pytest.raises(CheckpointMismatch):
        history.micro_batch(2, sink=sink, owner="restarted")
    history.micro_batch(4, sink=sink, owner="restarted")
    with pytest.raises(Replayed):
        history.micro_batch(4, sink=before, owner="changed back")
    history.micro_batch(5, sink=before, owner="changed back")
    assert commits(history) == 3


def test_a_fresh_start_below_the_sinks_own_version_needs_another_id() -> None:
    history = History()
    history.micro_batch(3)
    history.micro_batch(4, sink="*")

    with pytest.raises(CheckpointMismatch, match=r"another transactionalId, and give option startAnewAfter='query:4'"):
        history.micro_batch(2, owner="changed back", after=after(4))
    history.micro_batch(2, owner="changed back", job_id="another", after=after(3))
    history.micro_batch(3, sink="*", owner="restored", after=after(4))
    with pytest.raises(Replayed):
        history.micro_batch(3, sink="*", owner="restarted", after=after(4))


def test_foreach_batch_to_one_topic_is_no_replay_for_another() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=3, query_id="query")

    history.micro_batch(3, owner="sink")

    assert commits(history) == 2


def test_a_micro_batch_is_compared_with_its_own_sinks_commit() -> None:
    history = History()
    history.micro_batch(3, rows=2)
    history.job("foreachBatch", history.staged(5, task=0), version=3, query_id="query")

    with pytest.raises(Replayed):
        history.micro_batch(3, owner="sink again", rows=2)


def test_a_micro_batch_is_not_compared_with_foreach_batch_elsewhere() -> None:
    """A ``foreachBatch`` that wrote to two topics under a transactional id that a sink takes over."""
    history = History()
    for sink, rows in ((SINK, 2), ("*", 5)):
        batch = history.staged(rows, task=0)
        history.job("foreachBatch", batch, version=3, query_id="query", application_id="job", sink=sink)

    with pytest.raises(Replayed):
        history.micro_batch(3, owner="sink", rows=2)


def test_a_micro_batch_is_compared_across_a_change_of_its_sink() -> None:
    history = History()
    history.micro_batch(3, sink="*", rows=2)

    with pytest.raises(CheckpointMismatch, match="with 2 rows, and has 3 now"):
        history.micro_batch(3, owner="restarted", rows=3)
    with pytest.raises(Replayed):
        history.micro_batch(3, owner="restarted", rows=2)


def test_a_fresh_start_below_what_an_id_committed_itself_needs_another_id() -> None:
    history = History()
    history.micro_batch(3, job_id="old", owner="first")
    history.micro_batch(5, job_id="new", owner="moved")

    with pytest.raises(CheckpointMismatch, match=r"another transactionalId, and give option startAnewAfter='query:5'"):
        history.micro_batch(2, job_id="old", owner="second", after=after(5))
    history.micro_batch(2, job_id="another", owner="second", after=after(5))

    assert commits(history) == 3


def test_a_run_under_another_id_fences_the_old_despite_roll_over() -> None:
    history = History()
    history.micro_batch(3, job_id="old", owner="zombie")
    history.job("earlier", history.staged(task=0), job_id="new")
    for job_id in ("old", "new"):
        history.at_epoch(LAST_USABLE_EPOCH, job_id)
    history.micro_batch(4, job_id="new", owner="run")

    for batch_id in (4, 5):
        with pytest.raises(ProducerFenced):
            history.micro_batch(batch_id, job_id="old", owner="zombie")
    history.micro_batch(5, job_id="new", owner="run")
    assert commits(history) == 4


def test_a_renamed_job_continues_despite_expiry_or_roll_over() -> None:
    history = History()
    history.micro_batch(3, job_id="old")
    expire_ids(history)
    history.micro_batch(4, job_id="new")
    history.at_epoch(LAST_USABLE_EPOCH, "new")

    history.micro_batch(5, job_id="newest")

    assert commits(history) == 3
    assert history.state.application_versions[ApplicationVersionKey("newest", "newest", SINK)] == LastVersion(
        5, "query"
    )


@pytest.mark.parametrize(
    ("first", "second", "version", "outcome"),
    [
        ("query", "query", 7, Replayed),
        ("query", "query", 3, Replayed),
        ("query", "query", 8, None),
        (None, None, 3, Replayed),
        (None, None, 8, None),
        ("query", "other", 0, CheckpointMismatch),
        ("query", "other", 7, CheckpointMismatch),
        ("query", "other", 8, CheckpointMismatch),
        ("query", None, 7, CheckpointMismatch),
        ("query", None, 8, None),
        (None, "query", 7, CheckpointMismatch),
        (None, "query", 8, None),
    ],
)
def test_a_batch_version_is_skipped_only_within_one_query(
    first: str | None, second: str | None, version: int, outcome: Any
) -> None:
    history = History()
    history.job("run", history.staged(task=0), version=7, query_id=first)

    if outcome is None:
        history.job("run", history.staged(task=0), version=version, query_id=second)
    else:
        with pytest.raises(outcome):
            history.job("run", history.staged(task=0), version=version, query_id=second)
        history.job("run", history.staged(task=0), version=version, query_id=second, after=after(7, first))

    anew = None if outcome is None else after(7, first)
    assert history.state.application_versions[ApplicationVersionKey("job", "app", "*")] == LastVersion(
        version, second, anew
    )


def test_the_advice_to_a_batch_write_names_its_options() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=7)

    with pytest.raises(CheckpointMismatch, match=r"no streaming query.*another txnAppId.*startAnewAfter='7'"):
        history.job("run", history.staged(task=0), version=0, query_id="query")


@given(st.lists(st.tuples(st.sampled_from(["old", "new"]), st.integers(0, 4)), max_size=12))
def test_a_query_commits_each_number_once_also_after_restored_checkpoints(
    asked: list[tuple[str, int]],
) -> None:
    history = History()
    committed: list[tuple[str, int]] = []

    for query_id, batch_id in asked:
        try:
            history.micro_batch(batch_id, query_id, owner=query_id)
        except Replayed:
            assert committed[-1] == (query_id, batch_id)
        except CheckpointMismatch:
            assert committed[-1][0] != query_id or committed[-1][1] > batch_id
        else:
            committed.append((query_id, batch_id))

    assert len({query_id for query_id, _ in committed}) <= 1
    assert commits(history) == len(set(committed)) == len(committed)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 5)), max_size=14))
def test_wherever_copies_of_a_checkpoint_lie_a_number_of_its_query_is_committed_once(
    asked: list[tuple[str, int, int]],
) -> None:
    history = History()
    committed: list[int] = []

    for location, run, batch_id in asked:
        try:
            history.micro_batch(batch_id, job_id=location, owner=f"{location}-{run}")
        except Replayed:
            assert committed[-1] == batch_id
        except CheckpointMismatch:
            assert committed[-1] > batch_id
        except ProducerFenced:
            assert committed
        else:
            committed.append(batch_id)

    assert committed == sorted(set(committed))
    assert commits(history) == len(committed)


def test_a_query_that_comes_back_is_known_after_both_ids_expired() -> None:
    history = History()
    history.micro_batch(3, job_id="first", owner="1")
    history.micro_batch(4, job_id="second", owner="2")
    expire_ids(history)

    with pytest.raises(Replayed):
        history.micro_batch(4, job_id="first", owner="3")


def test_a_query_under_anothers_id_is_known_by_its_own_commits() -> None:
    history = History()
    history.micro_batch(9, job_id="own", owner="1")
    history.micro_batch(5, "lost", job_id="other", owner="2")

    with pytest.raises(Replayed):
        history.micro_batch(9, job_id="other", owner="3", after=after(5, "lost"))
    history.micro_batch(10, job_id="other", owner="3", after=after(5, "lost"))
    assert commits(history) == 3


def test_after_a_fresh_start_a_returning_query_is_told_its_version() -> None:
    history = History()
    history.micro_batch(9, job_id="first", owner="1")
    history.micro_batch(3, job_id="second", owner="2", after=after(9))

    for batch_id in (4, 9):
        with pytest.raises(CheckpointMismatch, match="startAnewAfter='query:9'"):
            history.micro_batch(batch_id, job_id="first", owner="3")
    history.micro_batch(4, job_id="first", owner="3", after=after(9))
    with pytest.raises(Replayed):
        history.micro_batch(4, job_id="first", owner="3", after=after(9))
    assert commits(history) == 3


def test_a_fresh_start_has_its_effect_once_though_the_same_number_comes_again() -> None:
    history = History()
    history.micro_batch(5)
    for batch_id in (4, 5):
        history.micro_batch(batch_id, owner="restored", after=after(5))

    restored = restore({part.name: part.encode() for part in parts(history.state, history.slot)})
    with pytest.raises(Replayed):
        history.micro_batch(5, owner="restarted", after=after(5))
    with pytest.raises(CheckpointMismatch, match=r"another transactionalId .*has had its effect"):
        history.micro_batch(4, owner="restarted", after=after(5))

    assert restored == history.state
    assert commits(history) == 3
    history.micro_batch(6, owner="restarted", after=after(5))


def test_a_fresh_start_of_versions_has_its_effect_once() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=1)
    for version in (0, 1):
        history.job("run", history.staged(task=0), version=version, after=after(1, None))

    for version in (0, 1):
        with pytest.raises(Replayed):
            history.job("run", history.staged(task=0), version=version, after=after(1, None))
    assert commits(history) == 3


def test_a_stream_whose_application_versions_named_its_query_as_their_application_goes_on() -> None:
    history = History()
    identity = history.init("job", kind="job", owner="old run")
    history.commit(
        identity,
        transactional_id="job",
        owner="old run",
        task_count=1,
        application_version=application_version(3, "query", SINK),
    )

    with pytest.raises(Replayed):
        history.micro_batch(3)
    with pytest.raises(CheckpointMismatch):
        history.micro_batch(2)
    history.micro_batch(4)
    assert commits(history) == 1
