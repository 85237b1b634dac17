"""A command's signature declares its arguments and options."""

from __future__ import annotations

from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner

from eoslog.cli.options import COMMANDS, COUNT, Param, Session, command, parsed


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """A command that prints its values."""
    monkeypatch.setattr("eoslog.cli.options.COMMANDS", dict(COMMANDS))

    @command("sample", "t 1")
    @click.option("--far", "view", flag_value="far")
    @click.option("--near", "view", flag_value="near", default=True)
    def sample(
        session: Session,
        topic: str,
        numbers: tuple[int, ...] = (),
        *,
        yes: Annotated[bool, Param("Do it.")] = False,
        max_count: Annotated[int, Param("The most.", "N", COUNT)] = 7,
        offset: int | None = None,
        name: Annotated[tuple[str, ...], Param("A name.", "NAME", parsed(str.upper), name="--called")] = (),
        **rest: Any,
    ) -> None:
        """Do something."""
        click.echo(repr((session.as_json, topic, numbers, yes, max_count, offset, name, rest)))

    return sample


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("t", (False, "t", (), False, 7, None, (), {"view": "near"})),
        ("t 1 2 --yes --json", (True, "t", (1, 2), True, 7, None, (), {"view": "near"})),
        ("t --max-count 1 --offset 0 --far", (False, "t", (), False, 1, 0, (), {"view": "far"})),
        ("t --called a --called b", (False, "t", (), False, 7, None, ("A", "B"), {"view": "near"})),
    ],
)
def test_values_come_as_the_signature_says(made: click.Command, arguments: str, values: tuple[Any, ...]) -> None:
    assert CliRunner().invoke(made, arguments).stdout == f"{values!r}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing argument 'TOPIC'"),
        ("t --max-count 0", "0 is not in the range x>=1"),
        ("t --offset -1", "-1 is not in the range x>=0"),
        ("t -- -1", "-1 is not in the range x>=0"),
        ("t --called", "requires an argument"),
    ],
)
def test_other_values_are_wrong_usage(made: click.Command, arguments: str, message: str) -> None:
    result = CliRunner().invoke(made, arguments)

    assert (result.exit_code, message in result.stderr) == (2, True)


def test_the_help_shows_defaults_and_examples(made: click.Command) -> None:
    text = CliRunner().invoke(made, "--help").stdout

    assert "--max-count N" in text
    assert "[default: 7; x>=1]" in text
    assert "Example:\n    eoslog --store my-store sample t 1\n" in text
