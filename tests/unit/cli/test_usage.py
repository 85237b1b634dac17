"""How the command is asked: help, global options, wrong usage, errors, and what names may hold."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import eoslog
from eoslog.cli import console, group_commands, topic_commands, transaction_commands
from eoslog.cli.rendering import shown
from eoslog.main import cli
from tests.unit.cli.command import Command


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))
NEEDED = {
    ("topics", "alter"): ("--partitions", "2"),
    ("groups", "remove-member"): ("--all",),
    ("groups", "reset-offsets"): ("t", "--to-latest"),
    ("alter",): ("--max-transaction-timeout-ms", "1"),
    ("export",): ("--format", "csv"),
    ("import",): ("--format", "csv"),
}
"""What some commands need beside their arguments."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_text_with_an_example_of_itself(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])

    assert result.exit_code == 0
    assert f"eoslog --store my-store {' '.join(path)}" in result.stdout


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_command_shows_an_example_twice(path: tuple[str, ...]) -> None:
    examples = COMMANDS[path].examples

    assert len(examples) == len(set(examples))


def test_a_long_example_is_broken_before_options_where_a_shell_continues_it() -> None:
    text = CliRunner().invoke(cli, ["topics", "create", "--help"]).stdout

    assert (
        "Examples:\n"
        "  eoslog --store my-store topics create payments \\\n"
        "    --partitions 3 \\\n"
        "    --config retention.ms=604800000\n"
    ) in text


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_every_help_text_fits_a_terminal_of_80_columns(path: tuple[str, ...]) -> None:
    lines = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).stdout.splitlines()

    assert [line for line in lines if len(line) > 80] == []


def test_the_list_of_commands_says_what_their_own_help_says() -> None:
    listed = CliRunner().invoke(cli, ["--help"], terminal_width=300).stdout

    context = click.Context(cli)
    for name in cli.list_commands(context):
        _, command, _ = cli.resolve_command(context, [name])
        assert command is not None
        assert command.name == name
        assert re.search(f"  {name} +{re.escape(command.get_short_help_str(limit=300))}\n", listed)


@pytest.mark.parametrize("module", [console, group_commands, topic_commands, transaction_commands])
def test_the_list_of_a_group_says_what_its_module_says(module: ModuleType) -> None:
    (group,) = (each for each in vars(module).values() if isinstance(each, click.Group))
    listed = cli.commands[str(group.name)]

    assert isinstance(listed, click.Group)
    assert listed.get_short_help_str(limit=300) == group.get_short_help_str(limit=300)
    assert {name: each.get_short_help_str(limit=300) for name, each in listed.commands.items()} == {
        name: each.get_short_help_str(limit=300) for name, each in group.commands.items()
    }


def test_an_unknown_command_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["topic"])

    assert (result.exit_code, "No such command 'topic'. Did you mean 'topics'?" in result.stderr) == (2, True)
    assert "Did you mean" not in CliRunner().invoke(cli, ["nothing"]).stderr


def test_the_help_of_the_command_imports_only_what_it_prints() -> None:
    program = """
import sys
from eoslog.main import cli
cli(["--help"], standalone_mode=False)
heavy = {"botocore", "numpy", "pandas", "pyarrow", "pydantic", "rich", "sqlglot", "pyspark"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_takes_the_global_options(path: tuple[str, ...]) -> None:
    options = {name for parameter in COMMANDS[path].params for name in parameter.opts}

    assert {"--store", "--config", "--json"} <= options


@pytest.mark.parametrize("path", [(), ("topics",), ("transactions",), ("console",)], ids=" ".join)
def test_a_group_of_commands_lists_them(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])

    assert result.exit_code == 0
    assert all(each[len(path)] in result.stdout for each in COMMANDS if each[: len(path)] == path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topics create t --column n:number", "'n:number' is not NAME:TYPE; the types are string, binary"),
        ("topics create t --column number", "is not NAME:TYPE"),
        ("topics create t --column n:decimal(39,2)", "is not NAME:TYPE"),
        ("topics create t --column n:int --schema-from {file}", "--column or --schema-from, not both"),
        ("topics create t --schema-from {file}", "is not a Parquet file"),
        ("topics create t --schema-from {file}x", "does not exist"),
        ("topics create t --partitions 0", "not in the range"),
        ("topics create t --partitions many", "not a valid integer"),
        ("topics create", "Missing argument 'NAME'"),
        ("topics alter t --partitions 2 --config retention.ms=1", "not both"),
        ("topics alter t", "Nothing to alter: give --config"),
        ("groups describe", "Give GROUP, or --all-groups"),
        ("groups describe billing --all-groups", "Give GROUP, or --all-groups"),
        ("groups reset-offsets billing t", "Give exactly one new position: --to-earliest"),
        ("groups reset-offsets billing t --to-earliest --shift-by 1", "Give exactly one new position: --to-earliest"),
        ("topics delete-records t --offset 5", "'5' is not PARTITION:OFFSET"),
        ("topics delete-records t --offset 0:all", "'0:all' is not PARTITION:OFFSET"),
        ("transactions describe-producers t -- -1", "not in the range"),
        ("transactions find-hanging --max-transaction-timeout soon", "not a valid integer"),
        ("transactions find-hanging --partition 0", "--partition needs --topic"),
        ("transactions list --duration-filter -1", "not in the range"),
        ("transactions abort", "by its ID, or by --topic"),
        ("transactions abort etl-1 --topic t", "by its ID, or by --topic"),
        ("transactions abort --topic t --partition 0", "by its ID, or by --topic"),
        ("console produce t --commit-every 5", "--commit-every needs --transactional-id"),
        ("console produce t --key-separator=", "must not be empty"),
        ("console consume t --offset 5", "--offset needs --partition"),
        ("console consume t --partition 0 --offset 5 --from-beginning", "not both"),
        ("console consume t --partition 0 --group g", "leave --partition out"),
        ("console consume t --isolation-level dirty", "read_committed"),
        ("console consume t --max-records 0", "not in the range"),
        ("console consume t --max-messages 5", "Did you mean --max-records?"),
        ("console consume t --timeout-ms 5", "No such option '--timeout-ms'. Did you mean --timeout?"),
        ("topics list --bootstrap-server localhost:9092", "Did you mean --store?"),
        ("topics list --max-messages 5", "No such option"),
        ("topics list --config {file}x", "does not exist"),
        ("nothing", "No such command"),
    ],
)
def test_wrong_usage_is_explained(command: Command, tmp_path: Path, arguments: str, message: str) -> None:
    file = tmp_path / "file"
    file.write_text("no Parquet")

    result = command.run(*arguments.format(file=file).split())

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not Path(command.url).exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("topics create t", "TOPIC_ALREADY_EXISTS"),
        ("topics create ../t", "INVALID_TOPIC"),
        ("topics create new --partitions 10001", "INVALID_TOPIC"),
        ("topics create new --key k", "INVALID_TOPIC"),
        ("topics create new --add-config retention.ms=soon", "INVALID_TOPIC"),
        ("topics create new --add-config bogus=1", "INVALID_TOPIC"),
        ("topics alter t --config retention.ms", "INVALID_TOPIC"),
        ("topics alter t --delete-config bogus", "INVALID_TOPIC"),
        ("topics alter t --partitions 1", "INVALID_TOPIC"),
        ("topics delete-records t --offset 0:1 --yes", "OFFSET_OUT_OF_RANGE"),
        ("topics delete-records t --offset 1:0 --yes", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topics delete-records absent --yes", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topics alter absent --config retention.ms=1", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topics create new --column a:int --key k", "INVALID_TOPIC"),
        ("topics create new --column a:int --column A:int", "UNSUPPORTED_SCHEMA"),
        ("topics describe absent", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topics delete absent --yes", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("transactions list --transactional-id-pattern '(ab(cd'", "INVALID_REGULAR_EXPRESSION"),
        ("transactions describe ''", "INVALID_REQUEST"),
        ("transactions find-hanging --topic absent", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("transactions abort --topic t --partition 0 --start-offset 7", "INVALID_REQUEST"),
        ("transactions describe absent", "TRANSACTIONAL_ID_NOT_FOUND"),
        ("transactions abort absent", "TRANSACTIONAL_ID_NOT_FOUND"),
        ("transactions describe-producers t 1", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("offsets absent", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("offsets t --group absent", "GROUP_ID_NOT_FOUND"),
        ("console produce absent", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("console produce t --partition 1", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("console consume absent --timeout 0", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("console consume t --partition 1 --timeout 0", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topics list --store ftp://place", "INVALID_OPTION"),
        ("topics list --store memory://nothing", "NOT_A_STORE"),
    ],
)
def test_an_error_is_one_line_that_begins_with_its_code(
    command: Command, store: eoslog.Store, arguments: str, code: str
) -> None:
    result = command.run(*shlex.split(arguments), text="line\n")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"[EOSLOG_{code}] ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("path", [each for each in COMMANDS if each != ("topics", "create")], ids=" ".join)
def test_no_command_but_that_which_creates_a_topic_makes_a_store(command: Command, path: tuple[str, ...]) -> None:
    wanted = [
        parameter
        for parameter in COMMANDS[path].params
        if isinstance(parameter, click.Argument) and (parameter.nargs == 1 or parameter.required)
    ]

    result = command.run(*path, *map(_argument, wanted), *NEEDED.get(path, ()))

    could_not_look = 2 if path == ("verify",) else 1
    assert result.exit_code == could_not_look
    assert result.stderr.startswith("[EOSLOG_NOT_A_STORE] ")
    assert not Path(command.url).exists()


def _argument(parameter: click.Argument) -> str:
    return __file__ if isinstance(parameter.type, click.Path) and parameter.type.exists else "0"


def test_without_a_store_the_command_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOSLOG_STORE", raising=False)

    result = CliRunner().invoke(cli, ["topics", "list"])

    assert result.exit_code == 2
    assert "EOSLOG_STORE" in result.stderr


def test_the_store_comes_from_the_option_the_environment_or_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable", "file"):
        Command(str(tmp_path / name)).ok("topics", "create", name)
    config = tmp_path / "settings.toml"
    config.write_text(f'store = "{tmp_path / "file"}"\n')

    def topics(*arguments: str) -> list[str]:
        result = CliRunner().invoke(cli, [*arguments, "topics", "list", "--json"])
        return [each["topic"] for each in json.loads(result.stdout)]

    assert topics("--config", str(config)) == ["file"]
    monkeypatch.setenv("EOSLOG_CONFIG", str(config))
    assert topics() == ["file"]
    monkeypatch.setenv("EOSLOG_STORE", str(tmp_path / "variable"))
    assert topics() == ["variable"]
    assert topics("--store", str(tmp_path / "option")) == ["option"]


def test_global_options_stand_before_or_after_the_command(command: Command, store: eoslog.Store) -> None:
    before = CliRunner().invoke(cli, ["--json", "--store", command.url, "topics", "list"])
    after = CliRunner().invoke(cli, ["topics", "list", "--json", "--store", command.url])

    assert before.stdout == after.stdout
    assert json.loads(after.stdout)[0]["topic"] == "t"


def test_a_wrong_settings_file_is_an_error_that_shows_no_secret(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('[s3]\nsecret = "hush"\n')

    result = command.run("topics", "list", "--config", str(config))

    assert result.exit_code == 1
    assert result.stderr.startswith("[EOSLOG_INVALID_OPTION] ")
    assert "hush" not in result.output


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(cli, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("eoslog")


def test_ids_are_shown_as_they_are_but_never_act_on_the_terminal(command: Command, store: eoslog.Store) -> None:
    for name in ("[red]job[/]", ":bomb:", "right\u202eleft"):
        store.producer(name).init_transactions()

    text = command.ok("transactions", "list")

    assert "[red]job[/]" in text
    assert ":bomb:" in text
    assert r"right\u202eleft" in text
    assert len(text.splitlines()) == 4


def test_a_long_id_is_not_cut_off(command: Command, store: eoslog.Store) -> None:
    store.producer("x" * 1000).init_transactions()

    assert "x" * 1000 in command.ok("transactions", "list")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (1_048_576, "1048576"),
        ([], "-"),
        (["a", "b"], "a, b"),
        ("é", "é"),
        ("a\x1b[2J\n", r"a\x1b[2J\n"),
    ],
)
def test_a_value_is_shown_on_one_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_verbose_logs_to_standard_error_until_the_command_ends(command: Command, store: eoslog.Store) -> None:
    once = command.run("-v", "topics", "list", "--json")
    twice = command.run("topics", "list", "-vv")
    quiet = command.run("topics", "list")

    assert json.loads(once.stdout)[0]["topic"] == "t"
    assert "INFO eoslog.session.session: " in once.stderr
    assert "DEBUG" not in once.stderr
    assert re.search(r"DEBUG eoslog.storage.requests: .*: GET eoslog.json: done in [0-9]+ ms\n", twice.stderr)
    assert quiet.stderr == ""


def test_a_logged_name_does_not_act_on_the_terminal(command: Command, store: eoslog.Store) -> None:
    name = "right\u202eleft"

    result = command.run("-v", "console", "produce", "t", "--transactional-id", name, text="line\n")

    assert result.exit_code == 0
    assert "committed 1 row in 1 file" in result.stderr
    assert "\u202e" not in result.stderr


def test_missing_credentials_of_azure_are_one_line_and_its_library_is_heard_with_verbose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "nobody")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")

    def said(*options: str) -> list[str]:
        with Command("az://container/prefix").start(*options, "describe") as process:
            _, errors = process.communicate()
        assert process.returncode == 1
        return errors.decode().splitlines()

    (only,) = said()
    assert only.startswith("[EOSLOG_STORE_ACCESS_DENIED] az://container/prefix: there are no credentials")
    first, last = said("--verbose")
    assert "WARNING azure.identity" in first
    assert last == only
