"""Metrics for Prometheus: of a store, of this process's requests and appends, of a coordinator, and of a gateway.

The module needs prometheus-client (the extra ``prometheus``). As Prometheus recommends, durations are in seconds and
sizes in bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from eoslog.errors import EosLogError
from eoslog.gateway.gateway_counts import GatewayMetrics
from eoslog.maintenance.coordinator import StepReport
from eoslog.session.metrics import StoreMetrics
from eoslog.state.names import TopicPartition
from eoslog.storage.object_store import BOUNDS_NS, Histogram
from eoslog.store import Store

if TYPE_CHECKING:
    # They need the packages of the extra ``gateway``.
    from eoslog.gateway.gateway_health import GatewayHealth
    from eoslog.gateway.server import Gateway

_logger = logging.getLogger(__name__)
_MS = 1_000
_NS = 1_000_000_000

_GAUGES: Mapping[str, tuple[str, str, float]] = {
    "slot": ("log_slot", "The newest slot of the log.", 1),
    "slots_since_checkpoint": ("slots_since_checkpoint", "Slots that a process may read when it opens the log.", 1),
    "partitions_with_late_transactions_count": (
        "partitions_with_late_transactions",
        "Partitions whose readers a late transaction holds back.",
        1,
    ),
    "producer_id_count": ("producer_ids", "Producers that partitions know, counted in each partition.", 1),
    "prepared_transactions": ("prepared_transactions", "Transactions that wait for their outcome (KIP-939).", 1),
    "longest_open_transaction_ms": (
        "longest_open_transaction_seconds",
        "The age of the oldest open transaction; 0 if none is open.",
        _MS,
    ),
}
"""The metrics without labels, by field of ``StoreMetrics``: name, help, and the divisor that converts the unit."""


class _Families:
    """Makes metrics whose first label is the store, so that one Prometheus may have many stores."""

    def __init__(self, store: Store) -> None:
        self._url = store.url

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """Return a metric with one value."""
        return self.gauges(name, text, [], {(): value})

    def gauges(self, name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]) -> Metric:
        """Return a metric with a value for each combination of further labels."""
        return self._filled(GaugeMetricFamily(f"eoslog_{name}", text, labels=["store", *labels]), values)

    def counts(self, name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]) -> Metric:
        """Return a metric of values that only grow while the process runs."""
        return self._filled(CounterMetricFamily(f"eoslog_{name}", text, labels=["store", *labels]), values)

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[tuple[str, ...], float]
    ) -> Metric:
        for label_values, value in values.items():
            family.add_metric([self._url, *label_values], value)
        return family

    def histograms(self, name: str, text: str, label: str, times: Mapping[str, Histogram]) -> Metric:
        """Return a metric with a histogram of durations for each value of a label."""
        family = HistogramMetricFamily(f"eoslog_{name}", text, labels=["store", label])
        bounds = [*(str(bound_ns / _NS) for bound_ns in BOUNDS_NS), "+Inf"]
        for label_value, found in times.items():
            buckets = list(zip(bounds, accumulate(found.counts), strict=True))
            family.add_metric([self._url, label_value], buckets, found.total_ns / _NS)
        return family

    def summaries(self, name: str, text: str, label: str, values: Mapping[str, tuple[int, float]]) -> Metric:
        """Return a metric with a number of observations and their sum for each value of a label."""
        family = SummaryMetricFamily(f"eoslog_{name}", text, labels=["store", label])
        for label_value, (number, total) in values.items():
            family.add_metric([self._url, label_value], number, total)
        return family


class StoreCollector(Collector):
    """The metrics of one store, read when Prometheus scrapes. Register it in the registry of any process.

    A scrape sends the requests of ``Store.metrics``. If the store does not answer, ``eoslog_up`` is 0, and only the
    counts of this process follow.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._families = _Families(store)
        self._checkpoint: tuple[str, int] | None = None
        """The newest known checkpoint: its path, and its time by the store's clock (ms)."""

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the registration sends no request."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the store, and yield its metrics."""
        families = self._families
        try:
            found = self._store.metrics()
            checkpoint_time_ms = self._checkpoint_time_ms()
            now_ms = self._store.now_ms()
        except EosLogError as error:
            _logger.warning("%s: no metrics: %s", self._store.url, error)
            yield families.gauge("up", _UP, 0)
        else:
            yield families.gauge("up", _UP, 1)
            yield from _of_store(families, found)
            if checkpoint_time_ms is not None:
                age_s = max(0, now_ms - checkpoint_time_ms) / _MS
                yield families.gauge("checkpoint_age_seconds", "The age of the newest checkpoint.", age_s)
        yield from _of_process(families, self._store)

    def _checkpoint_time_ms(self) -> int | None:
        """Return the time of the newest checkpoint; None if there is none. Each checkpoint is looked up once."""
        reference = self._store.log.replica.checkpoint
        if reference is None:
            return None
        if self._checkpoint is None or self._checkpoint[0] != reference.path:
            for found in self._store.object_store.list(reference.path, limit=1):
                self._checkpoint = (reference.path, found.last_modified_ms)
        return None if self._checkpoint is None else self._checkpoint[1]


_UP = "1 if the store answered this scrape."


def _of_store(families: _Families, found: StoreMetrics) -> Iterator[Metric]:
    for field, (name, text, unit) in _GAUGES.items():
        yield families.gauge(name, text, getattr(found, field) / unit)
    yield families.gauges("transactions", "Transactional ids by state.", ["state"], _keyed(found.transactions_by_state))
    yield families.gauges(
        "open_transactions",
        "Open transactions that are at least this old.",
        ["older_than_seconds"],
        {(str(age_ms // _MS),): count for age_ms, count in found.open_transactions_by_age_ms.items()},
    )
    yield families.gauges(
        "last_stable_offset_lag",
        "Offsets that open transactions hold back: high watermark minus last stable offset.",
        ["topic", "partition"],
        _parts(found.last_stable_offset_lag),
    )
    yield families.gauges(
        "consumer_lag",
        "Offsets between a group's committed offset and the last stable offset.",
        ["group", "topic", "partition"],
        {
            (group, partition.topic, str(partition.partition)): lag
            for group, lags in found.consumer_lag.items()
            for partition, lag in lags.items()
        },
    )
    yield families.gauges(
        "end_offset", "The offset of the next row.", ["topic", "partition"], _parts(found.end_offsets)
    )
    yield families.gauges("group_members", "Members of consumer groups.", ["group"], _keyed(found.group_members))
    yield families.gauges(
        "topic_bytes", "The size of the data files that the log names.", ["topic"], _keyed(found.topic_bytes)
    )
    yield families.counts(
        "transactions_ended",
        "Transactions of all processes that ended since this process opened the log.",
        ["outcome", "reason"],
        {(outcome, why): count for outcome, by in found.transactions_ended.items() for why, count in by.items()},
    )
    yield families.counts(
        "inits", "Producer epochs given to all processes since this process opened the log.", [], {(): found.inits}
    )
    yield families.counts(
        "rows_in",
        "Rows that all processes appended since this process opened the log.",
        ["topic"],
        _keyed(found.rows_in),
    )
    yield families.counts("bytes_in", "The size of the files of these rows.", ["topic"], _keyed(found.bytes_in))
    yield families.gauges(
        "publication_lag_seconds",
        "The age of the newest version of a published table that lacks committed rows; 0 if it lacks none.",
        ["topic"],
        {(topic,): lag_ms / _MS for topic, lag_ms in found.publication_lag_ms.items()},
    )


def _of_process(families: _Families, store: Store) -> Iterator[Metric]:
    yield families.counts("requests", "Requests to the object store.", ["verb"], _keyed(store.requests))
    text = "The time until the object store's answers."
    yield families.histograms("request_seconds", text, "verb", store.object_store.request_times.by_verb())
    counts = store.log.appender.counts.as_dict()
    waited_ms = counts.pop("waited_ms")
    yield families.counts("appends", "Appends to the log, by kind.", ["kind"], _keyed(counts))
    yield families.counts("append_wait_seconds", "Waiting for other processes' appends.", [], {(): waited_ms / _MS})
    calls = store.call_counts
    yield families.counts(
        "append_errors", "Appends and batches of this process that failed.", ["error"], _keyed(calls.append_errors)
    )
    yield families.counts(
        "duplicate_batches", "Batches of this process that the log had already.", [], {(): calls.duplicate_batches}
    )
    yield families.counts("rows_out", "Rows that this process read.", ["topic"], _keyed(calls.rows_out))
    yield families.counts("bytes_out", "Their size in memory.", ["topic"], _keyed(calls.bytes_out))
    yield families.counts(
        "producer_call_seconds",
        "The time spent in calls of producers, by Kafka's name of the metric.",
        ["call"],
        {(name.removesuffix("-time-ns-total"),): ns / _NS for name, ns in store.call_times.totals().items()},
    )


def _parts(values: Mapping[TopicPartition, float]) -> dict[tuple[str, ...], float]:
    return {(partition.topic, str(partition.partition)): value for partition, value in values.items()}


def _keyed(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in values.items()}


@dataclass(slots=True)
class _StepRuns:
    interval_ms: int
    last_success_ms: int
    """The end of the last run that succeeded, by the monotonic clock. The start of the coordinator if none did."""
    succeeded: int = 0
    failed: int = 0
    duration_ms: int = 0
    end_ms: int | None = None
    """The end of the last run, by the monotonic clock; None if none has run yet."""
    error: Exception | None = None
    """The error of the last run."""


class Health(Protocol):
    """The answers of a process to probes."""

    @property
    def dead(self) -> str:
        """The reason why the process should be started again; empty if it lives."""

    @property
    def unready(self) -> str:
        """The reason why the process is not ready; empty if it is."""

    def last_results(self) -> str:
        """Return further lines for ``/readyz``."""


class CoordinatorMetrics(Collector):
    """The runs of a coordinator's steps. Give ``observe`` to ``Coordinator.run`` as its ``report``."""

    def __init__(self, store: Store, intervals_ms: Mapping[str, int]) -> None:
        """
        Args:
            intervals_ms: the interval of each step that the coordinator runs, by name (ms).
        """
        self._families = _Families(store)
        self._monotonic_ms = store.environment.monotonic_ms
        started_ms = self._monotonic_ms()
        self._steps = {name: _StepRuns(interval_ms, started_ms) for name, interval_ms in intervals_ms.items()}
        self._unreadable_indexes: int | None = None

    def observe(self, report: StepReport) -> None:
        """Count a run of a step."""
        runs = self._steps[report.step]
        runs.end_ms, runs.error = self._monotonic_ms(), report.error
        runs.duration_ms += report.duration_ms
        if report.error is not None:
            runs.failed += 1
            return
        runs.succeeded += 1
        runs.last_success_ms = runs.end_ms
        if report.step == "vacuum":
            self._unreadable_indexes = len(report.did.get("unreadable_indexes", ()))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the steps."""
        now_ms = self._monotonic_ms()
        yield self._families.counts(
            "coordinator_steps",
            "Runs of a step, by outcome.",
            ["step", "outcome"],
            {
                (name, outcome): runs
                for name, step in self._steps.items()
                for outcome, runs in (("succeeded", step.succeeded), ("failed", step.failed))
            },
        )
        yield self._families.summaries(
            "coordinator_step_seconds",
            "The duration of the runs of a step.",
            "step",
            {name: (step.succeeded + step.failed, step.duration_ms / _MS) for name, step in self._steps.items()},
        )
        yield self._by_step("interval_seconds", "The interval of a step.", lambda step: step.interval_ms / _MS)
        yield self._by_step(
            "seconds_since_success",
            "The time since the last run of a step that succeeded; since the start of the coordinator if none did.",
            lambda step: (now_ms - step.last_success_ms) / _MS,
        )
        yield self._by_step("failing", "1 if the last run of a step failed.", lambda step: step.error is not None)
        if self._unreadable_indexes is not None:
            yield self._families.gauge(
                "unreadable_indexes",
                "Segment indexes that the last vacuum could not read. It kept all files of their partitions.",
                self._unreadable_indexes,
            )

    def _by_step(self, name: str, text: str, value: Callable[[_StepRuns], float]) -> Metric:
        values = _keyed({step: value(runs) for step, runs in self._steps.items()})
        return self._families.gauges(f"coordinator_step_{name}", text, ["step"], values)

    @property
    def dead(self) -> str:
        """Empty: a coordinator that answers lives."""
        return ""

    @property
    def unready(self) -> str:
        """The reason why the coordinator is not ready; empty if each step that has run succeeded the last time."""
        if all(step.end_ms is None for step in self._steps.values()):
            return "no step has run yet"
        failed = [name for name, step in self._steps.items() if step.error is not None]
        return f"the last run of {', '.join(failed)} failed" if failed else ""

    def last_results(self) -> str:
        """Return a line for each step with the result of its last run."""
        now_ms = self._monotonic_ms()
        return "".join(f"{name}: {_last_result(step, now_ms)}\n" for name, step in self._steps.items())


def _last_result(step: _StepRuns, now_ms: int) -> str:
    if step.end_ms is None:
        return "has not run yet"
    ago = f"{(now_ms - step.end_ms) // _MS} s ago"
    if step.error is None:
        return f"succeeded {ago}"
    # Anybody who can connect reads this. Only the errors of eoslog are known to name no row and no credential.
    reason = str(step.error) if isinstance(step.error, EosLogError) else type(step.error).__name__
    return f"failed {ago}: {reason}"


class GatewayCollector(Collector):
    """The metrics of a gateway, and of the requests and appends of its process."""

    def __init__(self, store: Store, gateway: Gateway, health: GatewayHealth) -> None:
        self._store = store
        self._families = _Families(store)
        self._gateway = gateway
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. They do not have the state of the store, so that many gateways cost little."""
        families = self._families
        yield families.gauge("up", _UP, not self._health.silence)
        yield families.gauge("gateway_ready", "1 if clients should connect.", not self._health.unready)
        yield from _of_gateway(families, self._gateway.metrics())
        yield from _of_process(families, self._store)


def _of_gateway(families: _Families, found: GatewayMetrics) -> Iterator[Metric]:
    counts = found.counts
    yield families.counts(
        "gateway_requests",
        "Requests of clients, by type and by the first error in the answer.",
        ["api", "outcome"],
        counts.requests.copy(),
    )
    text = "The time from the last byte of a request to its answer. That of a fetch includes its wait for rows."
    yield families.histograms(
        "gateway_request_seconds",
        text,
        "api",
        {name: times for name, times in counts.request_times.by_verb().items() if any(times.counts)},
    )
    text = "The time that a produced batch waits, and the times of the upload and the append of a record's batches."
    yield families.histograms("gateway_batch_seconds", text, "step", counts.batch_times.by_verb())
    for name, text, count in (
        ("bytes_in", "The size of requests of clients.", counts.bytes_in),
        ("bytes_out", "The size of answers.", counts.bytes_out),
        ("rows_in", "Rows that clients produced.", counts.rows_in),
        ("batches_in", "Batches that clients produced.", counts.batches_in),
        ("rows_out", "Rows that clients fetched.", counts.rows_out),
        ("batches_out", "Batches that clients fetched.", counts.batches_out),
        ("appends", "Records of the log that the gateway appended for produced batches.", counts.appends),
        ("refused_connections", "Connections that the gateway closed because it had too many.", counts.refused),
        ("strangers", "Connections that ended before their client was authenticated.", counts.strangers),
        ("malformed_requests", "Connections that the gateway closed because of unreadable bytes.", counts.malformed),
        ("rebalances", "Generations of groups that the gateway began.", found.rebalances),
        ("aborted_transactions", "Overdue transactions that the process aborted.", found.aborted_transactions),
    ):
        yield families.counts(f"gateway_{name}", text, [], {(): count})
    lookups = {"hit": found.cache_hits, "miss": found.cache_misses}
    yield families.counts("gateway_cache_lookups", "Lookups of batches for fetches.", ["outcome"], _keyed(lookups))
    for name, text, value in (
        ("connections", "Connections of clients.", found.connections),
        (
            "connections_limit",
            "The number of connections from which on the gateway refuses more.",
            found.most_connections,
        ),
        ("waiting_batches", "Produced batches that are not in the log yet.", found.waiting_batches),
        ("groups", "Groups that the gateway coordinates.", found.groups),
        ("group_members", "Members of these groups.", found.group_members),
    ):
        yield families.gauge(f"gateway_{name}", text, value)
    memory = found.memory
    used, limits = ({use: both[index] for use, both in memory.items()} for index in (0, 1))
    yield families.gauges("gateway_memory_bytes", "The memory that is in use.", ["use"], _keyed(used))
    yield families.gauges("gateway_memory_limit_bytes", "The limits of the memory.", ["use"], _keyed(limits))


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 10
    """How long a client may send nothing, or take nothing (s). Then its connection is closed, and its thread ends."""

    def handle(self) -> None:
        try:
            super().handle()
        except TimeoutError:
            self.log_message("%s sent no request in time", self.address_string())

    def log_message(self, format: str, *args: Any) -> None:
        _logger.debug(format, *args)


def exposition(store: Store) -> str:
    """Return the metrics of a store in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(store))
    return generate_latest(registry).decode()


def serve(
    store: Store, address: str, port: int, intervals_ms: Mapping[str, int]
) -> tuple[int, Callable[[StepReport], None]]:
    """Serve the metrics of a store and of its coordinator over HTTP, in a thread of this process.

    ``/metrics`` has both. ``/livez`` answers 200 while the process runs. ``/readyz`` answers 200 if the last run of
    each step that has run succeeded, else 503, with the last result of each step. So a step that fails each time shows,
    although the others go on. A step may run for a long time, so its duration does not count.

    Args:
        port: 0 takes a free one.
        intervals_ms: the interval of each step that the coordinator runs, by name (ms).

    Returns:
        The port, and a function that counts the runs of steps: the ``report`` of ``Coordinator.run``.

    Raises:
        OSError: the port is taken.
    """
    coordinator = CoordinatorMetrics(store, intervals_ms)
    return _serve(address, port, [StoreCollector(store), coordinator], coordinator), coordinator.observe


def serve_gateway(store: Store, address: str, port: int, gateway: Gateway, health: GatewayHealth) -> int:
    """Serve the metrics and the health of a gateway over HTTP, in a thread of this process. Return the port.

    Args:
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    return _serve(address, port, [GatewayCollector(store, gateway, health)], health)


def _serve(address: str, port: int, collectors: Iterable[Collector], health: Health) -> int:
    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    metrics: Any = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            case "/livez":
                status, body = _answer("alive", health.dead)
            case "/readyz":
                status, body = _answer("ready", health.unready)
                body += health.last_results()
            case _:
                status, body = "404 Not Found", "there are /metrics, /livez and /readyz\n"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [body.encode()]

    server = make_server(address, port, application, server_class=_Server, handler_class=_Handler)
    Thread(target=server.serve_forever, name="eoslog-metrics", daemon=True).start()
    return server.server_port


def _answer(state: str, missing: str) -> tuple[str, str]:
    """Return the status and the text of the answer to a probe.

    Args:
        missing: the reason why the process does not have the state; empty if it has it.
    """
    return ("503 Service Unavailable", f"not {state}: {missing}\n") if missing else ("200 OK", f"{state}\n")
