"""Which writers an append service serves: those that see its store, however they name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from eoslog.errors import InvalidOption
from eoslog.maintenance.append_service import AppendService
from eoslog.store import Store
from tests.unit.maintenance.append_services import await_announcement
from tests.unit.support.transactions import open_transaction


def connected(path: Path) -> Store:
    store = eoslog.connect(str(path), fsync=False)
    store.describe()
    store.object_store.host_queue = None
    return store


def made(path: Path) -> Store:
    eoslog.connect(str(path), fsync=False).admin.create_topic("t")
    return connected(path)


def commit(store: Store, value: bytes) -> None:
    producer = open_transaction(store, "tx", staged=True)
    producer.send("t", value, partition=0)
    producer.commit_transaction()


@pytest.mark.usefixtures("patient_writers")
def test_writers_that_name_a_directory_in_another_way_reach_its_service(tmp_path: Path) -> None:
    original = made(tmp_path / "original")
    (tmp_path / "link").symlink_to(tmp_path / "original")
    with AppendService(original, "127.0.0.1:0"):
        store = connected(tmp_path / "link")
        await_announcement(store)

        commit(store, b"row")

        assert store.log.appender.counts.by_others > 0


@pytest.mark.parametrize(
    "advertise", ["my host:9300", "[fe80::1%eth0]:9300", "münchen.example:9300", ":9300", "host.example:0"]
)
def test_an_address_that_no_record_can_have_is_refused_at_the_start(tmp_path: Path, advertise: str) -> None:
    """Otherwise no append of this process would succeed."""
    store = made(tmp_path / "store")

    with pytest.raises(InvalidOption, match=r"cannot be announced|writers cannot connect"):
        AppendService(store, "127.0.0.1:0", advertise=advertise)


def test_an_address_with_a_zone_is_refused(tmp_path: Path) -> None:
    store = made(tmp_path / "store")

    with pytest.raises(InvalidOption, match="cannot be announced"):
        AppendService(store, "[fe80::1%lo]:0")
