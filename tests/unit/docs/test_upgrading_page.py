"""The page on upgrades describes formats and features as the code has them."""

from __future__ import annotations

import re
import tomllib

from eoslog.copying import decisions
from eoslog.log import slots
from eoslog.session import description
from eoslog.state.features import READER_FEATURES, WRITER_FEATURES
from tests.pages import REPOSITORY, table_rows

PAGE = REPOSITORY / "docs/upgrading.md"


def test_the_newest_release_is_this_one_with_its_format_and_features() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    release, format_version, features = table_rows(PAGE, "releases")[-1]

    assert version.startswith(f"{release}.")
    formats = {slots.FORMAT_VERSION, description.FORMAT_VERSION, decisions.FORMAT_VERSION}
    assert formats == {int(format_version)}
    assert set(re.findall(r"`(\w+)`", features)) == READER_FEATURES | WRITER_FEATURES


def test_each_feature_has_the_call_that_brings_it() -> None:
    told = {row[0].strip("`") for row in table_rows(PAGE, "features")}

    assert told == READER_FEATURES | WRITER_FEATURES
