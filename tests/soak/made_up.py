"""Evidence of soaks that never ran, for the tests of the verdict."""

from __future__ import annotations

from pathlib import Path

import eoslog
from tests.checker import Operation
from tests.soak.checking import Evidence, Row
from tests.soak.history import topic_of
from tests.soak.layout import PARTITIONS, Run
from tests.soak.observer import Observer


def evidence(
    store: eoslog.Store,
    operations: list[Operation],
    rows: list[Row],
    folder: Path = Path(),
    observer: Observer | None = None,
    *,
    has_streams: bool = False,
) -> Evidence:
    shown = {topic: [row for row in rows if topic_of(row.place) == topic] for topic in PARTITIONS}
    return Evidence(Run(folder, "", 0), store, observer or Observer(store), operations, shown, has_streams)


def row(place: str, offset: int, value: str) -> Row:
    return Row(place, offset, value, 0)
