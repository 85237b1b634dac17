"""Columns of a topic as the command line names them: ``name:type``, or those of a Parquet file."""

from __future__ import annotations

import re
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
TYPE_NAMES = f"{', '.join(_TYPES)}, decimal(precision,scale)"
"""Spark's names of types."""


def column(text: str, option: str = "--column") -> pa.Field[Any]:
    """The column that ``name:type`` describes.

    Raises:
        click.BadParameter
    """
    name, _, kind = text.rpartition(":")
    data_type = _data_type(kind.strip().lower())
    if not name or data_type is None:
        raise click.BadParameter(f"{text!r} is not NAME:TYPE; the types are {TYPE_NAMES}", param_hint=option)
    return pa.field(name, data_type)


def schema_of_file(path: str) -> pa.Schema:
    """The columns of a Parquet file.

    Raises:
        click.BadParameter
    """
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise click.BadParameter(f"{path} is no Parquet file: {reason}", param_hint="--schema-from") from None


def _data_type(kind: str) -> pa.DataType | None:
    found = _DECIMAL.fullmatch(kind)
    if found is None:
        return _TYPES.get(kind)
    precision, scale = int(found[1]), int(found[2])
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None
