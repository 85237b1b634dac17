"""Option ``createTopic``: the plan of a write creates its topic from the columns of the DataFrame.

Two writers may try to create a topic at the same time. One of them succeeds; the rows of the other must fit the topic.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog import Store, Topic
from eoslog.errors import InvalidOption, TopicAlreadyExists, UnsupportedSchema
from eoslog.format.column_types import kind_of, parts
from eoslog.format.spark_json import arrow_schema, topic_columns
from eoslog.read.columns import POSITION_COLUMNS, TRANSACTION_COLUMNS
from pyspark_eoslog.options import Options

_POSITION = frozenset({"_topic", "_partition", "_offset"})


def check_creation(options: Options) -> None:
    """Raises: InvalidOption: an option of ``createTopic`` is given without it, or no topic is named."""
    if not options.create_topic:
        options.refuse(
            ("partitions", "key"), "is for the creation of a topic. Add option createTopic=true, or leave it out"
        )
    elif options.topic_to_write() is None:
        raise InvalidOption("option 'createTopic' creates one topic: name it with option 'topic'")


def create_topic(options: Options, schema: StructType, store: Store) -> None:
    """Create the topic of a write, and the store if it does not exist. Do nothing if the topic exists by now.

    Raises:
        InvalidTopic: the name, the number of partitions or a key column is not allowed.
        UnsupportedSchema: a topic cannot store a column, or it could hold no value but null.
    """
    name = options.topic_to_write()
    assert name is not None
    # Constants and other columns that a DataFrame never holds nulls in are not nullable. As in Delta Lake this must not
    # bind later writes.
    _refuse_own_reserved(schema)
    columns, described = topic_columns(schema.toNullable().json())
    for column in columns:
        _refuse_void(column.type, column.name)
    with suppress(TopicAlreadyExists):
        store.admin.create_topic(
            name,
            partitions=options.partitions or 1,
            schema=columns,
            key=options.key or (),
            spark_schema=described,
        )
        store.environment.reached("spark.topic.created")


def _refuse_own_reserved(schema: StructType) -> None:
    """Refuse columns of the user that have the names of columns which a read adds: a write leaves them out.

    Columns from a read have the types of the read, and ``_timestamp`` comes with a column of ``_POSITION``.

    Raises:
        UnsupportedSchema: naming such a column.
    """
    kinds = {field.name: kind_of(field.type) for field in (*POSITION_COLUMNS, *TRANSACTION_COLUMNS)}
    for field in arrow_schema(StructType([each for each in schema.fields if each.name in kinds]).json()):
        is_alone = field.name == "_timestamp" and not _POSITION & set(schema.names)
        if is_alone or kind_of(field.type) != kinds[field.name]:
            raise UnsupportedSchema(
                f"column {field.name!r} has a name that is reserved for a column which a read adds, so a write would "
                f"leave it out. Rename it, or drop it: df.drop({field.name!r})"
            )


def _refuse_void(data_type: pa.DataType, path: str) -> None:
    """Raises: UnsupportedSchema: the type, or a type within it, holds no value but null."""
    if pa.types.is_null(data_type):
        raise UnsupportedSchema(
            f"column {path!r} has type void: its rows hold only nulls. The type of a column never changes, so the new "
            "topic could never hold a value in it. Cast it to the type of later rows, as CAST(NULL AS STRING), or drop "
            "it"
        )
    for name, field in parts(data_type):
        _refuse_void(field.type, f"{path}.{name}")


def check_created(options: Options, topic: Topic) -> None:
    """Refuse a key that differs from the topic's key. The rows would not go to the partitions that the user expects.

    Another number of partitions is not an error, because ``create_partitions`` may have raised it since.

    Raises:
        InvalidOption: option ``key`` differs from the topic's key.
    """
    if options.key is None or options.key == topic.topic_schema.key:
        return
    has = f"the key {', '.join(topic.topic_schema.key)}" if topic.topic_schema.key else "no key columns"
    if topic.topic_schema.kind == "records":
        has = "Kafka records, with a key of their own"
    raise InvalidOption(
        f"option 'key' is {', '.join(options.key)!r}, but topic {topic.topic} exists and has {has}. Leave the option "
        "out, or write to another topic: the key of a topic never changes"
    )
