"""The real S3 server that tests and the demo use: one put of many wins, it keeps its credentials, and it ends."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

import pytest

from eoslog.storage.environment import Environment
from eoslog.storage.object_store import PutOutcome
from tests.conftest import s3_store_at
from tests.s3.servers import REPOSITORY, S3Server

pytestmark = pytest.mark.s3

RACERS = 32
ROUNDS = 10
SCRIPT = REPOSITORY / "conf/s3_server.sh"


def test_exactly_one_of_many_racing_puts_lands(real_server: S3Server, environment: Environment) -> None:
    store = s3_store_at(real_server, real_server.new_bucket(), environment)
    start = threading.Barrier(RACERS)

    def race(number: int, path: str) -> PutOutcome:
        start.wait()
        return store.put_if_absent(path, b"%d" % number * (1 if number % 2 else 20_000))

    with ThreadPoolExecutor(RACERS) as threads:
        for round_number in range(ROUNDS):
            path = f"slot/{round_number}"
            outcomes = list(threads.map(race, range(RACERS), [path] * RACERS))

            assert outcomes.count(PutOutcome.CREATED) == 1
            winner = outcomes.index(PutOutcome.CREATED)
            assert store.get(path).body == b"%d" % winner * (1 if winner % 2 else 20_000)


def test_the_credentials_stand_in_a_file_of_the_owner_alone(real_server: S3Server, tmp_path: Path) -> None:
    try:
        told = subprocess.run([SCRIPT, "start", tmp_path], capture_output=True, text=True, check=True)
        environment = tmp_path / "environment"
        secret = environment.read_text().split("AWS_SECRET_ACCESS_KEY=")[1].strip()

        assert environment.stat().st_mode & 0o777 == 0o600
        assert len(secret) == 40
        assert secret not in told.stdout + told.stderr + (tmp_path / "s3.log").read_text()
        assert secret != real_server.secret
    finally:
        subprocess.run([SCRIPT, "stop", tmp_path], check=True)
    assert not (tmp_path / "environment").exists()


def test_a_server_ends_when_the_process_that_started_it_is_killed(real_server: S3Server) -> None:
    code = dedent("""
        from tests.s3.servers import real_s3_server

        with real_s3_server() as server:
            print(server.endpoint_url, flush=True)
            input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        place = urlsplit(process.stdout.readline())
        assert listens(place.port)
        process.kill()

    deadline = time.monotonic() + 120
    while listens(place.port):
        assert time.monotonic() < deadline, "the server outlives its starter"
        time.sleep(0.1)


def listens(port: int | None) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port or 0)) == 0
