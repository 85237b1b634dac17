"""Published tables in a REST catalog: Iceberg's own server, which PyIceberg asks for the tables."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema

import eoslog
from eoslog import Store, TopicConfig
from eoslog.iceberg.rest_catalog import CREDENTIAL_VARIABLE, TOKEN_VARIABLE
from eoslog.maintenance.publication import Publisher
from eoslog.maintenance.vacuum import vacuum
from eoslog.session.settings import IcebergSettings, Settings
from tests.iceberg_catalog.servers import Gateway, rest_catalog_server
from tests.s3.servers import ServerMissing
from tests.unit.support.delta_tables import rows_of_snapshot
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.transactions import open_transaction

pytestmark = pytest.mark.clouds
SCHEMA = pa.schema([("key", pa.int64())])
POINTS = [
    "iceberg.version.put",
    "iceberg.hint.put",
    "iceberg.catalog.planned",
    "iceberg.catalog.dropped",
    "iceberg.catalog.registered",
]


@pytest.fixture(scope="session")
def catalog_url() -> Iterator[str]:
    try:
        with rest_catalog_server() as url:
            yield url
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def gateway(catalog_url: str) -> Iterator[Gateway]:
    with Gateway(catalog_url) as found:
        yield found


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"n{uuid.uuid4().hex}"


@pytest.fixture
def connect(gateway: Gateway, namespace: str, tmp_path: Path) -> Callable[..., Store]:
    """Open the store as another process does."""

    def connected(name: str = "store", **settings: Any) -> Store:
        iceberg = IcebergSettings(**{"catalog_uri": gateway.url, "namespace": namespace} | settings)
        return eoslog.connect(tmp_path / name, settings=Settings(iceberg=iceberg))

    return connected


@pytest.fixture
def store(connect: Callable[..., Store]) -> Store:
    """A store with the topic ``t``, whose table has one version of one row."""
    store = connect()
    create(store)
    write(store, 0)
    store.admin.publish("t")
    return store


@pytest.fixture
def catalog(catalog_url: str) -> Catalog:
    """The catalog as engines see it."""
    return load_catalog("engine", type="rest", uri=catalog_url)


def create(store: Store) -> None:
    store.admin.create_topic("t", partitions=2, schema=SCHEMA, config=TopicConfig(publish="iceberg", segment_batches=2))


def write(store: Store, *keys: int, commit: bool = True) -> None:
    with open_transaction(store, "p") as producer:
        producer.send_table("t", pa.table({"key": keys}, schema=SCHEMA))
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def keys(catalog: Catalog, namespace: str) -> list[int]:
    """Return the keys that an engine finds through the catalog."""
    return sorted(catalog.load_table(f"{namespace}.t").scan().to_arrow()["key"].to_pylist())


def snapshot_keys(store: Store, slot: int) -> list[int]:
    return sorted(row[2] for row in rows_of_snapshot(store, "t", slot))


def location(store: Store, version: int) -> str:
    return f"{store.object_store.root}/__iceberg/t/metadata/v{version}.metadata.json"


def test_each_publication_leads_the_catalog_to_the_rows_of_the_snapshot(
    store: Store, catalog: Catalog, namespace: str
) -> None:
    for key in range(1, 4):
        write(store, key)
        write(store, 100 + key, commit=False)
        (published,) = store.admin.publish("t")

        assert catalog.load_table(f"{namespace}.t").metadata_location == location(store, published.version)
        assert keys(catalog, namespace) == snapshot_keys(store, published.slot) == list(range(key + 1))


def test_a_namespace_may_have_levels(connect: Callable[..., Store], catalog: Catalog, namespace: str) -> None:
    catalog.create_namespace(namespace)
    store = connect(namespace=f"{namespace}.inner")
    create(store)
    write(store, 7)

    store.admin.publish("t")

    assert keys(catalog, f"{namespace}.inner") == [7]


@pytest.mark.parametrize("point", POINTS)
def test_the_next_publication_completes_that_of_a_publisher_that_died(
    connect: Callable[..., Store], store: Store, catalog: Catalog, namespace: str, point: str
) -> None:
    write(store, 1)
    dying = connect()
    dies_at(dying, point)

    with pytest.raises(Died):
        dying.admin.publish("t")
    # A process that has never seen the topic finds nothing to publish but a catalog that is behind.
    connect().admin.publish("t")

    assert keys(catalog, namespace) == [0, 1]


@pytest.mark.parametrize("point", POINTS)
def test_of_two_publishers_at_once_the_later_version_stays_in_the_catalog(
    connect: Callable[..., Store], store: Store, catalog: Catalog, namespace: str, point: str
) -> None:
    slow = connect()

    def meanwhile() -> None:
        write(store, 2)
        store.admin.publish("t")

    write(store, 1)
    slept = asleep_at(slow, point, meanwhile)
    slow.admin.publish("t")

    assert slept == [point]
    assert keys(catalog, namespace) == [0, 1, 2]


def test_a_catalog_that_is_down_delays_no_version_and_is_told_later_although_nothing_changes(
    store: Store, gateway: Gateway, catalog: Catalog, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher.of(store)
    publisher.publish_all()
    write(store, 1)
    gateway.is_down = True

    published = publisher.publish_all()

    assert [(each.version, each.files_added) for each in published] == [(2, 1)]
    assert f"the catalog RestCatalog('{gateway.url}') does not know it: it gave no answer" in caplog.text
    assert keys(catalog, namespace) == [0]

    gateway.is_down = False
    publisher.publish_all()
    assert keys(catalog, namespace) == [0, 1]

    gateway.requests.clear()
    publisher.publish_all()
    assert gateway.requests == []


def test_a_publisher_that_was_paused_for_half_a_day_tells_the_catalog_nothing(
    connect: Callable[..., Store], store: Store, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum may have deleted the metadata file that it would register."""
    slow = connect()
    write(store, 1)
    now_ms = slow.environment.monotonic_ms

    def pause() -> None:
        monkeypatch.setattr(slow.environment, "monotonic_ms", lambda: now_ms() + 13 * 3600 * 1000)

    slept = asleep_at(slow, "iceberg.catalog.planned", pause)
    gateway.requests.clear()
    (published,) = slow.admin.publish("t")

    assert (slept, published.version) == (["iceberg.catalog.planned"], 2)
    assert gateway.requests == []


def test_a_registration_without_an_answer_is_found_by_the_next_publication(
    store: Store, gateway: Gateway, catalog: Catalog, namespace: str
) -> None:
    write(store, 1)
    gateway.lost_answers = 1

    store.admin.publish("t")
    store.admin.publish("t")

    assert keys(catalog, namespace) == [0, 1]


def test_a_table_of_the_same_name_that_is_not_the_topics_stays_as_it_is(
    connect: Callable[..., Store], catalog: Catalog, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_namespace(namespace)
    catalog.create_table(f"{namespace}.t", Schema(), location=str(tmp_path / "theirs"))
    store = connect()
    create(store)
    write(store, 0)

    (published,) = store.admin.publish("t")

    assert published.version == 1
    assert f"it has another table {namespace}.t, in another directory" in caplog.text
    assert catalog.load_table(f"{namespace}.t").location() == str(tmp_path / "theirs")


def test_a_table_that_somebody_dropped_from_the_catalog_is_there_again_after_the_next_publication(
    store: Store, catalog: Catalog, namespace: str
) -> None:
    catalog.drop_table(f"{namespace}.t")
    with pytest.raises(NoSuchTableError):
        keys(catalog, namespace)

    store.admin.publish("t")

    assert keys(catalog, namespace) == [0]


def test_a_change_that_somebody_committed_to_the_catalog_is_gone_after_the_next_publication(
    store: Store, catalog: Catalog, namespace: str
) -> None:
    with catalog.load_table(f"{namespace}.t").transaction() as transaction:
        transaction.set_properties(foreign="yes")
    assert "foreign" in catalog.load_table(f"{namespace}.t").properties

    store.admin.publish("t")

    assert "foreign" not in catalog.load_table(f"{namespace}.t").properties
    assert catalog.load_table(f"{namespace}.t").metadata_location == location(store, 1)


def test_vacuum_leads_the_catalog_to_a_withdrawn_table_without_rows(
    store: Store, catalog: Catalog, namespace: str
) -> None:
    store.admin.delete_topic("t")

    vacuum(store, deleted_file_retention_ms=0)

    assert keys(catalog, namespace) == []


def token_function(uri: str) -> dict[str, str]:
    """What a platform gives."""
    return {"token": "client-credentials-token:sub=platform"}


@pytest.mark.parametrize("source", ["token", "client", "function"])
def test_the_catalog_gets_the_token_of_the_user_and_no_message_shows_it(
    source: str,
    connect: Callable[..., Store],
    gateway: Gateway,
    catalog: Catalog,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    gateway.token_pattern = "client-credentials-token:sub=[a-z-]+"
    given: dict[str, str] = {}
    match source:
        case "token":
            monkeypatch.setenv(TOKEN_VARIABLE, "client-credentials-token:sub=hush")
        case "client":
            monkeypatch.setenv(CREDENTIAL_VARIABLE, "hush-id:hush:secret")
        case "function":
            given = {"credentials": f"{__name__}:token_function"}
    store = connect(**given)
    create(store)
    write(store, 3)

    store.admin.publish("t")

    assert keys(catalog, namespace) == [3]
    assert "hush" not in caplog.text
    assert "sub=" not in caplog.text


def test_a_refused_token_is_a_warning_and_no_message_shows_it(
    connect: Callable[..., Store],
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway.token_pattern = "another"
    monkeypatch.setenv(TOKEN_VARIABLE, "hush")
    store = connect()
    create(store)
    write(store, 3)

    (published,) = store.admin.publish("t")

    assert published.version == 1
    assert "401 NotAuthorizedException" in caplog.text
    assert "hush" not in caplog.text
