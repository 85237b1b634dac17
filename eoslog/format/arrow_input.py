"""Tables and schemas as users give them: Arrow's, or those of pandas, Polars and all else with Arrow's interfaces."""

from __future__ import annotations

import re
from typing import Protocol

import pyarrow as pa

from eoslog.errors import InvalidRequest, SchemaMismatch, shortened

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


class ArrowStream(Protocol):
    """An object with Arrow's stream interface (the PyCapsule interface)."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowSchema(Protocol):
    """An object with Arrow's schema interface (the PyCapsule interface)."""

    def __arrow_c_schema__(self) -> object: ...


def table_of(rows: ArrowStream | pa.RecordBatch, where: str) -> pa.Table:
    """Return all rows of a table, a batch, a data frame or another stream. An unnamed index of pandas is left out.

    Args:
        where: the call and its topic, for errors.

    Raises:
        SchemaMismatch: the object has no stream of rows.
    """
    if isinstance(rows, pa.Table):
        table = rows
    elif isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif not hasattr(rows, "__arrow_c_stream__"):
        raise SchemaMismatch(
            f"{where} takes a pyarrow.Table, a data frame of pandas or Polars, or another object with "
            f"__arrow_c_stream__, not {type(rows).__name__}. Collect a LazyFrame first, make a frame of a Series, and "
            "see pyarrow.Table.from_pylist and from_pydict for Python's own values"
        )
    else:
        try:
            table = pa.table(rows)
        except (pa.ArrowException, TypeError, ValueError) as error:
            # A column, such as a Series of Polars, has a stream too, but not one of rows. A frame of pandas may have a
            # column of values of several types.
            raise SchemaMismatch(
                f"{where}: the {type(rows).__name__} cannot be read as rows of Arrow: {_first_line(error)}. Give a "
                "frame whose columns have one type each"
            ) from None
    index = _unnamed_index(table.schema)
    return table.drop_columns(index) if index else table


def schema_of(given: object, where: str) -> pa.Schema:
    """Return the schema that is given, or that of a table, a data frame or another stream.

    Args:
        where: the argument and its topic, for errors.

    Raises:
        InvalidRequest: the object has no schema.
    """
    why = ""
    schema: pa.Schema | None = None
    try:
        if isinstance(given, pa.Schema):
            schema = given
        elif isinstance(given, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
            schema = given.schema
        elif hasattr(given, "__arrow_c_schema__"):
            schema = pa.schema(given)  # type: ignore[arg-type]
        elif hasattr(given, "__arrow_c_stream__"):
            schema = pa.RecordBatchReader.from_stream(given).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = f" ({_first_line(error)})"
    if schema is None:
        raise InvalidRequest(
            f"{where} cannot be a {type(given).__name__}{why}. Give a pyarrow.Schema, a dict of column names and types "
            'as {"carrier": "string", "miles": "long"}, the schema of a Spark DataFrame (df.schema), an Arrow table, a '
            "data frame of pandas or Polars, or another object with Arrow's interface"
        )
    for name in _unnamed_index(schema):
        schema = schema.remove(schema.get_field_index(name))
    return schema


def _unnamed_index(schema: pa.Schema) -> list[str]:
    """Return the columns that pandas made of an index without a name, which is no data: it numbers the frame's rows."""
    if not schema.metadata or b"pandas" not in schema.metadata:
        return []
    return [name for name in schema.names if _UNNAMED_INDEX.fullmatch(name)]


def _first_line(error: Exception) -> str:
    return shortened((str(error).splitlines() or [type(error).__name__])[0])
