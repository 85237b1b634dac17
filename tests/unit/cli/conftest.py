from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from tests.unit.cli.command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command on a place where no store is yet."""
    monkeypatch.setenv("EOSLOG_LOCAL__FSYNC", "false")
    return Command(str(tmp_path / "store"))


@pytest.fixture
def store(command: Command) -> eoslog.Store:
    """The same store, with the topic ``t`` of Kafka records in one partition."""
    store = eoslog.connect(command.url)
    store.admin.create_topic("t")
    return store
