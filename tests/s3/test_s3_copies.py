"""Copies from a local disk to S3, between buckets with credentials of their own, and back."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import eoslog
from eoslog import Store
from eoslog.errors import InvalidRequest, NotAStore, StoreUnavailable
from eoslog.storage.environment import Environment
from tests.conftest import s3_store_at
from tests.depth import sweep
from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server, real_s3_server
from tests.unit.verification.histories import copy_of_small_history, faults

pytestmark = pytest.mark.s3


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return copy_of_small_history(eoslog.connect(tmp_path / "store", fsync=False))


def rows(store: Store) -> list[object]:
    return [store.scan(topic, isolation_level="snapshot").to_table() for topic in ("c", "t")]


def at(server: S3Server, prefix: str = "backup") -> Store:
    return eoslog.connect(f"s3://{server.new_bucket()}/{prefix}", **server.options())


def test_a_store_goes_to_s3_and_back(local: Store, s3_server: S3Server, tmp_path: Path) -> None:
    there, back = at(s3_server), eoslog.connect(tmp_path / "back", fsync=False)

    first = local.admin.copy(there)
    second = there.admin.copy(back)

    assert rows(there) == rows(local) == rows(back)
    assert faults(there) == faults(back) == []
    assert (second.slot, second.files, second.bytes) == (first.slot + 3, first.files, first.bytes)


def test_an_earlier_slot_of_a_store_on_s3_is_copied(local: Store, s3_server: S3Server, tmp_path: Path) -> None:
    there, back = at(s3_server), eoslog.connect(tmp_path / "back", fsync=False)
    local.admin.copy(there)
    slot = there.read(lambda state, slot: slot)
    there.admin.delete_topic("t")

    report = there.admin.copy(back, slot=slot)

    assert (report.slot, report.source_slot) == (slot, slot + 1)
    assert rows(back) == rows(local)
    assert faults(back) == []


def test_a_store_goes_from_one_server_to_another(local: Store, real_server: S3Server) -> None:
    with real_s3_server() as another_server:
        one, another = at(real_server), at(another_server)
        local.admin.copy(one)

        one.admin.copy(another, new_identity=True)

        assert rows(another) == rows(local)
        assert faults(another) == []


def test_a_target_in_the_source_is_refused(local: Store, any_s3_server: S3Server) -> None:
    there = at(any_s3_server, "a/store")
    local.admin.copy(there)
    bucket = there.url.removesuffix("/a/store")

    for path in ("a/store", "a/store/backup", "a/store/t"):
        with pytest.raises(InvalidRequest, match="lies in the source"):
            there.admin.copy(eoslog.connect(f"{bucket}/{path}", **any_s3_server.options()))
    with pytest.raises(NotAStore, match="belong to no store"):
        there.admin.copy(eoslog.connect(f"{bucket}/a", **any_s3_server.options()))
    assert there.admin.copy(eoslog.connect(f"{bucket}/a/store2", **any_s3_server.options())).files > 0


@pytest.mark.parametrize(
    ("path", "lands"),
    sweep(
        itertools.product([".copy/0001", "eoslog.json", "__transaction_state/slot", ".parquet"], [False, True]),
        quick=[("eoslog.json", True), (".parquet", False)],
    ),
)
def test_lost_answers_of_the_target_are_no_harm(
    local: Store, s3_server: S3Server, s3_bucket: str, fault_proxy: FaultProxy, path: str, lands: bool
) -> None:
    objects = s3_store_at(s3_server.behind(fault_proxy.url), s3_bucket, Environment())
    if lands:
        fault_proxy.lose_answer("PUT", path)
    else:
        fault_proxy.answer(503, "SlowDown", "PUT", path)

    target = Store(objects, Environment())
    try:
        local.admin.copy(target)
    except StoreUnavailable:
        local.admin.copy(target)

    assert rows(target) == rows(local)
    assert faults(target) == []
