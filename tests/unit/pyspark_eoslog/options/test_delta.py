"""Options of Delta Lake that are not there: each is refused by its name, with what to give in its place."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from pyspark_eoslog.options import Options


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("startingVersion", "'startingOffsets'"),
        ("ignoreChanges", "leave it out"),
        ("skipChangeCommits", "failOnDataLoss"),
        ("readChangeFeed", "includeTransactionColumns"),
        ("overwriteSchema", "mergeSchema"),
        ("replaceWhere", "all rows of the topic"),
    ],
)
def test_a_missing_option_of_delta_lake_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(InvalidOption, match=f"option '{name}' of Delta Lake is not supported: .*{advice}"):
        Options.of({"path": "/store", "topic": "a", name.lower(): "true"})
