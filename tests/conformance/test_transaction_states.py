"""The stored state of transactional ids: what is loaded, what a failed append leaves, what times out and expires."""

from __future__ import annotations

import pytest

from eoslog.client.coordinator import Coordinator
from eoslog.client.producer import Producer
from eoslog.client.store import Store
from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    EosLogError,
    IllegalState,
    InvalidTransactionTimeout,
    ProducerFenced,
    StoreAccessDenied,
    StoreUnavailable,
    UnsupportedFormat,
)
from eoslog.log.paths import slot_path
from eoslog.log.record import SlotRecord, encode_line
from eoslog.rules.entries import ApplicationToken
from eoslog.rules.forgetting import TRANSACTIONAL_ID_EXPIRATION_MS, plan_expiry
from eoslog.rules.machine import fold
from eoslog.rules.producer_ids import MAX_TRANSACTION_TIMEOUT_MS
from eoslog.rules.state import StoreState, TransactionState
from tests.conformance.partitions import partition_of, read, write
from tests.conformance.rules import reloaded
from tests.conformance.sleepers import Died, asleep_at, dies_at
from tests.unit.client.world import FaultyStore, World
from tests.unit.rules.histories import History

DAY_MS = 24 * 3600 * 1000
SLOTS = "__transaction_state/slot/"
S = TransactionState


def faults(store: Store) -> FaultyStore:
    assert isinstance(store.object_store, FaultyStore)
    return store.object_store


def state_of(store: Store, transactional_id: str = "tx") -> str:
    return store.admin.describe_transaction(transactional_id).transaction_state


def epoch_of(store: Store, transactional_id: str = "tx") -> int:
    return store.admin.describe_transaction(transactional_id).producer_epoch


def with_a_transaction(store: Store) -> Producer:
    """A producer with a row in both partitions of an open transaction."""
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"v", partition=partition)
    producer.flush()
    return producer


def in_each_state(history: History) -> dict[TransactionState, str]:
    """A transactional id in each state that is at rest."""
    ids = {S.EMPTY: "empty", S.ONGOING: "ongoing", S.COMPLETE_COMMIT: "committed", S.COMPLETE_ABORT: "aborted"}
    for state, name in ids.items():
        identity = history.init(name)
        if state is not S.EMPTY:
            history.send(identity, transactional_id=name)
        if state is S.COMPLETE_COMMIT:
            history.commit(identity, name)
        elif state is S.COMPLETE_ABORT:
            history.abort(identity, name)
    return ids


@pytest.mark.scenario(87)
@pytest.mark.parametrize("timeout_ms", [1, MAX_TRANSACTION_TIMEOUT_MS])
def test_a_time_out_may_be_one_millisecond_and_the_maximum(store: Store, timeout_ms: int) -> None:
    store.producer("tx", transaction_timeout_ms=timeout_ms).init_transactions()

    assert store.admin.describe_transaction("tx").transaction_timeout_ms == timeout_ms


@pytest.mark.scenario(87)
@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TRANSACTION_TIMEOUT_MS + 1])
def test_any_other_time_out_is_refused_and_nothing_is_done(store: Store, history: History, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        store.producer("tx", transaction_timeout_ms=timeout_ms).init_transactions()
    with pytest.raises(InvalidTransactionTimeout):
        history.init(timeout_ms=timeout_ms)

    assert store.admin.list_transactions() == []
    assert history.state.transactions == {}


@pytest.mark.scenario(88)
def test_the_last_state_of_an_id_counts_for_whoever_loads_it(store: Store, world: World) -> None:
    write(store, "t", "commit", "abort", transactional_id="one")
    write(store, "t", "open", transactional_id="two")
    write(world.process(), "t", "commit", transactional_id="one")
    store.log.checkpoint()
    write(store, "t", "abort", transactional_id="two")

    for process in (store, world.process()):
        assert {name: (state_of(process, name), epoch_of(process, name)) for name in ("one", "two")} == {
            "one": ("COMPLETE_COMMIT", 4),
            "two": ("COMPLETE_ABORT", 3),
        }


@pytest.mark.scenario(88)
def test_who_left_an_id_to_another_process_and_takes_it_back_goes_on_where_that_one_was(
    store: Store, world: World
) -> None:
    first = write(store, "t", "commit")
    other = write(world.process(), "t", "commit", "commit")
    assert other.producer_epoch > first.producer_epoch

    back = write(store, "t", "commit")

    assert (back.producer_id, back.producer_epoch) == (first.producer_id, other.producer_epoch + 2)


@pytest.mark.scenario(89)
@pytest.mark.parametrize("answers", range(1, 5))
def test_nothing_is_served_from_a_load_that_was_cut_short(store: Store, world: World, answers: int) -> None:
    write(store, "t", "commit")
    store.log.checkpoint()
    write(store, "t", "abort", "commit", transactional_id="other")
    cold = world.process()
    cold.describe()
    get, left = cold.object_store.get, answers - 1

    def get_some(path: str) -> object:
        nonlocal left
        if left == 0:
            raise StoreUnavailable("no answer")
        left -= 1
        return get(path)

    cold.object_store.get = get_some  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        cold.read(lambda state, slot: state)
    assert cold.log.view.is_open is False
    cold.object_store.get = get  # type: ignore[method-assign]

    assert cold.read(lambda state, slot: state) == store.read(lambda state, slot: state)


@pytest.mark.scenario(90, 110)
@pytest.mark.parametrize("failures", [1, 2])
def test_appends_that_the_store_refuses_leave_the_state_and_the_epoch_as_they_were(
    store: Store, world: World, failures: int
) -> None:
    write(store, "t", "open")
    before = store.read(lambda state, slot: (state.frozen_copy(), slot))
    other = world.process()
    faults(other).deny(SLOTS)
    for _ in range(failures):
        with pytest.raises(StoreAccessDenied):
            other.producer("tx").init_transactions()
    assert store.read(lambda state, slot: (state, slot)) == before

    faults(other).heal()
    other.producer("tx").init_transactions()

    assert epoch_of(store) == 2


@pytest.mark.scenario(90, 119)
@pytest.mark.parametrize("lands", [True, False])
def test_an_end_without_an_answer_is_repeated_and_done_once(store: Store, lands: bool) -> None:
    producer = with_a_transaction(store)
    faults(store).lose_one_answer(SLOTS, lands=lands)

    producer.commit_transaction()

    assert state_of(store) == "COMPLETE_COMMIT"
    assert [each.high_watermark for each in store.admin.offsets("t")] == [2, 2]
    assert producer.producer_epoch == epoch_of(store) == 1


@pytest.mark.scenario(91, 119)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("verdict", ["commit", "abort"])
def test_an_end_whose_fate_is_unknown_may_be_repeated_and_nothing_else(
    store: Store, world: World, lands: bool, verdict: str
) -> None:
    producer = with_a_transaction(store)
    faults(store).lose_answers(SLOTS, lands=lands)
    end, other_end = producer.commit_transaction, producer.abort_transaction
    if verdict == "abort":
        end, other_end = other_end, end
    with pytest.raises(CommitStateUnknown):
        end()
    assert state_of(world.process()) == (f"COMPLETE_{verdict.upper()}" if lands else "ONGOING")

    for call in (producer.begin_transaction, other_end):
        with pytest.raises(IllegalState):
            call()
    faults(store).heal()
    end()

    assert state_of(store) == f"COMPLETE_{verdict.upper()}"
    assert epoch_of(store) == producer.producer_epoch == 1
    assert [each.high_watermark for each in store.admin.offsets("t")] == [2, 2]


@pytest.mark.scenario(92)
@pytest.mark.parametrize("verdict", ["commit", "abort"])
def test_an_end_that_another_producer_overtakes_is_fenced_and_overwrites_nothing(
    store: Store, world: World, verdict: str
) -> None:
    zombie = world.process()
    producer = with_a_transaction(zombie)
    slept = asleep_at(zombie, "log.slot.before_put", lambda: write(store, "t", "open", transactional_id="tx"))

    with pytest.raises(ProducerFenced):
        getattr(producer, f"{verdict}_transaction")()

    assert slept
    assert state_of(store) == "ONGOING"
    assert partition_of(store, "t").last_stable_offset == 2


@pytest.mark.scenario(92)
def test_an_init_that_another_init_overtakes_is_given_an_epoch_of_its_own(store: Store, world: World) -> None:
    late, early = world.process(), store.producer("tx")
    late.read(lambda state, slot: None)
    asleep_at(late, "log.slot.before_put", early.init_transactions)
    producer = late.producer("tx")

    producer.init_transactions()

    assert (early.producer_epoch, producer.producer_epoch) == (0, 1)
    early.begin_transaction()
    early.send("t", b"v")
    with pytest.raises(ProducerFenced):
        early.flush()


@pytest.mark.scenario(93)
def test_transactions_are_listed_by_state_producer_duration_and_pattern(store: Store, world: World) -> None:
    ids = {}
    for number in range(4):
        name = f"{'special' if number % 2 else 'plain'}-{number}"
        end = "commit" if number == 3 else "open"
        ids[name] = write(world.process(), "t", end, transactional_id=name).producer_id
        world.pass_time(1_000)
    admin = store.admin

    def listed(**filters: object) -> list[str]:
        return [each.transactional_id for each in admin.list_transactions(**filters)]  # type: ignore[arg-type]

    assert listed() == ["plain-0", "special-1", "plain-2", "special-3"]
    assert listed(states=["Ongoing"]) == ["plain-0", "special-1", "plain-2"]
    assert listed(states=["CompleteCommit"]) == ["special-3"]
    assert listed(states=["Dead"]) == []
    assert admin.list_transactions(states=["Ongoing", "Unknown"]).unknown_states == ("Unknown",)
    assert listed(producer_ids=[ids["special-1"], 42]) == ["special-1"]
    assert [listed(running_longer_than_ms=each) for each in (0, 2_000, 3_000, 4_000)] == [
        ["plain-0", "special-1", "plain-2"],
        ["plain-0", "special-1"],
        ["plain-0"],
        [],
    ]
    assert listed(transactional_id_pattern="special-.*") == ["special-1", "special-3"]
    assert listed(transactional_id_pattern="pecial-.*") == []
    with pytest.raises(EosLogError, match="INVALID_REGULAR_EXPRESSION"):
        listed(transactional_id_pattern="(ab(cd")


@pytest.mark.scenario(94)
def test_of_all_states_only_an_open_transaction_times_out(history: History) -> None:
    ids = in_each_state(history)
    history.now_ms += 100 * 60_000

    assert history.abort_timed_out() == [ids[S.ONGOING]]


@pytest.mark.scenario(95)
@pytest.mark.parametrize(("point", "state"), [("log.slot.before_put", "ONGOING"), ("log.slot.claimed", None)])
@pytest.mark.parametrize("verdict", ["commit", "abort"])
def test_a_process_that_dies_in_an_end_leaves_it_decided_or_open(
    store: Store, world: World, point: str, state: str | None, verdict: str
) -> None:
    """Kafka loads a prepared state and sends the markers again; here there is nothing left to be sent."""
    dying = world.process()
    producer = with_a_transaction(dying)
    dies_at(dying, point)
    with pytest.raises(Died):
        getattr(producer, f"{verdict}_transaction")()

    survivor = world.process()

    assert state_of(survivor) == (state or f"COMPLETE_{verdict.upper()}")
    stable = [each.last_stable_offset for each in survivor.admin.offsets("t")]
    assert stable == ([0, 0] if state else [2, 2])
    world.pass_time(61_000)
    Coordinator(survivor).abort_timed_out_transactions()
    assert [each.last_stable_offset for each in survivor.admin.offsets("t")] == [2, 2]


@pytest.mark.scenario(96)
def test_ids_at_rest_expire_and_an_open_one_does_not(history: History) -> None:
    ids = in_each_state(history)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = plan_expiry(history.state, history.now_ms)
    assert planned is not None

    history.append(lambda draft: draft.append(planned))

    assert history.state.transactions.keys() == {ids[S.ONGOING]}
    assert reloaded(history) == history.state


@pytest.mark.scenario(96)
def test_an_expiry_that_cannot_be_appended_forgets_nothing(store: Store, world: World) -> None:
    write(store, "t", "commit")
    world.pass_time(8 * DAY_MS)
    coordinator = world.process()
    coordinator.read(lambda state, slot: None)
    faults(coordinator).deny(SLOTS)

    with pytest.raises(StoreAccessDenied):
        Coordinator(coordinator).expire()

    for process in (store, coordinator):
        assert state_of(process) == "COMPLETE_COMMIT"


@pytest.mark.scenario(98)
def test_an_id_that_never_had_a_transaction_expires(store: Store, world: World) -> None:
    store.producer("tx").init_transactions()
    world.pass_time(8 * DAY_MS)

    expired = Coordinator(store).expire()

    assert expired is not None
    assert [each.transactional_id for each in expired.transactional_ids] == ["tx"]


@pytest.mark.scenario(99)
@pytest.mark.parametrize("body", [b"", b"\n", b"not json\n", b'{"format": 1}\n'])
def test_a_damaged_record_ends_the_load_with_an_error(store: Store, world: World, body: bytes) -> None:
    write(store, "t", "commit")
    slot = store.read(lambda state, slot: slot)
    store.object_store.put(slot_path(slot), body)

    with pytest.raises(CorruptRecord):
        world.process().read(lambda state, slot: None)


def _put_record(store: Store, *entries: dict[str, object]) -> None:
    view = store.log.view
    store.read(lambda state, slot: None)
    record = SlotRecord(slot=view.slot + 1, token="f" * 32, prev=view.token, entries=entries)
    store.object_store.put_if_absent(slot_path(view.slot + 1), encode_line(record))


@pytest.mark.scenario(99)
def test_an_entry_of_a_type_to_come_is_never_guessed_at(store: Store, world: World) -> None:
    """Kafka skips types that it does not know; here an unknown entry may decide a row, so the store is refused."""
    _put_record(store, {"type": "of the future"})

    with pytest.raises(UnsupportedFormat, match="of the future"):
        world.process().read(lambda state, slot: None)


@pytest.mark.scenario(99)
def test_a_record_without_entries_is_passed_over(store: Store, world: World) -> None:
    write(store, "t", "commit")
    _put_record(store)

    cold = world.process()

    assert read(cold, "t") == [(0, b"0")]
    write(cold, "t", "commit", transactional_id="other")


@pytest.mark.scenario(100)
def test_every_state_comes_back_from_a_checkpoint(history: History) -> None:
    in_each_state(history)

    assert reloaded(history).transactions == history.state.transactions
    assert {known.state for known in reloaded(history).transactions.values()} == {
        S.EMPTY,
        S.ONGOING,
        S.COMPLETE_COMMIT,
        S.COMPLETE_ABORT,
    }


@pytest.mark.scenario(100)
def test_an_id_without_an_open_transaction_has_no_partitions(history: History) -> None:
    ids = in_each_state(history)

    for state, name in ids.items():
        assert bool(history.transaction(name).partitions) is (state is S.ONGOING)


@pytest.mark.scenario(100)
def test_fields_that_are_not_known_are_passed_over(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.commit(identity)

    follower = StoreState()
    for slot, entries in enumerate(history.records):
        assert fold(follower, slot, [entry | {"of_the_future": 1} for entry in entries]) is None

    assert follower == history.state


@pytest.mark.scenario(100)
def test_a_forgotten_id_is_gone_from_checkpoints_and_its_token_is_not(history: History) -> None:
    token = ApplicationToken(application_id="app", sink="*", version=3)
    history.commit(history.init(), token=token)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = plan_expiry(history.state, history.now_ms)
    assert planned is not None
    history.append(lambda draft: draft.append(planned))

    state = reloaded(history)

    assert state.transactions == {}
    assert list(state.tokens.values()) == [3]
