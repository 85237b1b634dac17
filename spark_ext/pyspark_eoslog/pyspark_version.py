"""The PySpark that the package needs, and the features that older releases lack. It imports none of these features."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

OLDEST = (4, 0)
"""The oldest release, as in the extra ``spark`` of ``pyproject.toml``."""


def check_pyspark() -> None:
    """Refuse an older PySpark.

    Raises:
        ImportError: the message has the needed version and the version found.
    """
    if not is_at_least(*OLDEST):
        needed = ".".join(map(str, OLDEST))
        raise ImportError(f"eoslog {needs(*OLDEST)}. Install pyspark>={needed} for every Python that Spark starts.")


def is_at_least(major: int, minor: int) -> bool:
    """Return True if this PySpark is of this release or a later one."""
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    return found is None or (int(found[1]), int(found[2])) >= (major, minor)


def needs(major: int, minor: int) -> str:
    """Return the part of an error message for a feature that this PySpark lacks."""
    return f"needs PySpark {major}.{minor} or later, found {pyspark.__version__}"


def types_named(*names: str) -> tuple[type[DataType], ...]:
    """Return the types of Spark with these names that this PySpark has."""
    import pyspark.sql.types as types

    return tuple(getattr(types, name) for name in names if hasattr(types, name))


def spark_columns(schema: pa.Schema) -> StructType:
    """Return Arrow columns in Spark's types. Timestamps without a time zone are ``TIMESTAMP_NTZ``."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of rows that Spark passed, with all the buffers that Arrow's functions read.

    Spark before 4.2 passes an empty list of strings or of lists without any offset. Arrow's functions read the first
    offset even then, which is beyond the end of the buffer.
    """
    import pyarrow as pa

    if is_at_least(4, 2):
        return batch
    return pa.RecordBatch.from_arrays([_with_offsets(column) for column in batch.columns], schema=batch.schema)


def _with_offsets(array: Any) -> Any:
    import pyarrow as pa

    if len(array) == 0:
        return pa.array([], array.type)
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        own, children = 2, [array.values]
    elif pa.types.is_struct(array.type):
        own, children = 1, [array.field(index) for index in range(array.type.num_fields)]
    else:
        return array
    return pa.Array.from_buffers(
        array.type,
        len(array),
        array.buffers()[:own],
        array.null_count,
        array.offset,
        [_with_offsets(child) for child in children],
    )


def is_planning() -> bool:
    """Return True in a Python process in which Spark looks up or plans data sources.

    Their programs are modules of this package, and users' programs do not import it.
    """
    return "pyspark.sql.worker" in sys.modules
