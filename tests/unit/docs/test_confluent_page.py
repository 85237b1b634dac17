"""The page on Kafka's Python clients: its program runs, and its tables of keys are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eoslog.errors import InvalidOption
from eoslog.session.client_options import CONSUMER_CONFIG, PRODUCER_CONFIG, KafkaConfig
from eoslog.store import Store
from tests.pages import REPOSITORY, fenced_blocks, prose, run_examples, table_rows

PAGE = REPOSITORY / "docs/from-confluent-kafka.md"
KEYS = {"producer": PRODUCER_CONFIG, "consumer": CONSUMER_CONFIG}


def keys(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_program_runs_and_the_other_one_is_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    of_kafka, *blocks = fenced_blocks(PAGE, "python")
    assert "confluent_kafka" in of_kafka
    assert len(blocks) == 3

    compile(of_kafka, "page", "exec")
    run_examples(blocks, tmp_path)

    assert tuple(capfd.readouterr()) == ("", "")


def test_the_renamed_keys_are_those_of_the_code() -> None:
    told = {(client, *keys(key), keys(option)[0]) for client, key, option in table_rows(PAGE, "renamed")}

    assert told == {(client, *pair) for client, known in KEYS.items() for pair in known.other_names.items()}


def test_the_keys_with_one_value_are_those_of_the_code() -> None:
    told = {(client, *keys(key)): tuple(keys(values)) for client, key, values in table_rows(PAGE, "fixed")}

    assert told == {(client, key): values for client, known in KEYS.items() for key, (values, _) in known.fixed.items()}


def test_the_refused_keys_are_those_of_the_code() -> None:
    told = {(client, key) for client, cell in table_rows(PAGE, "refused") for key in keys(cell)}

    assert told == {(client, key) for client, known in KEYS.items() for key in known.refused}


def test_each_ignored_key_that_is_named_is_ignored() -> None:
    (text,) = re.findall(r"are ignored: (.*?) and the like", prose(PAGE), re.DOTALL)
    named = [key.replace("_", ".").replace("*", "x") for key in keys(text)]
    assert len(named) > 10

    assert [key for key in named if not any(known.is_ignored(key) for known in KEYS.values())] == []


@pytest.mark.parametrize(("client", "known"), KEYS.items())
def test_every_refused_key_says_what_to_do(store: Store, client: str, known: KafkaConfig) -> None:
    opening = getattr(store, client)

    for key in known.refused:
        with pytest.raises(InvalidOption, match=f"'{key}' is not supported: ."):
            opening(config={key: "x"})
