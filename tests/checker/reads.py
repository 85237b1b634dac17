"""What no reader may be shown: two values at one offset, aborted or unwritten ones, its own, a transaction in part."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.history import Kind, Outcome
from tests.checker.verdict import Anomaly
from tests.checker.version_order import VersionOrder


def inconsistent_offsets(order: VersionOrder) -> Iterator[Anomaly]:
    """An offset holds one value, for ever and for everybody."""
    for key, log in order.log.items():
        for offset, values in log.items():
            if len(values) > 1:
                yield Anomaly("inconsistent-offsets", f"{key}@{offset} held {sorted(map(repr, values))}")


def aborted_reads(order: VersionOrder) -> Iterator[Anomaly]:
    """G1a: what failed shows nowhere. Jepsen asks polls that ended well; here whatever was shown counts."""
    for (key, value), readers in order.readers.items():
        writers = order.writers.get((key, value), [])
        if writers and all(each.outcome is Outcome.FAIL for each in writers):
            yield Anomaly("G1a", f"{readers[0]} was shown {value!r} of {key}, which {writers[0]} did not write")


def unwritten_reads(order: VersionOrder) -> Iterator[Anomaly]:
    """What shows was sent by somebody (beyond Jepsen's rules)."""
    for (key, value), readers in order.readers.items():
        if (key, value) not in order.writers:
            yield Anomaly("unwritten-read", f"{readers[0]} was shown {value!r} of {key}, which nobody sent")


def precommitted_reads(order: VersionOrder) -> Iterator[Anomaly]:
    """A transaction is not shown its own rows, which are not committed yet."""
    for (key, value), readers in order.readers.items():
        for reader in readers:
            if reader.kind is Kind.TXN and any(reader is writer for writer in order.writers.get((key, value), ())):
                yield Anomaly("precommitted-read", f"{reader} was shown its own {value!r} of {key}")


def intermediate_reads(order: VersionOrder) -> Iterator[Anomaly]:
    """G1b of snapshots: all rows of a transaction show, or none. A poll may end within one; a snapshot may not."""
    transactions = [each for each in order.history if each.kind is Kind.TXN and each.outcome is not Outcome.FAIL]
    number_of = {(send.key, send.value): number for number, each in enumerate(transactions) for send in each.sends()}
    for snapshot in order.history:
        if snapshot.kind is not Kind.SNAPSHOT:
            continue
        shown = {(key, value) for key, _, value in snapshot.reads()}
        for number in sorted({number_of[each] for each in shown if each in number_of}):
            sends = [send for send in transactions[number].sends() if send.key in snapshot.keys]
            missing = [f"{send.value!r} of {send.key}" for send in sends if (send.key, send.value) not in shown]
            if missing:
                yield Anomaly("G1b", f"{snapshot} shows a part of {transactions[number]}, and not {missing[:3]}")
