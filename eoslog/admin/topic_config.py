"""Changes of a topic's settings, and their spelling on the command line, which is Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from eoslog.errors import InvalidTopic, quoted
from eoslog.state.draft import Draft
from eoslog.state.features import STATISTICS_COLUMNS, need_feature
from eoslog.state.store_state import Topic
from eoslog.state.topic_entries import TopicConfig, TopicConfigChanged
from eoslog.state.topics import topic_named


def changed_config(topic: str, config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """Return the settings with these changes. A value of None resets a setting to its default.

    Raises:
        InvalidTopic: a setting is unknown, or its value is not allowed.
    """
    values = config.model_dump()
    for name, value in changes.items():
        field = TopicConfig.model_fields.get(name)
        if field is None:
            raise _unknown(topic, name, TopicConfig.model_fields)
        values[name] = field.default if value is None else value
    try:
        return TopicConfig.model_validate(values)
    except ValidationError as error:
        raise _refused(topic, error) from None


@dataclass(frozen=True)
class AlterTopic:
    """Change settings of a topic. The answer is the changed topic."""

    topic: str
    settings: Mapping[str, Any]

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, InvalidTopic"""
        found = topic_named(draft, self.topic)
        config = changed_config(self.topic, found.config, self.settings)
        if config != found.config:
            if config == found.config.model_copy(update={"statistics_columns": config.statistics_columns}):
                need_feature(draft, STATISTICS_COLUMNS)
            draft.append(TopicConfigChanged(topic=self.topic, topic_id=found.topic_id, config=config))
        return draft.topics[found.topic_id]


def parsed_settings(topic: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parse settings such as ``retention.ms=86400000``, in Kafka's spelling or that of ``TopicConfig``.

    Raises:
        InvalidTopic: a text is not NAME=VALUE, a setting is unknown, or its value is not allowed.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidTopic(
                f"topic {topic}: setting {quoted(text)} is not NAME=VALUE, such as retention.ms=86400000"
            )
        if "=" in value:
            raise InvalidTopic(f"topic {topic}: {quoted(text)} is more than one setting: give each by itself")
        # Kafka's tool encloses values with commas in brackets: cleanup.policy=[compact,delete].
        given[setting_named(topic, name.strip())] = value.strip().removeprefix("[").removesuffix("]")
    try:
        config = TopicConfig.model_validate_strings(given)
    except ValidationError as error:
        raise _refused(topic, error) from None
    return {name: getattr(config, name) for name in given}


def setting_named(topic: str, name: str) -> str:
    """Return the field of ``TopicConfig`` for the name of a setting, such as ``retention.ms``.

    Raises:
        InvalidTopic: the setting is unknown.
    """
    field = name.replace(".", "_")
    if field not in TopicConfig.model_fields:
        raise _unknown(topic, name, map(kafka_spelling, TopicConfig.model_fields))
    return field


def kafka_spelling(field: str) -> str:
    """Return a setting's name in Kafka's spelling, such as ``retention.ms``."""
    return field.replace("_", ".")


def _unknown(topic: str, name: str, known: Iterable[str]) -> InvalidTopic:
    return InvalidTopic(f"topic {topic}: setting {quoted(name)} is unknown; the settings there are: {', '.join(known)}")


def _refused(topic: str, error: ValidationError) -> InvalidTopic:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    return InvalidTopic(f"topic {topic}: setting {name} cannot be {quoted(first['input'])}: {first['msg']}")
