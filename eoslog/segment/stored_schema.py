"""The columns of a topic's data files."""

from __future__ import annotations

import pyarrow as pa

from eoslog.rules.state import Topic
from eoslog.segment.kafka_records import RECORDS_SCHEMA
from eoslog.segment.schema_json import decode_schema


def stored_schema(topic: Topic) -> pa.Schema:
    """The columns of a topic's data files."""
    if topic.topic_schema.arrow is None:
        return RECORDS_SCHEMA
    return decode_schema(topic.topic_schema.arrow)
