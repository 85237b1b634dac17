"""The data source that Spark finds by its name. It imports the module of a read or write when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_eoslog.pyspark_version import check_pyspark, is_at_least, needs

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_eoslog.options import Options
    from pyspark_eoslog.read.batch_reader import EosLogReader
    from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
    from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter


_PROVIDER = "provider"
"""The option that Spark adds for a table of its catalog."""


class DefaultSource(DataSource):
    """``spark.read``, ``readStream``, ``write`` and ``writeStream`` with ``format("eoslog")``."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raise ImportError if PySpark is too old for any read or write."""
        check_pyspark()
        super().__init__(options)

    def __repr__(self) -> str:
        # Without the options, which may hold credentials.
        return f"DefaultSource({self.options.get('path')!r})"

    @classmethod
    def name(cls) -> str:
        return "eoslog"

    def schema(self) -> StructType:
        """The columns of the topics that the options name."""
        from eoslog.errors import InvalidRequest
        from eoslog.read.topics_snapshot import topics_snapshot
        from pyspark_eoslog.spark_schemas import default_schema
        from pyspark_eoslog.worker import plain_errors, verified_store

        with plain_errors():
            if _PROVIDER in self.options:
                raise InvalidRequest(
                    "a topic cannot be a table of Spark's catalog, because Spark does not pass to the data source the "
                    "path and options of the table. In SQL use CREATE TEMPORARY VIEW v USING eoslog OPTIONS (path '…', "
                    "topic '…'), which can be read and inserted into"
                )
            options = self._options()
            store, selection = verified_store(options.location), options.topics_to_read()
            # With failOnDataLoss=false a stream starts without missing topics. A batch reports them at planning.
            snapshot = topics_snapshot(store, selection, existing_only=not options.fail_on_data_loss)
            if not snapshot.topics:
                snapshot = topics_snapshot(store, selection, refresh=False)
            return default_schema([selected.topic for selected in snapshot.topics], options)

    def reader(self, schema: StructType) -> EosLogReader:
        from pyspark_eoslog.read.batch_reader import EosLogReader

        return EosLogReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> EosLogStreamReader:  # noqa: N802 - Spark's name
        from eoslog.errors import EosLogError
        from pyspark_eoslog.stream.stream_reader import EosLogStreamReader, RefusedStream

        try:
            return EosLogStreamReader(self._options(), schema)
        except EosLogError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> EosLogWriter:
        from pyspark_eoslog.write.sink import EosLogWriter

        return EosLogWriter(self._options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> EosLogStreamWriter:  # noqa: N802 - Spark's name
        from pyspark_eoslog.write.sink import EosLogStreamWriter

        if not is_at_least(4, 1):
            raise NotImplementedError(
                f'writeStream.format("eoslog") {needs(4, 1)}. Write in foreachBatch with df.write.format("eoslog") and '
                "the options transactionalId and txnVersion, or upgrade PySpark"
            )
        return EosLogStreamWriter(self._options(), schema, overwrite)

    def _options(self) -> Options:
        from pyspark_eoslog.options import Options
        from pyspark_eoslog.worker import plain_errors

        with plain_errors():
            return Options.of(self.options)
