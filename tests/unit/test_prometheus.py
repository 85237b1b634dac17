"""Metrics for Prometheus are those of ``Store.metrics``, and what is deployed asks for metrics that exist."""

from __future__ import annotations

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
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from eoslog import Coordinator
from eoslog.errors import EosLogError, StoreUnavailable
from eoslog.maintenance.coordinator import StepReport
from eoslog.prometheus import CoordinatorMetrics, _Handler, exposition, serve
from eoslog.state.names import TopicPartition
from eoslog.storage.request_times import RequestTimes
from eoslog.store import Store
from tests.pages import REPOSITORY
from tests.unit.support.held import LONGEST_WAIT_S
from tests.unit.support.transactions import begun
from tests.unit.support.world import World

DEPLOYED = REPOSITORY / "conf/deploy"


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The values by name and labels, as Prometheus' own client reads them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
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
    store.admin.alter_consumer_group_offsets("g", {TopicPartition("t", 0): 0})
    world.pass_time(20_000)

    text = exposition(store)

    assert value(text, "eoslog_up") == 1
    assert value(text, "eoslog_longest_open_transaction_seconds") == 20
    assert value(text, "eoslog_open_transactions", older_than_seconds="10") == 1
    assert value(text, "eoslog_open_transactions", older_than_seconds="60") == 0
    assert value(text, "eoslog_transactions", state="ONGOING") == 1
    assert value(text, "eoslog_last_stable_offset_lag", topic="t", partition="0") == 2
    assert value(text, "eoslog_consumer_lag", group="g", topic="t", partition="0") == 2
    assert value(text, "eoslog_requests_total", verb="PUT") == store.requests["PUT"]


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


def test_a_coordinator_is_ready_as_long_as_its_last_step_succeeded(store: Store) -> None:
    port, observe = serve(store, "127.0.0.1", 0)
    assert fetch(port, "/readyz")[0] == 503
    assert fetch(port, "/livez")[0] == 200

    Coordinator(store).run_once(report=observe)
    assert fetch(port, "/readyz")[0] == 200
    status, text = fetch(port, "/metrics")
    assert status == 200
    assert value(text, "eoslog_coordinator_steps_total", step="vacuum", outcome="succeeded") == 1

    observe(StepReport("vacuum", 0, error=EosLogError("failed")))
    assert fetch(port, "/readyz")[0] == 503
    assert fetch(port, "/livez")[0] == 200
    assert value(fetch(port, "/metrics")[1], "eoslog_coordinator_steps_total", step="vacuum", outcome="failed") == 1
    assert fetch(port, "/elsewhere")[0] == 404


def test_a_client_that_sends_nothing_is_hung_up_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Handler, "timeout", 0.1)
    port, _ = serve(store, "127.0.0.1", 0)
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
        serve(store, "127.0.0.1", taken.getsockname()[1])


def families(store: Store) -> set[str]:
    """The names of all samples that a coordinator shows."""
    registry = CollectorRegistry()
    CoordinatorMetrics(registry).observe(StepReport("vacuum", 0))
    return {family.name for family in text_string_to_metric_families(exposition(store))} | {
        family.name for family in registry.collect()
    }


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
    assert all({"summary", "action"} <= set(rule["annotations"]) for rule in rules)


def test_the_dashboard_asks_for_metrics_that_exist(store: Store) -> None:
    store.log.checkpoint()
    dashboard = json.loads((DEPLOYED / "dashboard.json").read_text(encoding="utf-8"))

    panels = dashboard["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) > 10
    assert any("histogram_quantile(0.99" in query and "verb" in query for query in queries)
    assert asked([*queries, *(each["query"] for each in dashboard["templating"]["list"])]) <= families(store)
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", ["Containerfile", "eoslog-coordinator.service", "kubernetes.yaml"])
def test_deployments_start_the_coordinator_with_options_that_exist(name: str) -> None:
    from eoslog.cli.store_commands import coordinator

    text = (DEPLOYED / Path(name)).read_text(encoding="utf-8")

    options = set(re.findall(r"--metrics-[a-z]+", text))
    known = {option for parameter in coordinator.params for option in parameter.opts}
    assert options
    assert options <= known
