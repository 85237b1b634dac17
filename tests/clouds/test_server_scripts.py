"""The servers that scripts of ``conf/`` start: runs at the same time have a server each, also in one cache."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.s3.servers import REPOSITORY

pytestmark = pytest.mark.clouds

SCRIPTS = {
    "s3_server.sh": "s3",
    "gcs_server.sh": "gcs",
    "azure_server.sh": "azure",
    "iceberg_catalog.sh": "iceberg-catalog",
}
_COMMAND = "env | grep -o 'http://127.0.0.1:[0-9]*' | head -n 1; read end"


@pytest.fixture(params=SCRIPTS)
def scripts(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """The same script in two checkouts that share one cache by links. Its program is installed there."""
    name = request.param
    found = subprocess.run([REPOSITORY / "conf" / name, "find"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    installed = REPOSITORY / ".cache" / SCRIPTS[name]
    cache = tmp_path / "cache" / SCRIPTS[name]
    cache.mkdir(parents=True)
    for program in [*installed.glob("bin"), *installed.glob("npm"), *installed.glob("jars-*")]:
        (cache / program.name).symlink_to(program.resolve())
    for checkout in (tmp_path / "a", tmp_path / "b"):
        checkout.mkdir()
        (checkout / ".cache").symlink_to(tmp_path / "cache")
        (checkout / "conf").symlink_to(REPOSITORY / "conf")
        (checkout / "tests").symlink_to(REPOSITORY / "tests")
    return [tmp_path / "a/conf" / name, tmp_path / "b/conf" / name]


def port_in(text: str) -> int:
    found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
    assert found is not None, text
    return int(found[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def started(script: Path) -> int:
    """Start a server as its user does, and return its port."""
    told = subprocess.run([script, "start"], capture_output=True, text=True, check=True).stdout
    (environment,) = re.findall(r"^  \. (.*)$", told, re.MULTILINE)
    return port_in(Path(environment).read_text())


def test_checkouts_with_one_cache_have_a_server_each(scripts: list[Path]) -> None:
    try:
        first, second = map(started, scripts)

        assert first != second
        assert started(scripts[0]) == first
        subprocess.run([scripts[0], "stop"], check=True)
        assert (listens(first), listens(second)) == (False, True)
        assert started(scripts[1]) == second
    finally:
        for script in scripts:
            subprocess.run([script, "stop"], check=True)
    assert not listens(second)


def test_the_server_of_a_run_outlives_the_other_runs(scripts: list[Path]) -> None:
    runs: list[tuple[subprocess.Popen[str], int]] = []
    try:
        for script in (scripts[0], scripts[0], scripts[1]):
            run = subprocess.Popen(
                [script, "with", "sh", "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert run.stdout is not None
            runs.append((run, port_in(run.stdout.readline())))
        ports = [port for _, port in runs]
        assert len(set(ports)) == len(ports)
        for ended, (run, _) in enumerate(runs, start=1):
            run.communicate("\n", timeout=60)
            assert [listens(port) for port in ports] == [number >= ended for number in range(len(ports))]
    finally:
        for run, _ in runs:
            # The end of its input ends the run.
            run.communicate(timeout=60)
