"""What the numbers were measured on: processor, memory, file system and versions. No name of a host, no path."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benchmarks.peers.services import PEERS, java

PACKAGES = ("eoslog", "pyspark", "deltalake", "pyiceberg", "confluent-kafka", "pyarrow", "numpy")
JARS = {
    "delta-spark": "spark",
    "iceberg-spark-runtime": "spark",
    "spark-sql-kafka-0-10": "spark",
    "kafka_2.13": "kafka",
}


def describe(directory: Path) -> Mapping[str, str]:
    """Describe this machine and the software; ``directory`` lies on the file system that is measured."""
    return {
        "Processor": _processor(),
        "Cores": str(os.cpu_count()),
        "Memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "File system": _file_system(directory),
        "System": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Java": _java_version(),
        **{name: _version(name) for name in PACKAGES},
        **{name: _jar_version(name, place) for name, place in JARS.items()},
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the file system with the longest mount point above a directory."""
    place = str(directory.resolve())
    mounts = [each for each in psutil.disk_partitions(all=True) if Path(place).is_relative_to(each.mountpoint)]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "unknown"


def _java_version() -> str:
    try:
        done = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _jar_version(name: str, place: str) -> str:
    """The version at the end of a jar's name, behind the versions of Spark and Scala that some names have."""
    for jar in (PEERS / place).glob(f"{name}*.jar"):
        return jar.stem.rpartition("-")[2]
    return "not installed"
