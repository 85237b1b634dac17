"""Where Spark finds a store's files, and under which options it looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eoslog.errors import InvalidOption
from pyspark_eoslog.native.lookup import PlannedFile, RowInterval, TimedRows
from pyspark_eoslog.native.native_scan import NativeFiles, quoted, s3a_options

FILE = PlannedFile("t/0/a.parquet", 10, 0, 0, 0, False, (RowInterval(0, 1),), None, (TimedRows(RowInterval(0, 1), 5),))
THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


def test_local_files_have_whole_paths_of_the_local_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert NativeFiles("store", {}).path(FILE) == f"file:{tmp_path.resolve()}/store/t/0/a.parquet"


def test_pattern_characters_in_a_path_are_escaped() -> None:
    assert NativeFiles("/a [b]{c,d}*?\\", {}).path(FILE) == r"file:/a \[b\]\{c,d\}\*\?\\/t/0/a.parquet"


def test_files_on_s3_are_read_through_s3a() -> None:
    assert NativeFiles("s3://bucket/prefix", {}).path(FILE) == "s3a://bucket/prefix/t/0/a.parquet"


@pytest.mark.parametrize(
    ("url", "options", "root"),
    [
        ("gs://bucket/prefix", {}, "gs://bucket/prefix"),
        ("abfss://c@a.dfs.core.windows.net/p", {}, "abfss://c@a.dfs.core.windows.net/p"),
        ("az://c/p", {"account": "a"}, "abfss://c@a.dfs.core.windows.net/p"),
        ("az://c", {"account": "a"}, "abfss://c@a.dfs.core.windows.net"),
    ],
)
def test_files_of_other_clouds_have_the_urls_of_hadoops_connectors(
    url: str, options: dict[str, str], root: str
) -> None:
    assert NativeFiles(url, options).path(FILE) == f"{root}/t/0/a.parquet"


def test_hadoops_url_of_azure_needs_the_account() -> None:
    with pytest.raises(InvalidOption, match=r"Give option store\.account"):
        NativeFiles("az://c/p", {})


def test_a_missing_or_damaged_file_is_never_passed_over() -> None:
    for url in ("/store", "s3://bucket"):
        options = NativeFiles(url, {}).read_options
        assert options["ignoreMissingFiles"] == options["ignoreCorruptFiles"] == "false"


def test_options_of_an_s3_store_reach_hadoop() -> None:
    given = {"endpoint_url": "http://127.0.0.1:5000", "key": "k", "secret": "s", "region": "r", "max_attempts": "3"}

    assert s3a_options(given) == {
        "fs.s3a.endpoint": "http://127.0.0.1:5000",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }


@pytest.mark.parametrize(
    ("given", "provider"),
    [
        ({}, None),
        ({"anon": "True"}, "AnonymousAWSCredentialsProvider"),
        ({"anon": "False"}, None),
        ({"key": "k", "secret": "s", "token": "t"}, "TemporaryAWSCredentialsProvider"),
    ],
)
def test_only_given_credentials_replace_those_of_the_session(given: dict[str, str], provider: str | None) -> None:
    found = s3a_options(given).get("fs.s3a.aws.credentials.provider")

    assert found == (None if provider is None else f"org.apache.hadoop.fs.s3a.{provider}")


def test_a_session_setting_is_changed_only_to_save_listing_tasks() -> None:
    local, s3 = NativeFiles("/store", {}), NativeFiles("s3://bucket", {})
    defaults = {THRESHOLD: 32, PARALLELISM: 10_000}

    assert local.listing_setting(32, defaults.__getitem__) == {}
    assert local.listing_setting(33, defaults.__getitem__) == {THRESHOLD: "33"}
    assert s3.listing_setting(33, defaults.__getitem__) == {PARALLELISM: "64"}
    assert s3.listing_setting(33, {PARALLELISM: 10}.__getitem__) == {}


def test_a_column_may_have_any_name() -> None:
    assert quoted("a`b.c d") == "`a``b.c d`"
