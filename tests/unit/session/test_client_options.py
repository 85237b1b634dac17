"""Options that do not exist are refused with the nearest name, and Kafka's configurations become options."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.producer.producer import Producer
from eoslog.read.isolation import IsolationLevel
from eoslog.session import client_options
from eoslog.session.client_options import CONSUMER_CONFIG, PRODUCER_CONFIG
from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.gcs_options import GcsOptions
from eoslog.storage.s3_options import S3Options
from eoslog.store import Store
from eoslog.wording import nearest


@pytest.fixture(autouse=True)
def _each_warning_is_new() -> None:
    client_options.warn_of_ignored.cache_clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options with which producers and consumers are opened, none of which is in the end."""
    found: list[dict[str, Any]] = []

    def note(client: object, store: object, name: str | None, **options: Any) -> None:
        found.append({"id": name, **options})

    monkeypatch.setattr(Producer, "__init__", note)
    monkeypatch.setattr(Consumer, "__init__", note)
    return found


def parameters(function: Callable[..., Any], *without: str) -> dict[str, tuple[object, object]]:
    found = inspect.signature(function).parameters.values()
    return {each.name: (each.annotation, each.default) for each in found if each.name not in ("self", *without)}


def test_the_signatures_of_consumers_name_every_option() -> None:
    assert parameters(Store.consumer, "config") == parameters(Consumer.__init__, "store")


def test_the_signatures_of_producers_name_every_option() -> None:
    assert parameters(Store.producer, "config").keys() == parameters(Producer.__init__, "store").keys()


def test_the_signature_of_connect_names_every_option_of_a_store() -> None:
    told = parameters(eoslog.connect, "url", "log_config", "settings", "create").keys()

    assert told == {"fsync", *(field.name for each in (S3Options, GcsOptions, AzureOptions) for field in fields(each))}


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("transactional.id", "transactional_id"),
        ("transactionalId", "transactional_id"),
        ("TRANSACTIONAL-ID", "transactional_id"),
        ("transactionalid", "transactional_id"),
        ("trasnactional_id", "transactional_id"),
        ("something", None),
    ],
)
def test_the_nearest_name_is_found_in_other_spellings(name: str, like: str | None) -> None:
    assert nearest(name, ["staged", "transactional_id", "max_block_ms"]) == like


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda store: store.producer(**{"transactional.id": "a"}),
            "'transactional.id' of a producer.*Use transactional_id",
        ),
        (
            lambda store: store.producer(transactionl_id="a"),
            "'transactionl_id' of a producer.*Did you mean 'transactional_id'",
        ),
        (lambda store: store.producer(message_timeout_ms=1), "Use delivery_timeout_ms"),
        (
            lambda store: store.producer(bootstrap_servers="a"),
            r"is Kafka's: give it in config=\{'bootstrap.servers': …\}",
        ),
        (lambda store: store.producer(acks="all"), r"is Kafka's: give it in config=\{'acks': …\}"),
        (lambda store: store.producer(colour=1), "Valid are transactional_id, transaction_timeout_ms, staged"),
        (lambda store: store.consumer(**{"group.id": "a"}), "'group.id' of a consumer.*Use group_id"),
        (lambda store: store.consumer(auto_ofset_reset="none"), "Did you mean 'auto_offset_reset'"),
        (lambda store: store.consumer().subscribe("t", on_assign=print), r"'on_assign' of subscribe\(\).*on_assigned"),
        (
            lambda store: store.admin.create_topic("n", num_partitions=3),
            r"of create_topic\(\).*Did you mean 'partitions'",
        ),
        (lambda store: eoslog.connect("x", fsnc=False), r"'fsnc' of connect\(\).*Did you mean 'fsync'"),
        (lambda store: eoslog.connect("x", **{"endpoint.url": "http://x"}), "Use endpoint_url"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(
    store: Store, call: Callable[[Store], object], message: str
) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        call(store)


def test_an_option_of_another_kind_of_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidOption, match="region"):
        eoslog.connect(tmp_path, region="eu-central-1")
    with pytest.raises(errors.InvalidOption, match="fsync"):
        eoslog.connect("s3://bucket/prefix", fsync=True)


def test_the_configuration_of_a_producer_becomes_options(store: Store, opened: list[dict[str, Any]]) -> None:
    config = {
        "transactional.id": "a",
        "transaction.timeout.ms": "5000",
        "message.timeout.ms": 7_000,
        "acks": "all",
        "enable.idempotence": True,
        "max_block_ms": 9,
        "staged": "true",
    }

    store.producer(config=config)

    (options,) = opened
    assert options["id"] == "a"
    assert options["transaction_timeout_ms"] == 5_000
    assert options["delivery_timeout_ms"] == 7_000
    assert options["max_block_ms"] == 9
    assert options["staged"] is True


def test_the_configuration_of_a_consumer_becomes_options(store: Store, opened: list[dict[str, Any]]) -> None:
    config = {
        "group.id": "g",
        "auto.offset.reset": "smallest",
        "enable.auto.commit": "false",
        "isolation.level": "READ_UNCOMMITTED",
        "session.timeout.ms": 6_000,
        "max.poll.interval.ms": 300_000,
    }

    store.consumer(config=config, max_poll_records=3)

    (options,) = opened
    assert options["id"] == "g"
    assert options["auto_offset_reset"] == "earliest"
    assert options["enable_auto_commit"] is False
    assert IsolationLevel.of(options["isolation_level"]) is IsolationLevel.READ_UNCOMMITTED
    assert options["session_timeout_ms"] == 300_000
    assert options["max_poll_records"] == 3


def test_keys_for_a_broker_are_ignored_with_one_warning_that_has_no_values(
    store: Store, opened: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    config = {"bootstrap.servers": "host:9092", "security.protocol": "SASL_SSL", "sasl.password": "secret"}

    with caplog.at_level(logging.WARNING):
        store.producer(config=config)
        store.producer(config=config)

    (record,) = caplog.records
    assert record.getMessage().endswith("ignored: bootstrap.servers, sasl.password, security.protocol")
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"acks": 0}, "'acks' cannot be 0: eoslog has no weaker mode"),
        ({"acks": "1"}, "'acks' cannot be '1'"),
        ({"enable.idempotence": False}, "'enable.idempotence' cannot be False: every producer of eoslog is idempotent"),
        ({"partitioner": "consistent_random"}, "'partitioner' cannot be.*murmur2"),
        ({"partitioner.class": "com.example.Mine"}, "'partitioner.class' is not supported"),
        ({"on_delivery": print}, "give on_delivery to each send"),
        ({"transactional.idd": "a"}, r"'transactional.idd' is unknown. Did you mean 'transactional.id'\?"),
        ({"bootstrap.server": "a"}, r"Did you mean 'bootstrap.servers'\?"),
        ({"colour": 1}, "'colour' is unknown. Valid are .*max.block.ms"),
        ({1: 2}, "key 1 is unknown"),
        ({"max.block.ms": "soon"}, "max.block.ms is 'soon'; it must be a whole number of ms, 1 or more"),
        ({"staged": "maybe"}, "staged is 'maybe'; it must be true or false"),
        ({"delivery.timeout.ms": 1, "message.timeout.ms": 2}, "'message.timeout.ms' gives option .* a second value"),
        (["transactional.id"], "must be a mapping"),
    ],
)
def test_a_configuration_that_would_be_misunderstood_is_refused(store: Store, config: Any, message: str) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        store.producer(config=config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"enable.auto.offset.store": False}, r"Give commit\(\) the offsets"),
        ({"enable.partition.eof": True}, "end_offsets"),
        ({"group.idd": "g"}, r"Did you mean 'group.id'\?"),
        (
            {"max.poll.interval.ms": 86_400_000, "group.id": "g"},
            r"max\.poll\.interval\.ms must be 6000 to 1800000, not 8",
        ),
        ({"session.timeout.ms": 1, "max.poll.interval.ms": 2, "group.id": "g"}, r"\] max\.poll\.interval\.ms must be"),
        ({"max_poll_records": 0}, r"\] max_poll_records is 0; it must be"),
    ],
)
def test_a_configuration_of_a_consumer_that_would_be_misunderstood_is_refused(
    store: Store, config: Any, message: str
) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        store.consumer(config=config)


def test_an_option_is_given_once(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match="'transactional_id' of a producer is given as an argument and in"):
        store.producer("a", config={"transactional.id": "b"})


def test_no_key_has_two_meanings() -> None:
    for config in (PRODUCER_CONFIG, CONSUMER_CONFIG):
        groups = [set(config.other_names), set(config.fixed), set(config.refused), set(config.ignored)]
        assert sum(map(len, groups)) == len(set().union(*groups))
        known = set().union(*groups[:3])
        assert not [key for key in known if key.startswith(config.ignored_prefixes)]


def test_the_error_of_a_needless_method_says_to_leave_it_out() -> None:
    """A flush in its place would put a file for each record."""
    message = "no attribute 'poll'. Leave the call out: the call that writes a record also calls its on_delivery"
    with pytest.raises(AttributeError, match=re.escape(message)):
        eoslog.connect("memory://").producer().poll(0)  # type: ignore[attr-defined]


def test_a_mapping_of_kafkas_keys_is_given_as_config() -> None:
    store = eoslog.connect("memory://")
    for call in (store.producer, store.consumer):
        with pytest.raises(eoslog.InvalidOption, match=r"as config=\{…\}, not as the first argument"):
            call({"group.id": "g"})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("client", "calls"),
    [
        (lambda store: store.producer(), client_options.PRODUCER_CALLS),
        (lambda store: store.consumer(), client_options.CONSUMER_CALLS),
        (lambda store: store.admin, client_options.ADMIN_CALLS),
    ],
)
def test_a_method_of_another_client_is_named_by_its_call_here(
    store: Store, client: Callable[[Store], Any], calls: dict[str, str]
) -> None:
    found = client(store)

    for name, call in calls.items():
        assert name not in dir(found)
        with pytest.raises(AttributeError, match=re.escape(f"no attribute '{name}'. Call {call} instead")):
            getattr(found, name)
        path = call.partition("(")[0].removeprefix("store.admin.")
        assert callable(getattr(store.admin if "admin" in call else found, path))
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        found.nothing  # noqa: B018


SWITCHES: dict[str, Callable[[Store, Any], object]] = {
    "staged": lambda store, value: store.producer("x", staged=value),
    "keep_prepared": lambda store, value: store.producer("x").init_transactions(keep_prepared=value),
    "latest_by_key": lambda store, value: store.scan("t", latest_by_key=value),
    "include_control_rows": lambda store, value: store.scan("t", include_control_rows=value),
    "transaction_consistent": lambda store, value: store.scan("t", transaction_consistent=value),
    "include_aborts": lambda store, value: store.history(include_aborts=value),
    "dry_run": lambda store, value: store.admin.vacuum(dry_run=value),
    "now": lambda store, value: store.admin.compact_files(now=value),
    "new_identity": lambda store, value: store.admin.copy(eoslog.connect("memory://"), new_identity=value),
    "data": lambda store, value: store.admin.verify(data=value),
    "create": lambda store, value: eoslog.connect("memory://", create=value),
    "fsync": lambda store, value: eoslog.connect("store", fsync=value),
    "to_latest": lambda store, value: eoslog.OffsetReset(to_latest=value),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_never_a_truth_value(store: Store, name: str) -> None:
    for wrong in ("0", "no", "", 0, 1, [], 1.0):
        with pytest.raises(errors.EosLogError, match=f"{name} is .*; it must be true or false"):
            SWITCHES[name](store, wrong)


@pytest.mark.parametrize("text", ["false", "FALSE", " false "])
def test_an_option_of_an_object_store_may_be_a_text(text: str, tmp_path: Path) -> None:
    eoslog.connect(tmp_path / "store", fsync=text).admin.create_topic("t")  # type: ignore[arg-type]

    with pytest.raises(errors.InvalidOption, match="read_timeout_ms is 'soon'; it must be a whole number, 1 or more"):
        eoslog.connect("s3://bucket", read_timeout_ms="soon")  # type: ignore[arg-type]


def test_two_keys_that_give_the_same_value_agree(store: Store, opened: list[dict[str, Any]]) -> None:
    store.producer(config={"delivery.timeout.ms": 7, "message.timeout.ms": "7"})

    assert opened[0]["delivery_timeout_ms"] == 7


@pytest.mark.parametrize("create", [{"config": {"acks": "all"}}, {}])
def test_an_option_with_a_wrong_value_is_named_before_anything_happens(store: Store, create: dict[str, Any]) -> None:
    before = store.requests.copy()

    with pytest.raises(errors.InvalidOption, match="max_block_ms is None; it must be a whole number of ms, 1 or more"):
        store.producer("x", max_block_ms=None, **create)  # type: ignore[arg-type]

    assert store.requests == before
