"""A real PySpark 3: the package says which release it needs, and the session keeps its other formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.spark.local_spark import python_environment, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    not pyspark.__version__.startswith("3."), reason="needs PySpark 3: run make test-spark VERSION=3.5"
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in python_environment().items():
            patch.setenv(name, value)
        session = start_session(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


def test_the_package_is_refused_on_import() -> None:
    with pytest.raises(ImportError, match=rf"needs PySpark 4\.0 or later, found {pyspark.__version__}\."):
        import pyspark_eoslog  # noqa: F401


USES: dict[str, Callable[[SparkSession, str], object]] = {
    "read": lambda spark, path: spark.read.format("eoslog").load(path),
    "readStream": lambda spark, path: spark.readStream.format("eoslog").load(path),
    "write": lambda spark, path: spark.range(1).write.format("eoslog").mode("append").save(path),
    "view": lambda spark, path: spark.sql(f"CREATE TEMPORARY VIEW v USING eoslog OPTIONS (path '{path}')"),
}


@pytest.mark.parametrize("use", USES)
def test_the_format_is_unknown(spark: SparkSession, tmp_path: Path, use: str) -> None:
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        USES[use](spark, str(tmp_path))


def test_other_formats_keep_working(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "rows"))

    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3
