"""The turns of processes of one host in a store on S3. No request is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store

pytestmark = pytest.mark.skipif(not HostQueue.is_supported, reason="this system has no abstract Unix sockets")

STORE_ID = "a" * 32


def opened(bucket: str = "b", prefix: str = "p", port: int = 1, store_id: str = STORE_ID) -> S3Store:
    """A process's view of a store."""
    options = S3Options(endpoint_url=f"http://127.0.0.1:{port}", key="k", secret="s", region="r")
    store = S3Store(bucket, prefix, Environment(), options)
    store.share_turns(store_id)
    return store


@contextmanager
def taken(store: S3Store) -> Iterator[bool]:
    """Try to take the turn; whether it was free."""
    assert store.host_queue is not None
    with store.host_queue.turn() as turn:
        yield turn.begin()


def test_processes_that_open_one_store_share_turns() -> None:
    with taken(opened()) as first, taken(opened()) as second:
        assert (first, second) == (True, False)


@pytest.mark.parametrize(
    "other", [{"bucket": "c"}, {"prefix": "q"}, {"prefix": ""}, {"port": 2}, {"store_id": "b" * 32}]
)
def test_no_other_store_has_its_turns(other: dict[str, str | int]) -> None:
    """A request that reached another store could be valid there, and its data files are not."""
    with taken(opened()) as first, taken(opened(**other)) as second:  # type: ignore[arg-type]
        assert (first, second) == (True, True)


def test_the_endpoint_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_environment(port: int) -> S3Store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        store = S3Store("b", "p", Environment(), S3Options(key="k", secret="s", region="r"))
        store.share_turns(STORE_ID)
        return store

    one, same, another = of_environment(1), of_environment(1), of_environment(2)

    with taken(one) as first, taken(same) as second, taken(another) as third:
        assert (first, second, third) == (True, False, True)


def test_a_store_without_a_known_id_has_no_turns() -> None:
    assert S3Store("b", "p", Environment()).host_queue is None
