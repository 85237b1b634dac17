"""Connections to S3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.loaders import JSONFileLoader  # type: ignore[import-untyped]

from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_transport import S3Transport


def connected() -> None:
    S3Transport("b", S3Options(endpoint_url="http://127.0.0.1:1", key="k", secret="s", region="r"))._connect()


def test_connections_of_a_process_share_the_description_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    connected()
    read: list[object] = []
    load_file = JSONFileLoader.load_file

    def noted(self: Any, path: str) -> Any:
        read.append(path)
        return load_file(self, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", noted)

    connected()

    assert read == []
