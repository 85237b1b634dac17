"""What "exactly once" means for a topic, whatever failed before, and which files lie around it."""

from __future__ import annotations

from collections.abc import Iterable

import eoslog
from eoslog.maintenance.vacuum import referenced_files


def assert_exact(store: eoslog.Store, topic: str, numbers: Iterable[int]) -> None:
    """The topic's column ``n`` holds these numbers and nothing else, and the log has no gap and no open end.

    Whatever isolation level it is read with: each number once, each offset once, each partition dense from its first
    offset to its high watermark. So nothing of an attempt that failed or was fenced ever got an offset.
    """
    wanted = sorted(numbers)
    assert sorted(store.scan(topic).to_table()["n"].to_pylist()) == wanted
    columns = ["n", "_partition", "_offset", "_control"]
    rows = store.scan(topic, isolation_level="read_uncommitted", columns=columns, include_control_rows=True).to_table()
    found = rows.to_pylist()
    assert sorted(row["n"] for row in found if row["_control"] is None) == wanted
    assert {row["_control"] for row in found} <= {None, "COMMIT"}
    for partition, log_start, last_stable, high_watermark in store.admin.offsets(topic):
        offsets = sorted(row["_offset"] for row in found if row["_partition"] == partition)
        assert offsets == list(range(log_start, high_watermark))
        assert last_stable == high_watermark


def files_of_topics(store: eoslog.Store) -> set[str]:
    """All data and index files, as paths below the store's root."""
    paths = (info.path for info in store.object_store.list(""))
    return {path for path in paths if path.count("/") == 4 and path[0] not in "_."}


def orphans(store: eoslog.Store) -> set[str]:
    """The files that nothing in the store's log names."""
    state = store.read(lambda state, slot: state.frozen_copy())
    return files_of_topics(store) - set(referenced_files(store.object_store, state))
