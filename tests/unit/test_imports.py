"""What a process imports: no more than it uses, counted by modules and not by time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import eoslog

SELDOM_NEEDED = {
    "pandas",
    "pyspark",
    "botocore",
    "urllib3",
    "rich",
    "click",
    "sqlglot",
    "eoslog.delta",
    "eoslog.iceberg",
}


def imported(statement: str) -> set[str]:
    """The modules that a fresh process has imported after ``statement``."""
    program = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_and_its_errors_import_nothing_else() -> None:
    assert not imported("import eoslog; eoslog.InvalidOption") & {"numpy", "pyarrow", "pydantic", *SELDOM_NEEDED}


def test_a_store_on_disk_and_its_clients_need_nothing_of_s3_and_of_the_command() -> None:
    clients = "eoslog.connect('somewhere'), eoslog.Producer, eoslog.Consumer, eoslog.Coordinator"

    assert not imported(f"import eoslog; {clients}") & SELDOM_NEEDED


def test_a_list_of_topics_needs_nothing_of_s3_of_spark_and_of_predicates(tmp_path: Path) -> None:
    """Also if it opens the log at a checkpoint, which has the topics and partitions in columns of Arrow."""
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("t", partitions=10)
    store.log.checkpoint()
    listing = f"from eoslog.main import cli; cli(['--store', {store.url!r}, 'topics', 'list'], standalone_mode=False)"

    assert imported(listing) & SELDOM_NEEDED == {"click", "rich"}


def test_a_command_collects_no_garbage_among_its_imports_and_starts_no_threads_of_algebra(tmp_path: Path) -> None:
    program = f"""
import gc, os, sys
from eoslog.main import main
sys.argv = ["eoslog", "--store", {str(tmp_path / "store")!r}, "topics", "create", "t"]
try:
    main()
except SystemExit as done:
    print(done.code, gc.get_stats()[2]["collections"], os.environ["OPENBLAS_NUM_THREADS"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.splitlines()[-1] == "0 0 1"


def test_spark_looks_the_data_source_up_without_the_library() -> None:
    assert not imported("import pyspark_eoslog") & {"numpy", "pyarrow", "pydantic", *(SELDOM_NEEDED - {"pyspark"})}
