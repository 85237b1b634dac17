"""``eoslog ui`` as a process: its link, its end, and what it says if it cannot start."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

import eoslog
from eoslog.main import cli
from tests.depth import sweep
from tests.programs import Program


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = eoslog.connect(tmp_path / "store", fsync=False)
    store.admin.create_topic("payments")
    return store.url


def started(url: str | None, *options: str, program: str = "") -> Program:
    """The command as a process. The program runs before it."""
    store = () if url is None else ("--store", url)
    return Program(f"{program}\nfrom eoslog.main import main\nmain()", *store, "ui", *options)


@contextmanager
def console(url: str, *options: str) -> Iterator[tuple[Program, str]]:
    """The process and its link."""
    with started(url, *options) as process:
        yield process, process.stdout.readline().decode().strip()


def refused(url: str, *options: str, program: str = "") -> tuple[int, str]:
    with started(url, *options, program=program) as process:
        error = process.communicate()[1]
        return process.wait(), error.decode()


def test_the_link_opens_the_console(url: str) -> None:
    with console(url) as (_, link), httpx2.Client(follow_redirects=True) as browser:
        assert link.startswith("http://127.0.0.1:")
        page = browser.get(link)

    assert page.status_code == 200
    assert page.url.query == b""
    assert url in page.text
    assert "read-only" in page.text
    assert "server" not in page.headers


def test_only_this_machine_reaches_the_console(url: str) -> None:
    with console(url) as (_, link):
        port = int(link.partition("/?")[0].rpartition(":")[2])
        with socket.socket() as another, pytest.raises(ConnectionRefusedError):
            another.connect(("127.0.0.2", port))


def test_the_link_of_a_console_on_all_addresses_has_one_that_answers(url: str) -> None:
    with console(url, "--host", "0.0.0.0") as (_, link), httpx2.Client(follow_redirects=True) as browser:
        assert not link.startswith("http://0.0.0.0")
        assert browser.get(link).status_code == 200


def test_the_link_of_a_console_behind_a_proxy_is_that_of_the_proxy(url: str) -> None:
    with console(url, "--public-url", "https://console.example.com/") as (_, link):
        assert link.startswith("https://console.example.com/?token=")


def test_a_new_user_logs_in_to_a_console_of_several_stores(url: str, tmp_path: Path) -> None:
    asked = ["ui", "--new-user", "ada:admin"]
    line = CliRunner().invoke(cli, asked, input="correct horse\ncorrect horse\n")
    users = tmp_path / "users"
    users.write_text(line.stdout)
    options = (f"one={url}", f"two={url}", "--password-file", str(users))

    with started(None, *options) as process, httpx2.Client(follow_redirects=True, timeout=60) as browser:
        link = process.stdout.readline().decode().strip()
        page = browser.post(f"{link}login", data={"name": "ada", "password": "correct horse"})
        process.kill()
        told = process.stderr.read().decode()

    assert "Open this link" not in told
    assert f"Users log in at {link}." in told
    assert (page.status_code, str(page.url)) == (200, link)
    assert {"/stores/one/", "/stores/two/"} <= set(re.findall(r'href="([^"]+)"', page.text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--password-file", __file__, "--user-header", "X-User"), "not both"),
        (("--admin", "ada"), "need --user-header"),
        (("--store", "s", "a=b"), "not both"),
        (("a=b", "a=c"), "same name"),
        (("Not a name=b",), "NAME=URL"),
        (("--public-url", "console.example.com"), "as https://console.example.com"),
        (("--user-header", "X-User", "--proxy", "here"), "an address or a network"),
        (("--new-user", "ada:owner"), "the roles are viewer, admin"),
    ],
)
def test_options_that_do_not_fit_together_are_wrong_usage(options: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(cli, ["ui", *options])

    assert (result.exit_code, message in " ".join(result.stderr.split())) == (2, True)


@pytest.mark.parametrize("number", sweep([signal.SIGINT, signal.SIGTERM], quick=[signal.SIGTERM]))
def test_a_signal_ends_the_console_while_a_page_is_open(url: str, number: signal.Signals) -> None:
    with console(url) as (process, link), httpx2.Client(follow_redirects=True) as browser:
        browser.get(link)
        base = link.partition("/?")[0]
        with browser.stream("GET", f"{base}/live/topics") as stream:
            assert next(stream.iter_lines()) == ": open"
            process.send_signal(number)

            assert process.wait(60) == 0


def test_the_link_is_printed_as_json(url: str) -> None:
    with started(url, "--json") as process:
        lines = b"".join(process.stdout.readline() for _ in range(3))

    assert json.loads(lines)["url"].startswith("http://127.0.0.1:")


def test_a_token_is_not_logged(url: str) -> None:
    with console(url) as (process, link), httpx2.Client() as browser:
        browser.get(link)
        browser.get(link)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate()

    assert link.partition("token=")[2] not in (output + error).decode()


def test_a_port_in_use_is_reported(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, error = refused(url, "--port", str(taken.getsockname()[1]))

    assert status == 1
    assert "cannot listen on 127.0.0.1: Address already in use. Choose another --port" in error


def test_a_place_without_a_store_is_reported_before_a_link(tmp_path: Path) -> None:
    status, error = refused(str(tmp_path / "nothing"))

    assert (status, "[EOSLOG_NOT_A_STORE]" in error) == (1, True)


@pytest.mark.parametrize("package", sweep(["starlette", "jinja2", "uvicorn"], quick=["starlette"]))
def test_without_the_extra_the_command_says_how_to_install_it(url: str, package: str) -> None:
    status, error = refused(url, program=f"import sys; sys.modules['{package}'] = None")

    assert status == 1
    assert "pip install '.[ui]'" in error
    assert "Traceback" not in error


def test_the_help_needs_no_extra(url: str) -> None:
    program = "import sys; sys.modules.update(starlette=None, jinja2=None, uvicorn=None)"

    assert refused(url, "--help", program=program)[0] == 0
