"""A store for processes on hosts of their own, and its append service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eoslog
from eoslog.log import append_client
from eoslog.maintenance.append_service import AppendService
from eoslog.store import Store
from tests.s3.servers import S3Server
from tests.unit.maintenance.append_services import running


@pytest.fixture
def patient_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits for a service that runs, however loaded the machine is."""
    monkeypatch.setattr(append_client, "_LONGEST_GREETING_MS", 600_000)
    monkeypatch.setattr(append_client, "_PATIENCE_MS", 600_000)


@pytest.fixture
def connected(request: pytest.FixtureRequest, patient_writers: None, tmp_path: Path) -> Callable[[], Store]:
    """A function that connects to the store like a process on a host of its own."""
    options: dict[str, object] = {"fsync": False}
    url = str(tmp_path / "store")
    if getattr(request, "param", "local") == "s3":
        server: S3Server = request.getfixturevalue("any_s3_server")
        url, options = f"s3://{server.new_bucket()}/store", dict(server.options())

    eoslog.connect(url, **options).admin.create_topic("t")  # type: ignore[arg-type]

    def connect() -> Store:
        store = eoslog.connect(url, **options)  # type: ignore[arg-type]
        store.describe()
        store.object_store.host_queue = None
        return store

    return connect


@pytest.fixture
def service(connected: Callable[[], Store]) -> Iterator[AppendService]:
    with running(connected) as found:
        yield found
