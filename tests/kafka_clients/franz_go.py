"""Runs tests of franz-go's own test program against a server of Kafka's protocol."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kafka_clients.suites import output_of

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / ".cache" / "kafka-clients" / "franz-go"
PROGRAM = SOURCE / "kgo.test"
_OUTCOME = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) ", re.MULTILINE)
_SHOWN_LINES = 60


@dataclass(frozen=True)
class Results:
    """The outcomes of a test and of its parts."""

    outcomes: Mapping[str, str]
    """``PASS``, ``FAIL`` or ``SKIP`` by name. A part is named after its test: ``TestTxnEtl/range``."""
    output: str
    """The last lines of the program."""


def run(
    name: str, servers: str, directory: Path, *, records: int = 2_000, chaos: bool = False, timeout_s: float = 300
) -> Results:
    """Run a test with all its parts.

    Args:
        servers: the address of the server (``bootstrap.servers``).
        directory: a directory for the files of the run.
        records: the records of tests that move as many as they are told to.
        chaos: whether ``TestGroupETL`` closes each of its connections after a second or so.
        timeout_s: after this time the program ends by itself, and shows what it waited for.
    """
    environment = {
        **os.environ,
        "KGO_SEEDS": servers,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_CHAOS": str(int(chaos)),
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(PROGRAM), "-test.run", f"^{name}$", "-test.v", "-test.timeout", f"{timeout_s}s"]
    said = output_of(command, directory, environment, directory / "output", timeout_s=timeout_s + 30)
    return Results(
        {name: outcome for outcome, name in _OUTCOME.findall(said)}, "\n".join(said.splitlines()[-_SHOWN_LINES:])
    )
