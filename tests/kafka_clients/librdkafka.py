"""Runs tests of librdkafka's own test program against a server of Kafka's protocol."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.services import java
from tests.kafka_clients import java_tools
from tests.kafka_clients.suites import output_of

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / ".cache" / "kafka-clients" / "librdkafka"
PROGRAM = SOURCE / "tests" / "test-runner"
_SHOWN_LINES = 40


@dataclass(frozen=True)
class Result:
    """The outcome of one test."""

    state: str
    """``PASSED``, ``FAILED``, ``SKIPPED``, or ``RUNNING`` if it did not end in time."""
    seconds: float
    output: str
    """The last lines of the program."""


def _kafka_distribution(directory: Path) -> Path:
    """Return a directory like a distribution of Kafka, with the jars and the scripts that tests call."""
    distribution = directory / "kafka"
    scripts = {
        "kafka-topics.sh": f'exec {shlex.join(java_tools.command("TopicCommand"))} "$@"',
        "kafka-run-class.sh": f'exec {shlex.quote(java())} -cp "$CLASSPATH:$KAFKA_PATH/libs/*" "$@"',
    }
    (distribution / "bin").mkdir(parents=True)
    for name, command in scripts.items():
        script = distribution / "bin" / name
        script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        script.chmod(0o755)
    (distribution / "libs").symlink_to(java_tools.JARS)
    return distribution


def run(
    number: str,
    servers: str,
    directory: Path,
    *,
    quick: bool = True,
    creates_topics: bool = True,
    timeout_s: float = 300,
) -> Mapping[str, Result]:
    """Run the tests with a number, without those that need no server. Return the outcome of each by its name.

    Args:
        number: four digits.
        servers: the address of the server (``bootstrap.servers``).
        directory: an empty directory for the files of the run.
        quick: the program's quick mode. It leaves out some tests, or all parts of them: these have no outcome.
        creates_topics: True if the server creates missing topics. Some tests need one that does not.
    """
    settings = directory / "test.conf"
    settings.write_text(
        f"bootstrap.servers={servers}\ntest.topic.random=true\ntest.timeout.multiplier=3\n", encoding="ascii"
    )
    report = directory / "report.json"
    environment = {
        # With this variable the program waits longer.
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "LD_LIBRARY_PATH": f"{SOURCE / 'src'}:{SOURCE / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_REPORT": str(report),
        "TESTS": number,
        # Some tests call Kafka's own scripts.
        "KAFKA_PATH": str(_kafka_distribution(directory)),
        "BROKERS": servers,
    }
    # A test reads a file of the source by its place beside the directory of the tests.
    (directory / "src").symlink_to(SOURCE / "src")
    (directory / "tests").mkdir()
    # A test compiles its clients in Java here, and runs them.
    shutil.copytree(SOURCE / "tests" / "java", directory / "tests" / "java")
    (directory / "tests" / "Makefile").write_text("java:\n\t$(MAKE) -C java\n.PHONY: java\n", encoding="ascii")
    modes = [*(["-Q"] if quick else []), *([] if creates_topics else ["-s", "noautocreate"])]
    command = [str(PROGRAM), "-L", *modes, "-p1", "-V", "4.1.0.0"]
    lines = output_of(command, directory / "tests", environment, directory / "output", timeout_s=timeout_s).splitlines()
    said = "\n".join(lines[-_SHOWN_LINES:])
    if not report.exists():
        return {number: Result("RUNNING", timeout_s, said)}
    found = json.loads(report.read_text(encoding="utf-8"))["tests"]
    return {
        name: Result(test["state"], test["duration"], said)
        for name, test in found.items()
        if name.startswith(f"{number}_") and test["duration"]
    }
