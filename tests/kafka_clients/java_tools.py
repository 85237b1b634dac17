"""Kafka's own command-line tools, which are clients in Java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.services import java

JARS = Path(__file__).resolve().parents[2] / ".cache" / "kafka-clients" / "kafka"
_TOOLS = "org.apache.kafka.tools"


def command(tool: str, *arguments: str) -> list[str]:
    """Return the command that runs a tool.

    Args:
        tool: a class of ``org.apache.kafka.tools``, or the whole name of a class of another package of Kafka's.
    """
    name = tool if tool.startswith("kafka.") else f"{_TOOLS}.{tool}"
    return [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", name, *arguments]


def run(tool: str, *arguments: str, timeout_s: float = 120) -> str:
    """Run a tool, and return its standard output."""
    done = subprocess.run(command(tool, *arguments), capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def verifiable_producer(
    servers: str, topic: str, directory: Path, *, settings: Mapping[str, str], records: int = -1, rate: int = -1
) -> list[str]:
    """Return the command of a ``VerifiableProducer``, which sends the numbers from 0 on.

    Args:
        settings: settings of the producer. By default, the tool's producer repeats no request.
        records: the number of records; -1: it sends until SIGTERM.
        rate: the records in a second; -1: as many as possible.
    """
    path = directory / "producer.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    return command(
        "VerifiableProducer",
        *("--bootstrap-server", servers, "--topic", topic, "--max-messages", str(records)),
        *("--throughput", str(rate), "--command-config", str(path)),
    )


def events(output: str) -> list[dict[str, Any]]:
    """Return what a verifiable tool has printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
