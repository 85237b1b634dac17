"""URLs and options of a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eoslog
from eoslog.errors import InvalidOption, InvalidRequest
from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.azure_transport import account_of
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import HttpStore
from eoslog.storage.local_store import LocalStore
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.opening import open_object_store
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store


def test_a_path_and_a_file_url_name_the_same_store(tmp_path: Path, environment: Environment) -> None:
    place = tmp_path / "with space"
    stores = [
        open_object_store(url, environment)
        for url in (str(place), f"file://{tmp_path}/with%20space", f"file:{tmp_path}/with%20space")
    ]

    stores[0].put("a", b"body")

    assert [type(store) for store in stores] == [LocalStore] * 3
    assert [store.get("a").body for store in stores] == [b"body"] * 3


def test_a_tilde_is_the_home_directory(
    tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    open_object_store("~/store", environment).put("a", b"")

    assert os.path.exists(tmp_path / "store" / "a")


def test_a_memory_url_names_a_shared_store(environment: Environment) -> None:
    open_object_store("memory://test-open", environment).put("a", b"body")

    store = open_object_store("memory://test-open", environment)

    assert isinstance(store, MemoryStore)
    assert store.get("a").body == b"body"


@pytest.mark.parametrize("url", ["s3://bucket/a/prefix", "s3a://bucket/a/prefix/", "S3://bucket/a/prefix"])
def test_an_s3_url_names_bucket_and_prefix(environment: Environment, url: str) -> None:
    store = open_object_store(url, environment, region="eu-west-1", read_timeout_ms="1000", anon="true")

    assert isinstance(store, S3Store)
    assert store.url == "s3://bucket/a/prefix"
    assert store.tail_bytes == 64 * 1024


@pytest.mark.parametrize(
    "url", ["s3:/bucket/a", "S3:bucket", "s3a:/bucket", "memory:name", " s3:/bucket", "gs:/b/s", "abfss:/c/s", "az:/c"]
)
def test_a_url_that_lacks_slashes_is_not_taken_for_a_path(environment: Environment, url: str) -> None:
    with pytest.raises(InvalidOption, match="Two slashes follow the scheme"):
        open_object_store(url, environment)


def test_a_file_url_of_a_relative_path_is_refused(environment: Environment) -> None:
    with pytest.raises(InvalidOption, match="Three slashes follow the scheme"):
        open_object_store("file:store", environment)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        *((url, "DBFS has no conditional put") for url in ("dbfs:/mnt/x", "DBFS:/x", " dbfs:/x")),
        *((url, "no client of HDFS") for url in ("hdfs:/x", "hdfs:x", "hdfs://host/x")),
        *(
            (url, r"write abfss://container@account\.dfs")
            for url in ("wasbs:c", "wasb://c@a/x", "adls://c", "azure:/c")
        ),
        *((url, "has no conditional put with If-None-Match") for url in ("oss://b/x", "cos:/b", "obs://b")),
        ("http:/h/x", "the server as endpoint_url"),
        ("https://host/a", "the server as endpoint_url"),
        ("s3n:/b", "write s3://bucket"),
        ("adl://a/b", "is retired"),
        *((url, "Unknown scheme") for url in ("web+hdfs:/x", "x-y.z:/a", "files:/x", "nn:///x")),
    ],
)
def test_a_url_of_another_system_is_not_taken_for_a_path(
    tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (url, Path(url)):
        with pytest.raises(InvalidOption, match=f"{reason}.* Valid are a local path"):
            eoslog.connect(given)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("gs://bucket/a/prefix/", "gs://bucket/a/prefix"),
        ("gcs://bucket/a/prefix", "gs://bucket/a/prefix"),
        ("az://container/a/prefix", "az://container/a/prefix"),
        ("abfss://c@me.dfs.core.windows.net/a", "abfss://c@me.dfs.core.windows.net/a"),
        ("ABFS://c@me.dfs.core.windows.net/a/", "abfss://c@me.dfs.core.windows.net/a"),
        ("abfss://w@onelake.dfs.fabric.microsoft.com/i/Files", "abfss://w@onelake.dfs.fabric.microsoft.com/i/Files"),
    ],
)
def test_each_spelling_of_a_clouds_url_names_the_same_store(environment: Environment, url: str, canonical: str) -> None:
    store = open_object_store(url, environment, read_timeout_ms="1000", anon="true")

    assert isinstance(store, HttpStore)
    assert store.url == canonical


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("gs://bucket/p", "https://storage.googleapis.com/bucket/p/"),
        ("abfss://c@me.dfs.core.windows.net/p", "https://me.blob.core.windows.net/c/p/"),
        ("abfss://c@me.z12.dfs.storage.azure.net/p", "https://me.z12.blob.storage.azure.net/c/p/"),
        ("az://c/p", "https://named.blob.core.windows.net/c/p/"),
    ],
)
def test_a_clouds_url_leads_to_its_server(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, url: str, location: str
) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    given = {"account": "named"} if url.startswith("az:") else {}

    assert open_object_store(url, environment, **given).location == location


@pytest.mark.parametrize(
    ("url", "spelling"),
    [
        ("abfss://container/prefix", "abfss://container@account"),
        ("abfss://c@me.example.com/p", "abfss://container@account"),
        ("abfss://c@me.dfs.core.windows.net.example.com/p", "abfss://container@account"),
        ("abfss://c:hush@me.dfs.core.windows.net/p", "abfss://container@account"),
        ("abfss://me.dfs.core.windows.net/p", "abfss://container@account"),
        ("az://c@me.dfs.core.windows.net/p", "az://container/prefix, with the option account"),
        ("az://c/p?sig=hush", "has no query"),
        ("gs://me:hush@bucket/p", "carries credentials"),
        ("gs://bucket/p?token=hush", "has no query"),
        *((f"gs://{name}/p", "has other characters than letters") for name in ("my bucket", "..", "b#c", "b%2F", "bü")),
        ("s3://my bucket/p", "has other characters than letters"),
        ("az://my container/p", "names a container only"),
        ("gs:///p", "names a bucket"),
        ("az:///p", "names a container"),
    ],
)
def test_another_spelling_of_a_clouds_url_is_refused_with_the_right_one(
    environment: Environment, url: str, spelling: str
) -> None:
    with pytest.raises(InvalidOption, match=spelling) as caught:
        open_object_store(url, environment)

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "root"),
    [
        ("s3a://bucket/p", {}, "s3://bucket/p"),
        ("gcs://bucket/p", {}, "gs://bucket/p"),
        ("abfs://c@me.dfs.core.windows.net/p", {}, "abfss://c@me.dfs.core.windows.net/p"),
        ("az://c/p", {"account": "mine"}, "abfss://c@mine.dfs.core.windows.net/p"),
        ("az://c", {"account": "mine"}, "abfss://c@mine.dfs.core.windows.net"),
        ("az://c/p", {"endpoint_url": "http://127.0.0.1:10000/me"}, "az://c/p"),
    ],
)
def test_other_programs_get_the_spelling_that_they_know(
    environment: Environment, url: str, options: dict[str, object], root: str
) -> None:
    assert open_object_store(url, environment, **options).root == root


@pytest.mark.parametrize("path", ["C:/a", "c:\\a", "./dbfs:/x", "2024:/x", "a:b", "ab:1", "sub/gs:/x", "-x:/y"])
def test_a_path_with_a_colon_is_a_path(
    tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)

    assert isinstance(open_object_store(path, environment), LocalStore)


@pytest.mark.parametrize("url", ["FILE:{}", "file:{}", "File://{}", "file://localhost{}"])
def test_the_scheme_of_a_file_url_has_any_case(tmp_path: Path, environment: Environment, url: str) -> None:
    open_object_store(url.format(tmp_path / "store"), environment).put("a", b"")

    assert (tmp_path / "store" / "a").exists()


@pytest.mark.parametrize("wrong", ["0", "no", "off", "", 0, 1, "yes", None])
@pytest.mark.parametrize(("name", "url"), [("fsync", "store"), ("anon", "s3://bucket")])
def test_a_switch_of_an_object_store_is_true_or_false(
    environment: Environment, url: str, name: str, wrong: object
) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is .*; it must be true or false"):
        open_object_store(url, environment, **{name: wrong})


@pytest.mark.parametrize("name", ["endpoint_url", "key", "secret", "token", "region", "profile"])
def test_a_text_of_an_object_store_is_a_string_and_is_not_repeated(environment: Environment, name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is of type bytes; it must be a string") as caught:
        open_object_store("s3://bucket", environment, **{name: b"hush"})

    assert "hush" not in str(caught.value)


def test_a_path_that_the_system_cannot_encode_is_refused(environment: Environment) -> None:
    for path in ("\ud800", "a\0b"):
        with pytest.raises(InvalidOption, match="a character that no path may have"):
            open_object_store(path, environment)


@pytest.mark.parametrize("url", ["", "s3:///prefix", "file://host/path", "file://"])
def test_an_unknown_url_is_refused(environment: Environment, url: str) -> None:
    with pytest.raises(InvalidOption):
        open_object_store(url, environment)


def test_an_s3_prefix_follows_the_rules_of_paths(environment: Environment) -> None:
    with pytest.raises(InvalidRequest):
        open_object_store("s3://bucket/a/../b", environment)


def test_credentials_in_a_url_are_refused_and_not_repeated(environment: Environment) -> None:
    for url, options in (
        ("s3://me:hush@bucket/prefix", {}),
        ("s3://bucket/prefix?secret=hush", {}),
        ("s3://bucket/prefix", {"endpoint_url": "http://me:hush@host"}),
    ):
        with pytest.raises(InvalidOption) as raised:
            open_object_store(url, environment, **options)
        assert "hush" not in str(raised.value)


def test_an_unknown_option_names_the_valid_ones(environment: Environment) -> None:
    with pytest.raises(InvalidOption, match=r"endpoint_url.*region.*secret"):
        open_object_store("s3://bucket", environment, endpoint="http://localhost")
    for url in ("/some/path", "memory://name"):
        with pytest.raises(InvalidOption, match="region"):
            open_object_store(url, environment, region="eu-west-1")


@pytest.mark.parametrize(
    "options",
    [
        {"key": "only"},
        {"secret": "only"},
        {"key": "k", "secret": "s", "anon": True},
        {"anon": "perhaps"},
        {"connect_timeout_ms": "soon"},
        {"read_timeout_ms": 0},
        {"max_attempts": 0},
        {"retry_base_ms": -1},
        {"endpoint_url": "localhost:9000"},
        {"endpoint_url": "http://[host]:9000"},
        {"endpoint_url": "http://[::1"},
        {"endpoint_url": "http://host:99999"},
        {"credentials": "no-function"},
        {"credentials": "m:f", "anon": True},
    ],
)
def test_a_senseless_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        S3Options.of(options)


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("gs", {"token": "hush", "anon": "true"}),
        ("gs", {"key_file": "f", "credentials": "m:f"}),
        ("gs", {"region": "r"}),
        ("az", {"account_key": "hush", "sas_token": "hush"}),
        ("az", {"tenant_id": "t", "client_id": "c"}),
        ("az", {"client_secret": "hush"}),
        ("az", {"key": "hush"}),
        ("az", {"credentials": "hush"}),
    ],
)
def test_a_senseless_option_of_a_cloud_is_refused_and_not_repeated(
    environment: Environment, scheme: str, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_object_store(f"{scheme}://b/p", environment, **options)

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["Not A Name", "host.example/", "host.example#", "UPPER", "ab", "a" * 25])
def test_an_accounts_name_cannot_lead_to_another_server(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(InvalidOption, match="is no valid name: 3 to 24 lowercase letters and digits"):
        account_of(AzureOptions(account=name), None)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", name)
    with pytest.raises(InvalidOption, match="Correct the option account or AZURE_STORAGE_ACCOUNT"):
        account_of(AzureOptions(), None)


def test_the_environment_names_the_account_and_its_key_only_for_that_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=mine;AccountKey=aHVzaA==")

    assert account_of(AzureOptions(), None).credentials == {"account_key": "aHVzaA=="}
    assert account_of(AzureOptions(), "mine.blob.core.windows.net").credentials == {"account_key": "aHVzaA=="}
    assert account_of(AzureOptions(), "other.blob.core.windows.net").credentials == {}
    assert account_of(AzureOptions(account="other"), None).endpoint == "https://other.blob.core.windows.net"
    assert "aHVzaA" not in repr(account_of(AzureOptions(), None))
