"""Metrics for Prometheus are those of ``Store.metrics``, and what is deployed asks for metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from eoslog import Coordinator
from eoslog.errors import CorruptRecord, EosLogError, ProducerFenced, StoreUnavailable
from eoslog.gateway.addresses import Address
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.gateway_health import GatewayHealth
from eoslog.gateway.server import Gateway
from eoslog.maintenance.coordinator import STEPS, StepReport
from eoslog.prometheus import _GAUGES, CoordinatorMetrics, GatewayCollector, _Handler, exposition, serve
from eoslog.state.names import TopicPartition
from eoslog.storage.object_store import RequestTimes
from eoslog.store import Store
from tests.pages import REPOSITORY
from tests.unit.support.held import LONGEST_WAIT_S
from tests.unit.support.transactions import begun
from tests.unit.support.world import World

DEPLOYED = REPOSITORY / "conf/deploy"


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The values by name and labels other than the store, as Prometheus' own client reads them."""
    return {
        (sample.name, frozenset(sample.labels.items() - {("store", sample.labels.get("store"))})): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset(labels.items())))


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_open_transactions_and_the_lag_of_groups_are_shown_in_seconds_and_offsets(store: Store, world: World) -> None:
    begun(store, "open", 0)
    with store.producer() as producer:
        producer.send("t", b"1", partition=0)
        producer.send("t", b"1", partition=1)
    store.admin.alter_consumer_group_offsets("g", {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})
    world.pass_time(20_000)

    text = exposition(store)

    assert value(text, "eoslog_up") == 1
    assert value(text, "eoslog_longest_open_transaction_seconds") == 20
    assert value(text, "eoslog_open_transactions", older_than_seconds="10") == 1
    assert value(text, "eoslog_open_transactions", older_than_seconds="60") == 0
    assert value(text, "eoslog_transactions", state="ONGOING") == 1
    assert value(text, "eoslog_last_stable_offset_lag", topic="t", partition="0") == 2
    assert value(text, "eoslog_consumer_lag", group="g", topic="t", partition="0") == 0
    assert value(text, "eoslog_consumer_lag", group="g", topic="t", partition="1") == 1
    assert value(text, "eoslog_requests_total", verb="PUT") == store.requests["PUT"]


def test_events_of_the_log_and_of_calls_are_counts(store: Store) -> None:
    producer = begun(store, "tx", 0)
    begun(store, "tx", 0, 1).commit_transaction()
    store.scan("t").to_table()
    with pytest.raises(ProducerFenced):
        producer.commit_transaction()

    text = exposition(store)

    assert value(text, "eoslog_transactions_ended_total", outcome="commit", reason="client") == 1
    assert value(text, "eoslog_transactions_ended_total", outcome="abort", reason="fence") == 1
    assert value(text, "eoslog_transactions_ended_total", outcome="abort", reason="timeout") == 0
    assert value(text, "eoslog_inits_total") == 2
    assert value(text, "eoslog_rows_in_total", topic="t") == 3
    assert value(text, "eoslog_rows_out_total", topic="t") == 2
    assert value(text, "eoslog_append_errors_total", error="ProducerFenced") == 1
    assert value(text, "eoslog_duplicate_batches_total") == 0
    assert value(text, "eoslog_end_offset", topic="t", partition="1") == 2
    assert (value(text, "eoslog_topic_bytes", topic="t") or 0) > 0


def test_each_metric_has_the_store_as_a_label(store: Store) -> None:
    begun(store, "open", 0)
    store.log.checkpoint()
    store.admin.alter_consumer_group_offsets("g", {TopicPartition("t", 0): 0})
    coordinator = CoordinatorMetrics(store, INTERVALS_MS)
    coordinator.observe(StepReport("vacuum", 0))
    registry = CollectorRegistry()
    registry.register(coordinator)

    for text in (exposition(store), generate_latest(registry).decode()):
        found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert {sample.labels["store"] for sample in found} == {store.url}


def test_request_times_are_a_histogram_by_verb(store: Store) -> None:
    times = store.object_store.request_times = RequestTimes(store.requests)
    for ms in (0.5, 1, 40, 10_000, 10_001):
        times.add("PUT", int(ms * 1_000_000))

    text = exposition(store)

    def below(bound: str) -> float | None:
        return value(text, "eoslog_request_seconds_bucket", verb="PUT", le=bound)

    assert [below(bound) for bound in ("0.001", "0.025", "0.05", "5.0", "10.0", "+Inf")] == [2, 2, 3, 3, 4, 5]
    assert value(text, "eoslog_request_seconds_count", verb="PUT") == 5
    assert value(text, "eoslog_request_seconds_sum", verb="PUT") == pytest.approx(20.0425)
    assert {verb for name, labels in samples(text) for label, verb in labels if label == "verb"} == set(store.requests)


def test_threads_lose_no_request_of_a_histogram(hurried_threads: None) -> None:
    times = RequestTimes(["GET"])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda ns: times.add("GET", ns), [1, 20_000_000] * 20_000))

    found = times.by_verb()["GET"]
    assert sorted(found.counts)[-2:] == [20_000, 20_000]
    assert found.total_ns == 20_000 * 20_000_001


def test_hostile_names_stay_label_values(store: Store) -> None:
    group = 'g"} 1 \\ {eoslog_up 0'
    store.admin.alter_consumer_group_offsets(group, {TopicPartition("t", 0): 0})

    text = exposition(store)

    assert value(text, "eoslog_up") == 1
    assert value(text, "eoslog_consumer_lag", group=group, topic="t", partition="0") == 0


def test_the_age_of_the_checkpoint_is_that_of_the_newest_one(store: Store, world: World) -> None:
    assert value(exposition(store), "eoslog_checkpoint_age_seconds") is None

    store.log.checkpoint()
    world.pass_time(5_000)

    assert value(exposition(store), "eoslog_checkpoint_age_seconds") == 5


def test_a_store_that_does_not_answer_is_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(store, "metrics", fail)

    text = exposition(store)

    assert value(text, "eoslog_up") == 0
    assert value(text, "eoslog_requests_total", verb="PUT") == store.requests["PUT"]


INTERVALS_MS = {step.name: 60_000 for step in STEPS}


def test_a_coordinator_is_ready_while_the_last_run_of_each_step_succeeded(store: Store) -> None:
    port, observe = serve(store, "127.0.0.1", 0, INTERVALS_MS)
    assert fetch(port, "/readyz")[0] == 503
    assert fetch(port, "/livez")[0] == 200

    Coordinator(store).run_once(report=observe)
    assert fetch(port, "/readyz")[0] == 200
    status, text = fetch(port, "/metrics")
    assert status == 200
    assert value(text, "eoslog_coordinator_steps_total", step="vacuum", outcome="succeeded") == 1

    observe(StepReport("vacuum", 0, error=EosLogError("failed")))
    assert fetch(port, "/readyz")[0] == 503
    observe(StepReport("publish", 0))
    assert fetch(port, "/readyz")[0] == 503
    assert fetch(port, "/livez")[0] == 200
    assert value(fetch(port, "/metrics")[1], "eoslog_coordinator_steps_total", step="vacuum", outcome="failed") == 1
    observe(StepReport("vacuum", 0))
    assert fetch(port, "/readyz")[0] == 200
    assert fetch(port, "/elsewhere")[0] == 404


def test_readiness_shows_the_last_result_of_each_step(store: Store, world: World) -> None:
    port, observe = serve(store, "127.0.0.1", 0, {"vacuum": 1, "publish": 1, "delete-old-slots": 1})
    observe(StepReport("vacuum", 0, error=CorruptRecord("t/0/index is damaged")))
    world.pass_time(5_000)
    observe(StepReport("publish", 0, error=KeyError("a value")))

    assert fetch(port, "/readyz") == (
        503,
        "not ready: the last run of vacuum, publish failed\n"
        f"vacuum: failed 5 s ago: {CorruptRecord('t/0/index is damaged')}\n"
        "publish: failed 0 s ago: KeyError\n"
        "delete-old-slots: has not run yet\n",
    )

    observe(StepReport("publish", 0))
    observe(StepReport("vacuum", 0))
    status, text = fetch(port, "/readyz")
    assert (status, text.splitlines()[0]) == (200, "ready")
    assert "publish: succeeded 0 s ago" in text
    assert "delete-old-slots: has not run yet" in text


def test_the_time_since_the_last_success_of_a_step_grows_while_it_fails(store: Store, world: World) -> None:
    metrics = CoordinatorMetrics(store, {"vacuum": 3_600_000, "publish": 10_000})

    def found(name: str) -> dict[str, float]:
        return {
            sample.labels["step"]: sample.value
            for family in metrics.collect()
            for sample in family.samples
            if sample.name == f"eoslog_coordinator_{name}"
        }

    assert found("step_interval_seconds") == {"vacuum": 3_600, "publish": 10}
    world.pass_time(7_000)
    metrics.observe(StepReport("publish", 0, duration_ms=2_000))
    metrics.observe(StepReport("vacuum", 0, error=EosLogError("failed")))
    world.pass_time(3_000)

    assert found("step_seconds_since_success") == {"vacuum": 10, "publish": 3}
    assert found("step_failing") == {"vacuum": 1, "publish": 0}
    assert found("step_seconds_sum") == {"vacuum": 0, "publish": 2}
    metrics.observe(StepReport("vacuum", 0))
    assert found("step_seconds_since_success") == {"vacuum": 0, "publish": 3}
    assert found("step_failing") == {"vacuum": 0, "publish": 0}


def test_the_indexes_that_the_last_vacuum_could_not_read_are_counted(store: Store) -> None:
    metrics = CoordinatorMetrics(store, {"vacuum": 1})

    def unreadable() -> list[float]:
        return [
            sample.value
            for family in metrics.collect()
            for sample in family.samples
            if sample.name == "eoslog_unreadable_indexes"
        ]

    assert unreadable() == []
    metrics.observe(StepReport("vacuum", 0, {"unreadable_indexes": ["t/0/index"]}))
    assert unreadable() == [1]
    metrics.observe(StepReport("vacuum", 0, error=EosLogError("failed")))
    assert unreadable() == [1]
    metrics.observe(StepReport("vacuum", 0))
    assert unreadable() == [0]


def test_a_client_that_sends_nothing_is_hung_up_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Handler, "timeout", 0.1)
    port, _ = serve(store, "127.0.0.1", 0, INTERVALS_MS)
    before = threading.active_count()

    with (
        socket.create_connection(("127.0.0.1", port), timeout=LONGEST_WAIT_S) as silent,
        socket.create_connection(("127.0.0.1", port), timeout=LONGEST_WAIT_S) as half,
    ):
        half.sendall(b"GET /livez HT")
        assert silent.recv(1) == b""
        assert half.recv(1) == b""

    while threading.active_count() > before:
        threading.Event().wait(0.001)
    assert fetch(port, "/livez")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_client_has_time_to_send_its_request() -> None:
    assert _Handler.timeout >= 1


def test_a_port_that_is_taken_is_an_error(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(store, "127.0.0.1", taken.getsockname()[1], INTERVALS_MS)


def families(store: Store) -> set[str]:
    """The names of all metrics that a coordinator or a gateway shows."""
    coordinator = CoordinatorMetrics(store, INTERVALS_MS)
    coordinator.observe(StepReport("vacuum", 0))
    return {family.name for family in text_string_to_metric_families(exposition(store))} | {
        family.name for each in (coordinator, asyncio.run(gateway_collector(store))) for family in each.collect()
    }


async def gateway_collector(store: Store) -> GatewayCollector:
    """The metrics of a gateway that has not begun to serve."""
    gateway = Gateway(store, GatewayConfig(linger_ms=0), Address("127.0.0.1", 9092))
    return GatewayCollector(store, gateway, GatewayHealth(store, gateway))


def asked(texts: list[str]) -> set[str]:
    """The metrics in queries, without the suffixes of counters and summaries."""
    return {
        re.sub(r"_(total|sum|count|bucket)$", "", name) for text in texts for name in re.findall(r"eoslog_\w+", text)
    }


def test_alert_rules_ask_for_metrics_that_exist(store: Store) -> None:
    store.log.checkpoint()
    rules = yaml.safe_load((DEPLOYED / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]

    assert len(rules) > 5
    assert asked([rule["expr"] for rule in rules]) <= families(store)
    assert any("histogram_quantile(0.99" in rule["expr"] and "verb" in rule["expr"] for rule in rules)
    assert all({"summary", "action"} <= set(rule["annotations"]) for rule in rules if "alert" in rule)


def test_the_dashboard_asks_for_metrics_that_exist(store: Store) -> None:
    store.log.checkpoint()
    dashboard = json.loads((DEPLOYED / "dashboard.json").read_text(encoding="utf-8"))

    panels = dashboard["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) > 10
    assert any("histogram_quantile(0.99" in query and "verb" in query for query in queries)
    assert asked([*queries, *(each["query"] for each in dashboard["templating"]["list"])]) <= families(store)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all('store=~"$store"' in selector for query in queries for selector in re.findall(r"{(.*?)}", query))


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_two_coordinators_of_a_store_count_once(name: str) -> None:
    """Each of them shows the whole state of the store. So a query takes the greatest or the smallest value."""
    of_the_state = [name for name, *_ in _GAUGES.values()]
    of_the_state += ["up", "open_transactions", "consumer_lag", "last_stable_offset_lag", "publication_lag_seconds"]
    of_the_state += ["end_offset", "group_members", "topic_bytes", "transactions_ended_total", "inits_total"]
    of_the_state += ["rows_in_total", "bytes_in_total"]
    lines = (DEPLOYED / name).read_text(encoding="utf-8").splitlines()
    queries = [line for line in lines if re.match(r' *"?expr"?: ', line) and "eoslog_up == 0" not in line]

    asked = [
        (before, metric)
        for metric in of_the_state
        for query in queries
        for before in re.findall(rf"(.*)(?<!:)\beoslog_{metric}\b", query)
    ]
    assert len(asked) >= 4
    assert [
        each for each in asked if not re.search(r"(max|min) by \(store[^)]*\) \(((rate|increase)\()?$", each[0])
    ] == []


@pytest.mark.parametrize("name", ["Containerfile", "eoslog-coordinator.service", "kubernetes.yaml"])
def test_deployments_start_the_coordinator_with_options_that_exist(name: str) -> None:
    from eoslog.cli.store_commands import coordinator

    text = (DEPLOYED / Path(name)).read_text(encoding="utf-8")

    options = set(re.findall(r"--metrics-[a-z]+", text))
    known = {option for parameter in coordinator.params for option in parameter.opts}
    assert options
    assert options <= known
