"""A future's callback runs while its producer tells of the rows, and may call the producer in turn."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from eoslog import errors
from eoslog.session.positions import RecordMetadata
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values


@pytest.mark.parametrize(("end", "shown"), [("commit_transaction", [b"1"]), ("abort_transaction", [])])
def test_a_callback_of_a_flush_may_end_the_transaction(
    store: Store, world: World, end: str, shown: list[bytes]
) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"1").add_done_callback(lambda _: getattr(producer, end)())

    producer.flush()

    assert values(world.process()) == shown
    assert not world.process().admin.list_transactions(states=["Ongoing"])
    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()
    assert values(world.process()) == [*shown, b"2"]


@pytest.mark.parametrize(
    ("call", "shown"), [("commit_transaction", [b"1"]), ("abort_transaction", []), ("prepare_transaction", [])]
)
def test_a_callback_cannot_repeat_the_call_that_tells_it(
    store: Store, world: World, call: str, shown: list[bytes]
) -> None:
    producer = open_transaction(store, "tx")
    refused: list[BaseException | None] = []

    def repeat(_: Future[RecordMetadata]) -> None:
        with pytest.raises(errors.IllegalState, match="is running") as error:
            getattr(producer, call)()
        refused.append(error.value)

    producer.send("t", b"1").add_done_callback(repeat)

    getattr(producer, call)()

    assert len(refused) == 1
    assert values(world.process()) == shown
    if call == "prepare_transaction":
        producer.complete_transaction("")
    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()
    assert values(world.process()) == [*shown, b"2"]


def test_a_callback_of_a_refused_flush_may_abort_the_transaction(store: Store, world: World) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"1").add_done_callback(lambda _: producer.abort_transaction())
    world.process().admin.delete_topic("t")
    world.process().admin.create_topic("t")

    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.flush()

    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()
    assert values(world.process()) == [b"2"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("lost", [SLOTS, "t/"])
def test_a_row_that_was_given_up_may_be_sent_again_by_its_callback(store: Store, world: World, lost: str) -> None:
    producer = store.producer(max_block_ms=1000, delivery_timeout_ms=1000)
    again: list[Future[RecordMetadata]] = []
    producer.send("t", b"1").add_done_callback(lambda _: again.append(producer.send("t", b"1 again")))
    faulty(store).lose_answers(lost, lands=False)
    with pytest.raises(errors.DeliveryTimedOut):
        producer.flush()
    faulty(store).heal()

    producer.flush()

    assert again[0].result(0).topic == "t"
    assert values(world.process()) == [b"1 again"]


def test_a_callback_of_a_close_can_hand_over_nothing_more(store: Store) -> None:
    producer = store.producer()
    refused: list[BaseException] = []

    def send_again(_: Future[RecordMetadata]) -> None:
        with pytest.raises(errors.IllegalState) as error:
            producer.send("t", b"1 again")
        refused.append(error.value)

    producer.send("t", b"1").add_done_callback(send_again)

    producer.close(timeout=0)

    assert len(refused) == 1
