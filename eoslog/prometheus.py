"""Metrics for Prometheus: of a store, of this process's requests and appends, and of a coordinator.

The module needs prometheus-client (the extra ``prometheus``). As Prometheus recommends, durations are in seconds and
sizes in bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest, make_wsgi_app
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from eoslog.errors import EosLogError
from eoslog.maintenance.coordinator import StepReport
from eoslog.session.metrics import StoreMetrics
from eoslog.storage.request_times import BOUNDS_NS, RequestTimes
from eoslog.store import Store

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


class StoreCollector(Collector):
    """The metrics of one store, read when Prometheus scrapes. Register it in the registry of any process.

    A scrape sends the requests of ``Store.metrics``. If the store does not answer, ``eoslog_up`` is 0, and only the
    counts of this process follow.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checkpoint: tuple[str, int] | None = None
        """The newest known checkpoint: its path, and its time by the store's clock (ms)."""

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the registration sends no request."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the store, and yield its metrics."""
        try:
            found = self._store.metrics()
            checkpoint_time_ms = self._checkpoint_time_ms()
            now_ms = self._store.now_ms()
        except EosLogError as error:
            _logger.warning("%s: no metrics: %s", self._store.url, error)
            yield GaugeMetricFamily("eoslog_up", _UP, value=0)
        else:
            yield GaugeMetricFamily("eoslog_up", _UP, value=1)
            yield from _of_store(found)
            if checkpoint_time_ms is not None:
                age_s = max(0, now_ms - checkpoint_time_ms) / _MS
                yield GaugeMetricFamily("eoslog_checkpoint_age_seconds", "The age of the newest checkpoint.", age_s)
        yield from _of_process(self._store)

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


def _of_store(found: StoreMetrics) -> Iterator[Metric]:
    for field, (name, text, unit) in _GAUGES.items():
        yield GaugeMetricFamily(f"eoslog_{name}", text, value=getattr(found, field) / unit)
    yield _labeled("transactions", "Transactional ids by state.", ["state"], _keyed(found.transactions_by_state))
    yield _labeled(
        "open_transactions",
        "Open transactions that are at least this old.",
        ["older_than_seconds"],
        {(str(age_ms // _MS),): count for age_ms, count in found.open_transactions_by_age_ms.items()},
    )
    yield _labeled(
        "last_stable_offset_lag",
        "Offsets that open transactions hold back: high watermark minus last stable offset.",
        ["topic", "partition"],
        {(partition.topic, str(partition.partition)): lag for partition, lag in found.last_stable_offset_lag.items()},
    )
    yield _labeled(
        "consumer_lag",
        "Offsets between a group's committed offset and the high watermark.",
        ["group", "topic", "partition"],
        {
            (group, partition.topic, str(partition.partition)): lag
            for group, lags in found.consumer_lag.items()
            for partition, lag in lags.items()
        },
    )
    yield _labeled(
        "publication_lag_seconds",
        "The age of the newest version of a Delta table that lacks committed rows; 0 if it lacks none.",
        ["topic"],
        {(topic,): lag_ms / _MS for topic, lag_ms in found.publication_lag_ms.items()},
    )


def _of_process(store: Store) -> Iterator[Metric]:
    yield _labeled("requests", "Requests to the object store.", ["verb"], _keyed(store.requests), is_count=True)
    yield _histograms(store.object_store.request_times)
    counts = store.log.appender.counts.as_dict()
    waited_ms = counts.pop("waited_ms")
    yield _labeled("appends", "Appends to the log, by kind.", ["kind"], _keyed(counts), is_count=True)
    yield CounterMetricFamily("eoslog_append_wait_seconds", "Waiting for other processes' appends.", waited_ms / _MS)
    yield _labeled(
        "producer_call_seconds",
        "The time spent in calls of producers, by Kafka's name of the metric.",
        ["call"],
        {(name.removesuffix("-time-ns-total"),): ns / _NS for name, ns in store.call_times.totals().items()},
        is_count=True,
    )


def _histograms(times: RequestTimes) -> Metric:
    family = HistogramMetricFamily(
        "eoslog_request_seconds", "The time until the object store's answers.", labels=["verb"]
    )
    bounds = [*(str(bound_ns / _NS) for bound_ns in BOUNDS_NS), "+Inf"]
    for verb, found in times.by_verb().items():
        family.add_metric([verb], list(zip(bounds, accumulate(found.counts), strict=True)), found.total_ns / _NS)
    return family


def _keyed(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in values.items()}


def _labeled(
    name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float], *, is_count: bool = False
) -> Metric:
    kind = CounterMetricFamily if is_count else GaugeMetricFamily
    family = kind(f"eoslog_{name}", text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


class CoordinatorMetrics:
    """The runs of a coordinator's steps. Give ``observe`` to ``Coordinator.run`` as its ``report``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "eoslog_coordinator_steps", "Runs of a step, by outcome.", ["step", "outcome"], registry=registry
        )
        self._seconds = Summary(
            "eoslog_coordinator_step_seconds", "The duration of the runs of a step.", ["step"], registry=registry
        )
        self._last_success = Gauge(
            "eoslog_coordinator_last_success_timestamp_seconds",
            "The end of the last run of a step that succeeded, by the store's clock.",
            ["step"],
            registry=registry,
        )
        self.is_ready = False
        """True if the last step succeeded, so the store answers."""

    def observe(self, report: StepReport) -> None:
        """Count a run of a step."""
        self.is_ready = report.error is None
        self._runs.labels(report.step, "succeeded" if self.is_ready else "failed").inc()
        self._seconds.labels(report.step).observe(report.duration_ms / _MS)
        if self.is_ready:
            self._last_success.labels(report.step).set(report.time_ms / _MS)


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


def serve(store: Store, address: str, port: int) -> tuple[int, Callable[[StepReport], None]]:
    """Serve the metrics of a store and of its coordinator over HTTP, in a thread of this process.

    ``/metrics`` has both. ``/livez`` answers 200 while the process runs. ``/readyz`` answers 200 if the last step of
    the coordinator succeeded, else 503. A step may run for a long time, so its duration does not count.

    Args:
        port: 0 takes a free one.

    Returns:
        The port, and a function that counts the runs of steps: the ``report`` of ``Coordinator.run``.

    Raises:
        OSError: the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(StoreCollector(store))
    coordinator = CoordinatorMetrics(registry)
    metrics: Any = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            case "/livez":
                status, body = "200 OK", b"alive\n"
            case "/readyz" if coordinator.is_ready:
                status, body = "200 OK", b"ready\n"
            case "/readyz":
                status, body = "503 Service Unavailable", b"the last step failed, or none has run yet\n"
            case _:
                status, body = "404 Not Found", b"there are /metrics, /livez and /readyz\n"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [body]

    server = make_server(address, port, application, server_class=_Server, handler_class=_Handler)
    Thread(target=server.serve_forever, name="eoslog-metrics", daemon=True).start()
    return server.server_port, coordinator.observe
