"""The option ``columns``: the columns of a read and their order, without a schema."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructField, StructType

from eoslog.errors import InvalidOption


def chosen_fields(topic: str, available: StructType, columns: Sequence[str]) -> StructType:
    """Return the named columns in this order. As in Spark, upper and lower case do not matter.

    Raises:
        InvalidOption: the topic has no such column. The message names its columns.
    """
    exact = {field.name: field for field in available.fields}
    in_any_case = {field.name.lower(): field for field in reversed(available.fields)}
    fields = []
    for name in columns:
        found = exact.get(name) or in_any_case.get(name.lower())
        if found is None:
            raise InvalidOption(
                f"option 'columns': topic {topic} has no column {name!r}; its columns are: {', '.join(exact)}"
            )
        fields.append(StructField(name, found.dataType, found.nullable))
    return StructType(fields)


def check_agreement(columns: Sequence[str] | None, schema: StructType) -> None:
    """Check that a user's schema has the columns of the option, in the same order. Raises: InvalidOption"""
    if columns is None:
        return
    if [name.lower() for name in columns] != [name.lower() for name in schema.names]:
        raise InvalidOption(
            f"option 'columns' is {', '.join(columns)}, but the schema has {', '.join(schema.names)}; leave one out, "
            "or name the same columns in the same order"
        )
