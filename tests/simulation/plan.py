"""What a seed plans before its history begins: who runs, how large things are, and what may go wrong."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, replace

from eoslog.state.sequences import LAST_USABLE_EPOCH
from tests.simulation.append_services import AppendServiceProcess, LogAppendServiceProcess
from tests.simulation.faults import Faults
from tests.simulation.focus import FOCUSES, Focus
from tests.simulation.ledger import Ledger
from tests.simulation.list_append import ListAppend
from tests.simulation.log_services import FastLogWriter, LogMaintenance, LogReader, LogThreads, LogWriter, SlowLogWriter
from tests.simulation.maintenance import Compactor, Daemon, Reader, Vacuum
from tests.simulation.pipelines import Job, Pipeline
from tests.simulation.publishers import Publisher
from tests.simulation.recorder import Recorder
from tests.simulation.recreating import (
    RecreatedIdempotent,
    RecreatedPipeline,
    RecreatedReader,
    RecreatedWriter,
    Recreator,
)
from tests.simulation.service import Service
from tests.simulation.spark_checkpoints import SparkMoved
from tests.simulation.spark_counts import SparkCount
from tests.simulation.spark_jobs import SparkBackfill, SparkForeachBatch
from tests.simulation.spark_latest import SparkLatest
from tests.simulation.spark_shared import SparkSharedBackfill, SparkSharedForeach, SparkSharedStream
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import World
from tests.simulation.writers import (
    FastIdempotentWriter,
    FastTransactionalWriter,
    FastTwoPhaseWriter,
    IdempotentWriter,
    ShortLivedWriter,
    TableWriter,
    TransactionalWriter,
    TwoPhaseWriter,
)

SERVICES = ("clients", "spark", "topics", "mixed", "log", *FOCUSES)
SPARK_EVERY = 10
"""Of mixed seeds, every tenth is one of Spark's, and another one of topics that are deleted and created again."""
THREADS_EVERY = 4
"""Of seeds of a log alone, every fourth has a process of several threads."""
SERVED_EVERY = 4
"""Of seeds of a log alone, every fourth has append services."""
TAIL_BYTES = (0, 4_000)
"""How much of the log's tail a record repeats, on local disk and on S3."""
LONG_STEPS = 1_000
"""From so many steps on, services of all kinds run; a shorter history has a few of them."""

KINDS: dict[str, type[Service]] = {
    "writer": TransactionalWriter,
    "idempotent": IdempotentWriter,
    "table": TableWriter,
    "two-phase": TwoPhaseWriter,
    "pipeline": Pipeline,
    "job": Job,
    "list": ListAppend,
    "daemon": Daemon,
    "reader": Reader,
    "notary": Recorder,
    "log-writer": LogWriter,
    "log-reader": LogReader,
    "log-upkeep": LogMaintenance,
    "log-slow-writer": SlowLogWriter,
    "log-fast-writer": FastLogWriter,
    "log-threads": LogThreads,
    "log-append-service": LogAppendServiceProcess,
    "topic-admin": Recreator,
    "topic-writer": RecreatedWriter,
    "topic-idempotent": RecreatedIdempotent,
    "topic-reader": RecreatedReader,
    "topic-pipeline": RecreatedPipeline,
    "spark-stream": SparkStream,
    "spark-latest": SparkLatest,
    "spark-moved": SparkMoved,
    "spark-count": SparkCount,
    "spark-foreach": SparkForeachBatch,
    "spark-backfill": SparkBackfill,
    "spark-shared-stream": SparkSharedStream,
    "spark-shared-foreach": SparkSharedForeach,
    "spark-shared-backfill": SparkSharedBackfill,
    "focus-vacuum": Vacuum,
    "focus-compactor": Compactor,
    "focus-publisher": Publisher,
    "focus-writer": ShortLivedWriter,
    "fast-append-service": AppendServiceProcess,
    "fast-writer": FastTransactionalWriter,
    "fast-idempotent": FastIdempotentWriter,
    "fast-two-phase": FastTwoPhaseWriter,
}
SPARK_HISTORIES = (
    ("spark-stream0", "writer0"),
    ("spark-stream0", "writer0", "spark-stream0"),
    ("spark-latest0", "writer0", "writer1"),
    ("spark-latest0", "writer0", "spark-latest0"),
    ("spark-moved0", "writer0"),
    ("spark-moved0", "writer0", "spark-moved0"),
    ("spark-count0", "writer0", "daemon0"),
    ("spark-foreach0", "writer0", "spark-foreach0"),
    ("spark-backfill0", "spark-backfill1", "reader0"),
    ("spark-shared-stream0", "spark-shared-stream1", "writer0"),
    ("spark-shared-foreach0", "spark-shared-foreach1", "writer0"),
    ("spark-shared-backfill0", "spark-shared-backfill1", "reader0"),
)
"""A streaming query or batch writes of Spark, what they read, and who may disturb them: histories of their own."""
TOPIC_HISTORIES = (
    ("topic-admin0", "topic-writer0", "topic-reader0"),
    ("topic-admin0", "topic-writer0", "topic-pipeline0"),
    ("topic-admin0", "topic-writer0", "topic-idempotent0", "topic-reader0", "daemon0"),
    ("topic-admin0", "topic-writer0", "topic-pipeline0", "daemon0", "topic-pipeline1"),
    ("topic-admin0", "topic-idempotent0", "topic-pipeline0"),
    ("topic-admin0", "topic-writer0", "topic-reader0", "topic-admin1"),
    ("topic-admin0", "topic-writer0", "topic-reader0", "topic-writer0"),
)
"""A topic that is deleted and created again among its clients: histories of their own, too."""
LOG_HISTORIES = (
    ("log-writer0", "log-writer1"),
    ("log-writer0", "log-writer1", "log-upkeep0"),
    ("log-writer0", "log-writer1", "log-writer2", "log-reader0"),
    ("log-writer0", "log-upkeep0", "log-reader0"),
    ("log-writer0", "log-writer1", "log-upkeep0", "log-upkeep1", "log-reader0"),
)
"""A log without topics, in which names are written: cheap histories of who gets which slot."""
LOG_SERVICE_HISTORIES = (
    ("log-append-service0", "log-fast-writer0", "log-fast-writer1"),
    ("log-append-service0", "log-append-service1", "log-fast-writer0", "log-upkeep0"),
    ("log-append-service0", "log-append-service0", "log-fast-writer0", "log-writer0", "log-reader0"),
    ("log-append-service0", "log-threads0", "log-fast-writer0"),
)
"""The same with append services, which writers find in the log."""
LOG_THREAD_HISTORIES = (
    ("log-threads0", "log-writer0"),
    ("log-threads0", "log-upkeep0", "log-reader0"),
    ("log-threads0", "log-threads1", "log-upkeep0"),
)
"""The same with processes of several threads, whose appends share records."""
_SWARM = tuple(kind for kind in KINDS if not kind.startswith(("spark-", "topic-", "log-", "focus-", "fast-")))
_MOST = {"writer": 3, "idempotent": 2, "pipeline": 2, "list": 2, "daemon": 2, "reader": 2, "notary": 2}
_ALONE = ("table",)
"""Of several, nobody would know whose row of a key is the newest."""
_MAY_HAVE_A_TWIN = ("writer0", "job0", "list0")
"""Two processes under one transactional id, two drivers of one job."""


@dataclass(frozen=True)
class Plan:
    """A history before it happens. The same plan gives the same history."""

    seed: int
    steps: int
    """Requests, answers and sleeps among faults."""
    services: tuple[str, ...]
    """By their names, kind and number; who stands there twice has a twin."""
    faults: Faults
    tail_bytes: int = 0
    date_grain_ms: int = 1
    switches: float = 1.0
    """How often another process goes on than the one that went last."""
    last_epoch: int = LAST_USABLE_EPOCH
    """Of a producer id: a small one has it rolled over within a history."""
    has_queue: bool = False
    """Whether the processes run on one host and queue up before they append."""
    embeds_files: bool = True
    """Whether data files may be in records and shared objects."""
    kept: frozenset[str] | None = field(default=None, repr=False)
    """The only events of chance that happen; None: all."""

    @classmethod
    def of_services(cls, services: str, seed: int, steps: int) -> Plan:
        """What a seed plans if only clients run (``clients``), only Spark's processes (``spark``), only those around a
        topic that is created again (``topics``), now these and now those (``mixed``), those of a log alone (``log``),
        or those of a focus (by its name)."""
        if services in FOCUSES:
            return cls.of_focus(FOCUSES[services], seed, steps)
        if services == "log":
            return cls.of_log(seed, steps)
        if services == "spark" or (services == "mixed" and seed % SPARK_EVERY == SPARK_EVERY - 1):
            return cls.of_spark(seed, steps)
        if services == "topics" or (services == "mixed" and seed % SPARK_EVERY == SPARK_EVERY - 2):
            return cls.of_topics(seed, steps)
        return cls.of(seed, steps)

    @classmethod
    def of_log(cls, seed: int, steps: int) -> Plan:
        """Processes of a log alone among the same faults; more of them oversleep what is deleted meanwhile."""
        planned = cls.of(seed, steps)
        chooser = random.Random(f"log {seed}")
        pause = chooser.choice((0.0, 0.01, 0.05))
        if seed % THREADS_EVERY == THREADS_EVERY - 1:
            services = LOG_THREAD_HISTORIES[seed // THREADS_EVERY % len(LOG_THREAD_HISTORIES)]
            faults = replace(planned.faults, pause=pause, interrupt=chooser.choice((0.0, 0.001, 0.01)))
        elif seed % SERVED_EVERY == SERVED_EVERY - 2:
            services = LOG_SERVICE_HISTORIES[seed // SERVED_EVERY % len(LOG_SERVICE_HISTORIES)]
            faults = replace(planned.faults, pause=pause)
        else:
            services = LOG_HISTORIES[seed % len(LOG_HISTORIES)]
            faults = replace(planned.faults, pause=pause)
        return replace(planned, services=services, faults=faults)

    @classmethod
    def of_focus(cls, focus: Focus, seed: int, steps: int) -> Plan:
        """What a seed plans, with the services and faults of a focus."""
        planned = cls.of(seed, steps)
        faults = replace(planned.faults, **focus.faults)
        return replace(
            planned,
            services=focus.services,
            faults=faults,
            has_queue=focus.has_queue,
            embeds_files=focus.embeds_files,
        )

    @classmethod
    def of_topics(cls, seed: int, steps: int) -> Plan:
        """Processes around a topic that is deleted and created again among the same faults."""
        return replace(cls.of(seed, steps), services=TOPIC_HISTORIES[seed % len(TOPIC_HISTORIES)])

    @classmethod
    def of_spark(cls, seed: int, steps: int) -> Plan:
        """Spark's processes among the same faults, and Spark's own."""
        planned = cls.of(seed, steps)
        return replace(
            planned,
            services=SPARK_HISTORIES[seed % len(SPARK_HISTORIES)],
            faults=planned.faults.with_spark(random.Random(f"spark {seed}")),
        )

    @classmethod
    def of(cls, seed: int, steps: int) -> Plan:
        chooser = random.Random(f"swarm {seed}")
        return cls(
            seed,
            steps,
            faults=Faults.swarm(chooser),
            tail_bytes=chooser.choice(TAIL_BYTES),
            date_grain_ms=chooser.choice((1, 1_000)),
            switches=chooser.choice((1.0, 1.0, 0.5, 0.2)),
            last_epoch=chooser.choice((LAST_USABLE_EPOCH, 2)),
            services=_all_kinds(chooser) if steps >= LONG_STEPS else _a_few(chooser),
        )

    @property
    def of_a_log_alone(self) -> bool:
        return any(name.startswith("log-") for name in self.services)

    def make_services(self, world: World, ledger: Ledger) -> list[Service]:
        """The services, made; a twin is the same one, started twice."""
        made = {name: KINDS[name.rstrip("0123456789")](world, ledger, name) for name in self.services}
        return [made[name] for name in self.services]

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"kept": None if self.kept is None else sorted(self.kept)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        value = json.loads(text)
        kept = value.pop("kept")
        return cls(
            **value
            | {"services": tuple(value["services"]), "faults": Faults(**value["faults"])}
            | {"kept": None if kept is None else frozenset(kept)}
        )


def _all_kinds(chooser: random.Random) -> tuple[str, ...]:
    names = [f"{kind}{number}" for kind in _SWARM for number in range(chooser.randint(1, _MOST.get(kind, 1)))]
    return tuple(names + [name for name in names if name in _MAY_HAVE_A_TWIN and chooser.random() < 0.4])


def _a_few(chooser: random.Random) -> tuple[str, ...]:
    """One to four services, of which one writes."""
    writing = [kind for kind in _SWARM if kind not in ("daemon", "reader", "notary")]
    kinds = [chooser.choice(writing), *(chooser.choice(_SWARM) for _ in range(chooser.randint(0, 3)))]
    numbered = [(kind, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]
    names = [f"{kind}{number}" for kind, number in numbered if number == 0 or kind not in _ALONE]
    if "pipeline0" in names and len(names) < 4:
        names.append("writer0" if "writer0" not in names else "writer1")
    return tuple(names + [name for name in names if name in _MAY_HAVE_A_TWIN and chooser.random() < 0.3])
