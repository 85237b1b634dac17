"""The checker: what the store holds at the end, compared with what every process was told and shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from typing import Any

from eoslog.maintenance.segment_rewriting import read_aborted
from eoslog.maintenance.vacuum import referenced_files
from eoslog.publication.table_paths import DELTA_LOG
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from eoslog.verification.findings import Severity
from tests.checker.oracle import Aborted, readings
from tests.simulation.ledger import Ledger, Outcome
from tests.simulation.list_append import check_lists
from tests.simulation.log_checks import check_log, read_log
from tests.simulation.pipelines import GROUP
from tests.simulation.recorder import check_notes
from tests.simulation.recreated import RECREATED
from tests.simulation.service import IN, OUT, PARTITIONS, ROWS_GO, TABLE
from tests.simulation.world import Violation, World
from tests.simulation.writers import KEYS

Shown = dict[str, Counter[tuple[str, int, bytes]]]
"""Rows by the name of the work that they belong to."""


def check_everything(world: World, ledger: Ledger, store: Store) -> None:
    """Every promise that can be checked when nobody is at work any more.

    Raises:
        Violation
    """
    check_ends(store)
    shown = read_all(ledger, store)
    check_works(ledger, shown)
    check_shown(ledger, shown)
    check_table(ledger, shown)
    check_pipeline(store)
    check_history(store)
    check_lists(ledger, store)
    check_aborted_index(world, store)
    check_notes(world, ledger)
    check_log(world, ledger, store)


def check_ends(store: Store) -> None:
    """Nothing holds a reader back."""
    for topic in PARTITIONS:
        for ends in store.admin.offsets(topic):
            if ends.last_stable_offset != ends.high_watermark:
                raise Violation(f"{topic}-{ends.partition}: the last stable offset stays behind: {ends}")


def read_all(ledger: Ledger, store: Store) -> Shown:
    """All committed rows; each is where anybody ever saw it, and in the order in which its work wrote it."""
    shown: Shown = {}
    for topic in PARTITIONS:
        rows = store.scan(topic, columns=["partition", "offset", "value"]).to_table().to_pylist()
        for partition in range(PARTITIONS[topic]):
            mine = [(row["offset"], row["value"]) for row in rows if row["partition"] == partition]
            ledger.observe(topic, partition, iter(mine), committed=True)
            _check_order(f"{topic}-{partition}", [value for _, value in mine])
        for row in rows:
            work = ledger.work_of(row["value"])
            shown.setdefault(work.name, Counter())[topic, row["partition"], row["value"]] += 1
    return shown


def _check_order(place: str, values: list[bytes]) -> None:
    last: dict[bytes, int] = {}
    for value in values:
        name, _, number = value.partition(b"|")[0].partition(b"#")
        if int(number) <= last.get(name, -1):
            raise Violation(f"{place}: {value!r} was reordered or doubled")
        last[name] = int(number)


def check_works(ledger: Ledger, shown: Shown) -> None:
    """Acknowledged work shows whole, aborted work not at all, and work of unknown outcome in one of these ways."""
    for work in ledger.works.values():
        if work.keys:
            continue
        found = shown.get(work.name, Counter())
        expected = next((each for each in map(Counter, work.versions()) if each == found), Counter(work.rows))
        if work.outcome is Outcome.COMMITTED and found != expected:
            raise Violation(f"{work.name} was acknowledged: lost {expected - found}, more than once {found - expected}")
        if work.outcome is Outcome.ABORTED and found:
            raise Violation(f"{work.name} was aborted, but shows: {found}")
        if work.outcome is Outcome.UNKNOWN and found and found != expected:
            raise Violation(f"{work.name} shows in part: lost {expected - found}, more than once {found - expected}")


def check_shown(ledger: Ledger, shown: Shown) -> None:
    """What a reader was ever shown as committed was committed: its transaction may have been open then.

    What is shown no more was aborted, but where rows go for other reasons; there the log tells (``check_log``). What a
    committed read passed over was aborted, and never shows.
    """
    still_there = {value for rows in shown.values() for _, _, value in rows}
    for value, (topic, partition, offset) in ledger.shown.items():
        was_aborted = ledger.work_of(value).outcome is Outcome.ABORTED
        if was_aborted or (topic not in ROWS_GO and value not in still_there):
            raise Violation(f"{topic}-{partition}@{offset}: {value!r} was shown as committed, and was not")
        if (topic, partition, offset) in ledger.passed_over:
            raise Violation(f"{topic}-{partition}@{offset}: a committed read passed over {value!r}, which is committed")


def check_table(ledger: Ledger, shown: Shown) -> None:
    """In the compacted topic the newest acknowledged row of each key shows, or a later one of unknown outcome."""
    values = {value for rows in shown.values() for topic, _, value in rows if topic == TABLE}
    for number in range(KEYS):
        key = b"k%d" % number
        for work in reversed([each for each in ledger.works.values() if key in each.keys]):
            if work.keys[key] in values:
                break
            if work.outcome is Outcome.COMMITTED:
                raise Violation(f"the newest row of key {key!r} is gone: {work.keys[key]!r}")


def check_pipeline(store: Store) -> None:
    """The output is the input below the committed offsets, each row once."""
    places = [TopicPartition(IN, partition) for partition in range(PARTITIONS[IN])]
    committed = store.consumer(GROUP).committed(places)
    ends = {place.partition: found.offset if found is not None else 0 for place, found in committed.items()}
    rows = store.scan(IN, columns=["partition", "offset", "value"]).to_table().to_pylist()
    consumed = Counter(row["value"] for row in rows if row["offset"] < ends[row["partition"]])
    output: list[dict[str, Any]] = store.scan(OUT, columns=["value"]).to_table().to_pylist()
    produced = Counter(row["value"].partition(b"|")[2] for row in output)
    if consumed != produced:
        raise Violation(f"the pipeline lost {consumed - produced} and doubled {produced - consumed}")


def check_history(store: Store) -> None:
    """The history tells of each slot how many rows it committed, as far back as there are slots."""
    for topic in sorted(PARTITIONS.keys() - set(ROWS_GO)):
        history = store.history(topic)
        told: Counter[int] = Counter()
        for operation in history:
            if operation.outcome == "commit":
                told[operation.slot] += operation.rows or 0
        oldest = history.oldest_slot or 0
        found = Counter({each.slot: each.record_count for each in store.commits(topic) if each.slot >= oldest})
        if +told != found:
            raise Violation(f"{topic}: the history lacks {found - told} rows of slots and has {told - found} too many")


def check_aborted_index(world: World, store: Store) -> None:
    """The indexes of aborted transactions, of sealed and of active segments, are what the log says."""
    log, _ = read_log(world, store)
    *_, reading = readings(log)
    state = store.read(lambda opened, _: opened.frozen_copy(), refresh=False)
    for place, partition in state.partitions.items():
        if state.topics[place.topic_id].config.is_compacted or partition.log_start_offset:
            continue  # What was removed has no entry any more.
        expected = reading.aborted.get((place.topic_id, place.partition), [])
        aborted = [*read_aborted(store.object_store, partition.sealed), *partition.aborted]
        found = [Aborted(*astuple(each)) for each in aborted]
        if found != expected:
            raise Violation(f"{place}: the aborted transactions are {expected}, their index has {found}")
        world.marks["aborted below an open transaction"] += sum(
            each.last_stable_offset <= each.last_offset for each in found
        )


def check_verification(store: Store) -> None:
    """Whatever lies in the store is what its log says, byte for byte."""
    for finding in store.admin.verify(data=True):
        if finding.severity is not Severity.INFO:
            raise Violation(f"{finding.kind}: {finding.place}: {finding.problem}")


def check_orphans(world: World, store: Store) -> None:
    """Every data file is named by the log, and every file that the log names is there."""
    state = store.read(lambda opened, _: opened.frozen_copy())
    named = set(referenced_files(store.object_store, state))
    topics = (*PARTITIONS, RECREATED)
    there = {path for path in world.objects if path.split("/")[0] in topics and f"/{DELTA_LOG}/" not in path}
    if there != named:
        raise Violation(f"orphans: {sorted(there - named)[:3]}, missing: {sorted(named - there)[:3]}")
