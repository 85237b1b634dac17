"""A console of a store in memory, and browsers of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import eoslog
from eoslog.ui.access import LinkAccess
from eoslog.ui.application import Console
from eoslog.ui.console_store import ConsoleStore

COOKIE = "eoslog_console_1"


@dataclass
class ServedConsole:
    """A console without its web server."""

    store: eoslog.Store
    access: LinkAccess
    console: Console

    def browser(self) -> TestClient:
        """A browser that has not used the link."""
        application = self.console.application({"localhost", "127.0.0.1"}, "https://console.example.com")
        return TestClient(application, base_url="http://localhost:1", follow_redirects=False)

    def opened(self) -> TestClient:
        """A browser that has used the link."""
        browser = self.browser()
        assert browser.get("/", params={"token": self.access.token}).status_code == 303
        return browser


def served(store: eoslog.Store, *, allow_admin: bool = False) -> ServedConsole:
    access = LinkAccess(store.environment)
    return ServedConsole(store, access, Console({"": ConsoleStore(store, allow_admin=allow_admin)}, access, COOKIE))


@pytest.fixture
def store() -> eoslog.Store:
    """A store with the topic ``payments`` of Kafka records and the topic ``flights`` of columns, both without rows."""
    store = eoslog.connect(f"memory://{uuid.uuid4().hex}")
    store.admin.create_topic("payments", partitions=2)
    schema = pa.schema([("carrier", pa.string()), ("miles", pa.int64()), ("tags", pa.list_(pa.string()))])
    store.admin.create_topic("flights", schema=schema, key="carrier")
    return store


@pytest.fixture
def read_only(store: eoslog.Store) -> ServedConsole:
    """A console that only reads."""
    return served(store)


@pytest.fixture
def browser(read_only: ServedConsole) -> TestClient:
    """A browser that has opened the console, which only reads."""
    return read_only.opened()


@pytest.fixture
def admin_browser(store: eoslog.Store) -> TestClient:
    """A browser that has opened a console with ``--allow-admin``."""
    return served(store, allow_admin=True).opened()
