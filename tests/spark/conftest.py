"""One Spark session for all tests that need no driver of their own, and victims for those that kill theirs."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests.s3.servers import S3Server, ServerMissing, real_s3_server
from tests.spark.driver_process import DriverProcess, StartDriver
from tests.spark.local_spark import python_environment, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.spark)
    if config.getoption("--store") == "s3":
        local = [item for item in own if not {"root", "s3_server"} & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=local)
        items[:] = [item for item in items if item not in local]


@pytest.fixture(scope="session")
def crash_order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that tells a worker of the session ``spark`` where to crash; see ``crash_points/sitecustomize.py``."""
    return tmp_path_factory.mktemp("crash") / "order"


@pytest.fixture(scope="session")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings file of the session ``spark``: Spark plans writes in processes whose environment is fixed."""
    path = tmp_path_factory.mktemp("settings") / "eoslog.toml"
    path.touch()
    return path


@pytest.fixture
def files_are_objects(files_are_objects: None, settings_file: Path) -> Iterator[None]:
    """Let no rows travel in records, also in the processes of Spark."""
    settings_file.write_text("[log]\ninline_limit_bytes = 0\nshared_limit_bytes = 0\n")
    yield
    settings_file.write_text("")


@pytest.fixture(scope="session")
def s3_variables() -> Iterator[S3Server | ServerMissing]:
    """A real S3 server, if there is one, and how every process finds it, which must be known before a JVM starts."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(real_s3_server())
        except ServerMissing as error:
            yield error
        else:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in server.variables().items():
                patch.setenv(name, value)
            yield server


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path, s3_variables: S3Server | ServerMissing) -> str:
    """Where the test's store is: what ``each_store`` says, else what the option ``--store`` says."""
    kind = getattr(request, "param", None) or request.config.getoption("--store")
    if kind == "local":
        return str(tmp_path / "store")
    if isinstance(s3_variables, ServerMissing):
        pytest.skip(str(s3_variables))
    return f"s3://{s3_variables.new_bucket()}/store"


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory,
    crash_order: Path,
    settings_file: Path,
    s3_variables: S3Server | ServerMissing,
) -> Iterator[SparkSession]:
    """A local session with two cores, three attempts per task and no UI; its files are in a temporary directory."""
    with pytest.MonkeyPatch.context() as patch:
        own = {"EOSLOG_TEST_CRASH": str(crash_order), "EOSLOG_CONFIG": str(settings_file)}
        for name, value in {**python_environment(), **own}.items():
            patch.setenv(name, value)
        session = start_session(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


@pytest.fixture
def connect_port() -> Iterator[None]:
    """Hold the one port of a local Spark Connect server: tests in other processes wait for it."""
    with (Path(tempfile.gettempdir()) / "eoslog-spark-connect.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[StartDriver]:
    """Start the text of a driver script with arguments; every process of it is gone when the test ends."""
    with ExitStack() as drivers:
        count = 0

        def start(script: str, *arguments: str, **environment: str) -> DriverProcess:
            nonlocal count
            count += 1
            path = tmp_path / f"driver-{count}.py"
            path.write_text(dedent(script))
            output = tmp_path / f"driver-{count}.out"
            return drivers.enter_context(DriverProcess(path, *arguments, output=output, environment=environment))

        yield start
