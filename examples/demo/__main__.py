"""The demo: a Spark pipeline on real data that is killed, replayed and fenced, and stays exact.

``python -m examples.demo`` writes a store into ``demo-store/``, or with the URL of a prefix in a cloud behind it into a
new directory below that; it ends with 1 if anything differs from the input.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import eoslog
from examples.demo.flights import Flights, load_flights, per_carrier_and_month, write_stream_input
from examples.demo.sessions import REPOSITORY, start_spark
from examples.demo.verdict import Verdict
from examples.demo.victim import run_driver

PLACE = REPOSITORY / "demo-store"
BEFORE_SLOT = "log.slot.before_put"
AFTER_SLOT = "log.slot.claimed"


class Demo:
    """The acts of the demo, in the order in which they are played."""

    def __init__(self, console: Console, progress: Progress, url: str) -> None:
        self.verdict = Verdict(console)
        self.console = console
        self.progress = progress
        self.work = PLACE / "work"
        self.work.mkdir(parents=True)
        self.url = url
        self.is_local = "://" not in url
        self.store = eoslog.connect(self.url)

    def play(self) -> None:
        bar = self.progress.add_task("reading 336,776 flights", total=9)

        def act(title: str) -> None:
            self.progress.update(bar, description=title, advance=1)
            if not self.console.is_terminal:  # where no bar moves
                self.console.print(f"... {title}")

        flights = load_flights()
        act("creating the topics")
        self.create_topics(flights)
        act("starting Spark")
        spark = start_spark(self.work)
        act("backfill, January to June, twice")
        self.backfill(spark, flights)
        act("streaming query, killed twice and replayed")
        self.stream(flights)
        act("transactional producer: commit, abort, leave open")
        self.produce(flights)
        act("downstream query: per carrier and month")
        self.downstream(spark)
        act("stopping Spark")
        spark.stop()
        act("comparing with the CSV")
        self.compare(flights)
        act("done")

    def create_topics(self, flights: Flights) -> None:
        self.store.admin.create_topic("flights", partitions=4, schema=flights.rows.schema, key="carrier")
        self.store.admin.create_topic(
            "carrier_months",
            schema=pa.schema(
                [("carrier", pa.string()), ("month", pa.int64()), ("flights", pa.int64()), ("miles", pa.int64())]
            ),
            key="carrier",
        )

    def newest_slot(self) -> int:
        return self.store.read(lambda state, slot: slot)

    def rows_committed(self) -> int:
        return self.store.scan("flights").record_count

    def backfill(self, spark: object, flights: Flights) -> None:
        path = self.work / "backfill.parquet"
        pq.write_table(flights.backfill, path)
        for attempt in (1, 2):
            slot, rows = self.newest_slot(), self.rows_committed()
            (
                spark.read.parquet(str(path))  # type: ignore[attr-defined]
                .write.format("eoslog")
                .option("topic", "flights")
                .option("transactionalId", "backfill-2013h1")
                .option("txnVersion", 1)
                .mode("append")
                .save(self.url)
            )
            added, slots = self.rows_committed() - rows, self.newest_slot() - slot
            self.verdict.happened(f"backfill, run {attempt}", f"{added:,} rows, {slots} slots of the log")
            wanted = flights.backfill.num_rows if attempt == 1 else 0
            self.verdict.expect(added == wanted, f"backfill run {attempt} added {added} rows, not {wanted}")
            self.verdict.expect(attempt == 1 or slots == 0, f"the repeated backfill wrote {slots} slots")

    def stream(self, flights: Flights) -> None:
        sizes = write_stream_input(flights, self.work / "stream-input")
        before = self.rows_committed()
        bar = self.progress.add_task("  micro-batches", total=len(sizes))

        def tick() -> None:
            done = len(list((self.work / "checkpoint/commits").glob("[0-9]*")))
            self.progress.update(bar, completed=done)

        def run(name: str, crash: tuple[str, int] | None = None) -> int:
            """Run the query's driver; the number of rows that it added."""
            rows = self.rows_committed()
            self.progress.update(bar, description=f"  {name}")
            run_driver(
                "examples.demo.stream_driver",
                str(self.work),
                self.url,
                log=self.work / f"{name.replace(' ', '-')}.log",
                crash=crash,
                tick=tick,
            )
            tick()
            return self.rows_committed() - rows

        run("killed before its slot", (BEFORE_SLOT, 2))
        self.killed(sizes, before, after_slot=False)
        run("killed after its slot", (AFTER_SLOT, 3))
        self.killed(sizes, before, after_slot=True)
        added = run("to the end")
        self.verdict.happened("driver restarted from its checkpoint", f"{added:,} rows more")
        # The restarted driver has replayed the micro-batch whose slot was there. On a server this is enough, because
        # most of the demo's time passes while drivers start.
        if self.is_local:
            self.replay(run)
        total = self.rows_committed() - before
        self.verdict.expect(total == flights.streamed.num_rows, f"the streaming query added {total} rows")
        self.progress.remove_task(bar)

    def replay(self, run: Callable[[str], int]) -> None:
        """Have a new driver replay the last micro-batch, which the old one had finished.

        Args:
            run: runs the driver under a name, and returns the number of rows that it added.
        """
        commits = self.work / "checkpoint/commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
        slot = self.newest_slot()
        added = run("replay of the last micro-batch")
        self.verdict.happened(f"Spark's commit-log entry {last.name} deleted, driver restarted", f"{added} rows more")
        self.verdict.expect(added == 0, f"the replayed micro-batch added {added} rows")
        self.verdict.expect(self.newest_slot() == slot, "the replayed micro-batch wrote to the log")

    def killed(self, sizes: list[int], before: int, *, after_slot: bool) -> None:
        """Note which micro-batch died, and that its rows are there if its slot is, and else none of them."""
        batch = max(int(path.name) for path in (self.work / "checkpoint/offsets").iterdir() if path.name.isdigit())
        rows = self.rows_committed() - before
        wanted = sum(sizes[: batch + after_slot])
        when, outcome = (
            ("after", "all of its rows are there") if after_slot else ("before", "none of its rows is there")
        )
        self.verdict.happened(
            f"driver killed {when} the slot of micro-batch {batch}", f"{rows:,} rows so far, {outcome}"
        )
        self.verdict.expect(rows == wanted, f"killed {when} the slot of micro-batch {batch}: {rows} rows, not {wanted}")

    def produce(self, flights: Flights) -> None:
        first = self.store.producer(transactional_id="last-day")
        first.init_transactions()
        first.begin_transaction()
        first.send_table("flights", flights.last_day)
        first.commit_transaction()
        self.verdict.happened("producer 'last-day' committed 31 December", f"{flights.last_day.num_rows} rows")
        first.begin_transaction()
        first.send_table("flights", flights.last_day)
        first.flush()
        first.abort_transaction()
        self.verdict.happened("the same rows again, aborted", "none of them shows under read_committed")
        first.begin_transaction()
        first.send_table("flights", flights.last_day)
        first.flush()
        uncommitted = self.store.scan("flights", isolation_level="read_uncommitted").record_count
        committed = self.rows_committed()
        self.verdict.happened(
            "the same rows a third time, left open",
            f"read_uncommitted shows {uncommitted:,} rows, read_committed {committed:,}",
        )
        self.verdict.expect(
            uncommitted == committed + 2 * flights.last_day.num_rows,
            f"read_uncommitted shows {uncommitted} rows and read_committed {committed}",
        )
        self.verdict.show_offsets("flights, with a transaction open", self.store.admin.offsets("flights"))
        second = eoslog.connect(self.url).producer(transactional_id="last-day")
        second.init_transactions()
        try:
            first.commit_transaction()
            self.verdict.expect(False, "the fenced producer could commit")
        except eoslog.ProducerFenced as error:
            self.verdict.happened("a second producer 'last-day' took over", f"first one fenced: {error.code}")
        second.close()

    def downstream(self, spark: object) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        (
            spark.readStream.format("eoslog")  # type: ignore[attr-defined]
            .option("subscribe", "flights")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 200_000)
            .schema("carrier string, month bigint, distance bigint")
            .load(self.url)
            .groupBy("carrier", "month")
            .agg(F.count("*").alias("flights"), F.sum("distance").alias("miles"))
            .writeStream.format("eoslog")
            .option("topic", "carrier_months")
            .option("checkpointLocation", str(self.work / "downstream-checkpoint"))
            .outputMode("complete")
            .trigger(availableNow=True)
            .start(self.url)
            .awaitTermination()
        )

    def compare(self, flights: Flights) -> None:
        found = self.store.scan("flights").to_table()
        self.verdict.compare_rows(flights.rows, found)
        self.verdict.compare_carriers(flights.rows, found)
        months = {
            (row["carrier"], row["month"]): (row["flights"], row["miles"])
            for row in self.store.scan("carrier_months").to_table().to_pylist()
        }
        wanted = per_carrier_and_month(flights.rows)
        self.verdict.happened("downstream query, complete mode", f"{len(months)} sums per carrier and month")
        self.verdict.expect(months == wanted, "the downstream sums per carrier and month differ from the CSV's")
        self.verdict.show_offsets("flights", self.store.admin.offsets("flights"))
        for each in self.store.admin.offsets("flights"):
            self.verdict.expect(
                each.last_stable_offset == each.high_watermark,
                f"partition {each.partition}: an open transaction is left",
            )
        self.verdict.show_events()


def main(place: str | None) -> int:
    console = Console()
    if PLACE.exists():
        shutil.rmtree(PLACE)
    url = str(PLACE / "store") if place is None else f"{place}/{datetime.now():%Y%m%d-%H%M%S}"
    started = time.monotonic()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        demo = Demo(console, progress, url)
        demo.play()
    faults = demo.verdict.faults
    for fault in faults:
        console.print(f"[red]✗ {fault}")
    if not faults:
        console.print(f"[green]✓ exact[/green], in {time.monotonic() - started:.0f} s. Look around in {shown(url)}:")
        if place is not None:
            server = {"s3": "s3", "gs": "gcs", "az": "azure"}[place.partition("://")[0]]
            console.print(f"  conf/{server}_server.sh start, and the command for the environment that it prints")
        command = os.path.relpath(Path(sys.executable).with_name("eoslog"))
        console.print(f"  {command} --store {shown(url)} transactions list")
    return 1 if faults else 0


def shown(url: str) -> str:
    return url if "://" in url else os.path.relpath(url)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
