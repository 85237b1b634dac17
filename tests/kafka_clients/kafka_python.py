"""Runs kafka-python's own integration tests against a server of Kafka's protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.kafka_clients.suites import output_of

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / ".cache" / "kafka-clients" / "kafka-python"
TESTS = SOURCE / "test" / "integration"
_PREFIX = "test.integration."
_SHOWN_CHARACTERS = 4_000


@dataclass(frozen=True)
class Result:
    """The outcome of one test."""

    state: str
    """``passed``, ``failed``, ``error``, ``skipped``, or ``missing`` if there is no such test."""
    output: str = ""


def run(
    tests: Sequence[str], servers: str, directory: Path, *, version: str, timeout_s: float = 600
) -> Mapping[str, Result]:
    """Run tests, and return the outcome of each by its name.

    Args:
        tests: names such as ``test_admin_integration.py::test_create_delete_topics``.
        servers: the address of the server (``bootstrap.servers``).
        directory: an empty directory for the files of the run.
        version: the release of Kafka whose tests run. The clients use no newer versions of requests than it has.
    """
    report = directory / "report.xml"
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "PYTHONPATH")},
        # The tests look for a broker's programs here. They start none.
        "KAFKA_ROOT": str(directory),
        "KAFKA_URI": f"kafka://{servers}",
        "KAFKA_VERSION": version,
    }
    arguments: tuple[str, ...] = (
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(SOURCE),
        "--timeout",
        "60",
    )
    arguments += (f"--junitxml={report}", *(f"{TESTS}/{name}" for name in tests))
    command = [sys.executable, "-m", "pytest", *arguments]
    said = output_of(command, SOURCE, environment, directory / "output", timeout_s=timeout_s)[-_SHOWN_CHARACTERS:]
    found = _results(report) if report.exists() else {}
    return {name: found.get(name, Result("missing", said)) for name in tests}


def _results(report: Path) -> dict[str, Result]:
    results = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname'].removeprefix(_PREFIX)}.py::{case.attrib['name']}"
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            results[name] = Result("passed")
        else:
            state = {"failure": "failed"}.get(problem.tag, problem.tag)
            results[name] = Result(state, (problem.text or problem.attrib["message"])[-_SHOWN_CHARACTERS:])
    return results
