"""A stream with refused options. It raises the error at the first call of Spark.

If the creation of a reader fails, Spark's runner tries to stop a reader that is not there. It then reports this failure
instead of the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import InputPartition

from eoslog.errors import EosLogError
from pyspark_eoslog.stream.read_limits import ReadLimit
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from pyspark_eoslog.worker import plain_errors


class RefusedStream(EosLogStreamReader):
    """A reader that only raises an error."""

    def __init__(self, error: EosLogError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with plain_errors():
            raise self._error
        raise AssertionError("plain_errors() does not suppress errors")
