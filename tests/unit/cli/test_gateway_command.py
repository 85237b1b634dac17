"""``gateway``: how it starts, what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import eoslog
from eoslog.errors import StoreUnavailable
from eoslog.gateway.scram import ScramUsers, write_user
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import StoredObject
from tests.certificates import write_certificate
from tests.depth import sweep
from tests.pages import table_rows
from tests.programs import ran
from tests.unit.cli.command import REPOSITORY, Command
from tests.unit.gateway.raw_client import Client, batch, fetch, produce, running, values_of
from tests.unit.test_prometheus import fetch as fetch_page
from tests.unit.test_prometheus import value

CLIENTS_PAGE = REPOSITORY / "docs/kafka-clients.md"

_MAPS = Path("/proc/self/maps")
"""The files that a process has loaded, on Linux."""


def refused(command: Command, *arguments: str, missing: str) -> tuple[int, str]:
    """The status and the output of a gateway that does not start, as a package is not installed."""
    program = f"import sys\nsys.modules[{missing!r}] = None\nfrom eoslog.main import main\nmain()"
    status, _, errors = ran(program, "--store", command.url, "gateway", *arguments)
    return status, errors


@pytest.mark.parametrize("number", sweep([signal.SIGTERM, signal.SIGINT], quick=[signal.SIGTERM]))
def test_it_serves_clients_until_a_signal_ends_it(command: Command, store: eoslog.Store, number: int) -> None:
    # Programs of tests have pandas, so this one is none of them.
    words = [sys.executable, "-m", "eoslog.main", "--store", command.url, "gateway", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith(f"serving {command.url} to Kafka's clients: 127.0.0.1:")
        with Client(int(line.partition(";")[0].rpartition(":")[2])) as client:
            assert produce(client, ("t", 0, batch(b"v")))[0].base_offset == 0
            assert values_of(fetch(client, "t", 0).records) == [(0, b"v")]
            if _MAPS.exists():
                # Arrow imports pandas if it can, and the first client waits for that.
                assert "/pandas/" not in Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, error) == (0, b"")
    assert [row["value"] for row in store.scan("t").to_table().to_pylist()] == [b"v"]


def test_it_serves_its_metrics_and_its_health_until_it_ends(command: Command, store: eoslog.Store) -> None:
    with command.start("gateway", "--listen", "127.0.0.1:0", "--metrics-port", "0") as process:
        metrics, serving = (process.stderr.readline().decode() for _ in range(2))
        port = int(metrics.removeprefix("metrics: http://127.0.0.1:").removesuffix("/metrics\n"))
        with Client(int(serving.partition(";")[0].rpartition(":")[2])) as client:
            produce(client, ("t", 0, batch(b"v")))
        probed = [fetch_page(port, path) for path in ("/livez", "/readyz")]
        text = fetch_page(port, "/metrics")[1]
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate()

    assert probed == [(200, "alive\n"), (200, "ready\n")]
    assert value(text, "eoslog_gateway_requests_total", api="produce", outcome="NONE") == 1
    assert (process.returncode, error) == (0, b"")


@pytest.mark.parametrize("checked", [(), ("--check",)], ids=["run", "check"])
def test_a_port_for_metrics_that_is_taken_ends_it(
    command: Command, store: eoslog.Store, checked: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = command.run("gateway", "--listen", "127.0.0.1:0", "--metrics-port", port, *checked)

    assert result.exit_code == 2
    assert f"127.0.0.1:{port} cannot be used" in result.stderr


def test_a_check_names_no_metrics_that_nobody_serves(command: Command, store: eoslog.Store) -> None:
    result = command.run("gateway", "--listen", "127.0.0.1:0", "--metrics-port", "0", "--check")

    assert result.exit_code == 0
    assert "metrics:" not in result.stderr


@pytest.mark.parametrize("arguments", [("gateway", "--check"), ("coordinator",)], ids=["gateway", "coordinator"])
def test_metrics_without_their_package_are_refused(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.delitem(sys.modules, "eoslog.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    result = command.run(*arguments, "--metrics-port", "0")

    assert result.exit_code == 2
    assert "pip install prometheus-client" in result.stderr


@pytest.mark.parametrize("rack", ["", "r" * 256], ids=["empty", "long"])
def test_a_rack_without_a_name_is_refused(command: Command, store: eoslog.Store, rack: str) -> None:
    result = command.run("gateway", "--check", "--listen", "127.0.0.1:0", "--rack", rack)

    assert result.exit_code == 2
    assert "is not a name of 1 to 255 characters" in result.stderr


def test_a_linger_that_clients_do_not_wait_for_is_refused(command: Command, store: eoslog.Store) -> None:
    longest = command.json("gateway", "--check", "--listen", "127.0.0.1:0", "--linger-ms", "10000")
    result = command.run("gateway", "--check", "--listen", "127.0.0.1:0", "--linger-ms", "10001")

    assert longest["linger_ms"] == 10_000
    assert result.exit_code == 2
    assert "10001 ms are too long" in result.stderr
    assert "Give at most 10000." in result.stderr


def test_the_check_names_the_settings_of_clients_as_the_page_does(command: Command, store: eoslog.Store) -> None:
    found = command.json("gateway", "--check", "--listen", "127.0.0.1:0")["clients"]
    text = " ".join(command.ok("gateway", "--check", "--listen", "127.0.0.1:0", "--wide").split())

    page = [[cell.replace("`", "") for cell in row] for row in table_rows(CLIENTS_PAGE, "clients")]
    shown = [(each["client"], each["settings"]) for each in found]
    assert [tuple(row) for row in page if row[0] != "all"] == shown
    assert all(settings in text for _, settings in shown)


def test_the_check_fits_on_a_screen(command: Command, store: eoslog.Store) -> None:
    lines = command.ok("gateway", "--check", "--listen", "127.0.0.1:0").splitlines()

    assert len(lines) <= 30
    assert not any(line.startswith("Api ") for line in lines)
    assert any(line.startswith("Api ") for line in command.ok("gateway", "--check", "--wide").splitlines())


def test_a_store_that_does_not_answer_fails_the_check(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(store: LocalStore, path: str) -> StoredObject:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(LocalStore, "get", unanswered)

    result = command.run("gateway", "--check", "--listen", "127.0.0.1:0")

    assert result.exit_code == 1
    assert "[EOSLOG_STORE_UNAVAILABLE]" in result.stderr


def test_the_check_shows_what_clients_need(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("columns", schema={"n": "long"})

    found = command.json("gateway", "--check", "--listen", "127.0.0.1:0", "--auto-create-topics")

    assert found["cluster_id"] == store.describe().store_id
    assert found["bootstrap.servers"].startswith("127.0.0.1:")
    assert found["auto_create_topics"] is True
    assert (found["default_partitions"], found["group_initial_rebalance_delay_ms"]) == (1, 3_000)
    assert found["transactional.id"] == found["group.id"] == "any"
    assert {"api": "end_txn", "min_version": 0, "max_version": 5} in found["apis"]
    assert {"api": "fetch", "min_version": 4, "max_version": 12} in found["apis"]
    assert [(each["topic"], each["is_served"]) for each in found["topics"]] == [("columns", False), ("t", True)]


def test_the_check_shows_the_protocol_of_connections(command: Command, store: eoslog.Store, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    tls = ("--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    write_user(tmp_path / "users", "alice", "alice's secret", Environment())
    scram = ("--users", str(tmp_path / "users"))
    oauth = ("--oauth-jwks-url", "https://example.com/keys", "--oauth-issuer", "i", "--oauth-audience", "a")

    shown = [
        command.json("gateway", "--check", "--listen", "127.0.0.1:0", *options)
        for options in ((), tls, scram, (*tls, *scram, *oauth))
    ]

    assert [(each["security.protocol"], each["sasl.mechanism"]) for each in shown] == [
        ("PLAINTEXT", None),
        ("SSL", None),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER"),
    ]
    everywhere = ("gateway", "--check", "--listen", "0.0.0.0:0", *tls, *scram)
    assert command.run(*everywhere, "--advertise", "kafka.example.com:9092").exit_code == 0
    result = command.run("gateway", "--check", *tls[:2])
    assert (result.exit_code, "Give --tls-certificate and --tls-key" in result.stderr) == (1, True)


def test_the_check_shows_the_brokers_that_clients_get(command: Command, store: eoslog.Store) -> None:
    options = ["--rack", "a", "--listen", "127.0.0.1:0", "--advertise"]
    with running(store, rack="b") as other:
        found = command.json("gateway", "--check", *options, "127.0.0.1:1")

        assert [(each["address"], each["rack"]) for each in found["brokers"]] == [
            ("127.0.0.1:1", "a"),
            (f"127.0.0.1:{other.port}", "b"),
        ]
        assert found["brokers"][1]["node_id"] == other.node_id


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "192.0.2.1:9092", "[::]:9092", "example.com:9092"])
def test_other_machines_cannot_connect(command: Command, store: eoslog.Store, address: str) -> None:
    result = command.run("gateway", "--listen", address, "--check")

    assert result.exit_code == 1
    assert "[EOSLOG_INVALID_OPTION] the gateway cannot listen on" in result.stderr
    said = " ".join(result.stderr.split())
    assert "Add TLS (--tls-certificate and --tls-key) and SASL (--users, or --oauth-jwks-url" in said


@pytest.mark.parametrize("password", ["alice's secret", "größer=,secret"])
def test_a_new_user_is_in_the_file_without_the_password(command: Command, tmp_path: Path, password: str) -> None:
    users = tmp_path / "users"
    for name in ("alice", "bob", "alice"):
        result = command.run("gateway", "--users", str(users), "--new-user", name, text=f"{password}\n".encode())
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    assert ScramUsers(users)
    assert [line.partition(":")[0] for line in users.read_text().splitlines()] == ["*", "bob", "bob", "alice", "alice"]
    assert password not in users.read_text()


def test_a_new_user_needs_a_file_and_a_password(command: Command, tmp_path: Path) -> None:
    without_file = command.run("gateway", "--new-user", "alice", text=b"alice's secret\n")
    assert (without_file.exit_code, "--new-user needs --users FILE" in without_file.stderr) == (2, True)
    without_password = command.run("gateway", "--users", str(tmp_path / "users"), "--new-user", "alice", text=b"")
    assert (without_password.exit_code, "8 to 1000 characters" in without_password.stderr) == (1, True)
    assert not list(tmp_path.glob("*"))


@pytest.mark.parametrize("address", ["9092", ":9092", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:9092"])
def test_an_address_has_a_host_and_a_port(command: Command, address: str) -> None:
    result = command.run("gateway", "--listen", address, "--check")

    assert result.exit_code == 2
    assert "is not HOST:PORT" in result.stderr


@pytest.mark.parametrize("host", ["gäteway", "a b", "a/b", "x" * 256, "[::1" + "0" * 300 + "]"])
def test_clients_get_an_address_that_the_log_can_have(command: Command, host: str) -> None:
    result = command.run("gateway", "--listen", "127.0.0.1:0", "--advertise", f"{host}:9092", "--check")

    assert result.exit_code == 2
    assert "is not HOST:PORT" in result.stderr


@pytest.mark.parametrize("host", ["kafka_1.example.com", "[fe80::1%eth0]"])
def test_clients_may_get_another_address(command: Command, store: eoslog.Store, host: str) -> None:
    result = command.run("gateway", "--listen", "127.0.0.1:0", "--advertise", f"{host}:9092", "--check")

    assert result.exit_code == 0
    assert f"{host}:9092" in result.stdout


def test_clients_are_not_told_port_0(command: Command) -> None:
    result = command.run("gateway", "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:0", "--check")

    assert result.exit_code == 2
    assert "Clients cannot connect to port 0. Give the port that they use." in " ".join(result.stderr.split())


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "[::]"])
def test_clients_are_not_told_an_address_of_no_machine(command: Command, store: eoslog.Store, host: str) -> None:
    result = command.run("gateway", "--listen", "127.0.0.1:0", "--advertise", f"{host}:9092", "--check")

    assert result.exit_code == 2
    assert "Give the host that they use." in " ".join(result.stderr.split())


def test_a_port_in_use_is_reported(command: Command, store: eoslog.Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = command.run("gateway", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--check")

    assert result.exit_code == 1
    assert "Address already in use. Choose another --listen" in result.stderr


def test_a_place_without_a_store_is_reported(tmp_path: Path) -> None:
    result = Command(str(tmp_path / "nothing")).run("gateway", "--check", "--listen", "127.0.0.1:0")

    assert (result.exit_code, "[EOSLOG_NOT_A_STORE]" in result.stderr) == (1, True)


@pytest.mark.parametrize("package", ["kio", "scramp", "jwt"])
def test_without_the_extra_the_command_says_how_to_install_it(command: Command, package: str) -> None:
    status, error = refused(command, "--check", missing=package)

    assert (status, "pip install '.[gateway]'" in error, "Traceback" in error) == (1, True, False)


def test_the_help_needs_no_extra(command: Command) -> None:
    assert refused(command, "--help", missing="kio")[0] == 0
