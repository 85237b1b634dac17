"""The options of public calls: unknown ones and wrong values are refused, and Kafka's names are accepted."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

from eoslog.arguments import checked_option, is_whole_number, kinds_of, read_option
from eoslog.errors import InvalidOption
from eoslog.wording import quoted, shortened, unknown

P = ParamSpec("P")
T = TypeVar("T")
_logger = logging.getLogger(__name__)


class _Given(NamedTuple):
    """The value of an option, and the key that gave it."""

    value: Any
    key: object


@dataclass(frozen=True)
class KafkaConfig:
    """The rules that turn the configuration of a Kafka client into options. Keys have Kafka's spelling."""

    client: str
    """The name of the client in messages, such as ``a producer``."""
    other_names: Mapping[str, str]
    """Keys whose option has another name."""
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By option, eoslog's words for Kafka's values."""
    largest: frozenset[str] = frozenset()
    """Options that several keys may set. The largest value counts."""
    fixed: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Keys with a fixed meaning: the accepted values, and the reason why other values are refused."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Keys that eoslog does not support and must not ignore, each with an alternative."""
    ignored: frozenset[str] = frozenset()
    """Keys without an effect, because there is no broker."""
    ignored_prefixes: tuple[str, ...] = ()

    def is_ignored(self, key: str) -> bool:
        return key in self.ignored or key.startswith(self.ignored_prefixes)

    def options(self, config: Mapping[str, Any], names: Collection[str], kinds: Mapping[str, str]) -> dict[str, _Given]:
        """Return the options for a configuration. Keys may have underscores for Kafka's dots.

        Args:
            names: the options.
            kinds: the annotations of options whose values ``checked_option`` checks.

        Raises:
            InvalidOption: a key is unknown, is given twice, or has a value that eoslog does not offer.
        """
        found: dict[str, _Given] = {}
        ignored = []
        for given, value in config.items():
            key = shortened(given).replace("_", ".")
            name = self.other_names.get(key, key.replace(".", "_"))
            if name in names:
                value = self.values.get(name, {}).get(value, value) if isinstance(value, str) else value
                option = _Given(read_option(kinds[name], value) if name in kinds else value, given)
                others = [found[name]] if name in found and name in self.largest else []
                if others and all(is_whole_number(each.value) for each in (option, *others)):
                    option = max(option, *others, key=lambda each: each.value)
                elif name in found and not _is_same(found[name].value, option.value):
                    raise InvalidOption(f"config of {self.client}: {given!r} gives option {name!r} a second value")
                found[name] = option
            elif key in self.fixed:
                accepted, reason = self.fixed[key]
                if shortened(value).lower() not in accepted:
                    raise InvalidOption(f"config of {self.client}: {given!r} cannot be {quoted(value)}: {reason}")
            elif key in self.refused:
                raise InvalidOption(f"config of {self.client}: {given!r} is not supported: {self.refused[key]}")
            elif self.is_ignored(key):
                ignored.append(key)
            else:
                known = [*self.other_names, *names, *self.fixed, *self.refused, *self.ignored]
                keys = [name.replace("_", ".") for name in known]
                listed = sorted(name.replace("_", ".") for name in names)
                raise InvalidOption(unknown(f"config of {self.client}: key {quoted(given)}", key, keys, listed=listed))
        if ignored:
            warn_of_ignored(f"config of {self.client}: keys", tuple(sorted(ignored)))
        return found


def _is_same(value: object, other: object) -> bool:
    """Return True if two keys give an option the same value. Only plain values can be compared."""
    return value is other or (type(value) is type(other) and isinstance(value, (str, int)) and value == other)


def named_options(
    client: str, kafka: KafkaConfig | None = None, *, takes_text: bool = False
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Wrap a function: options that are unknown or have a wrong value raise ``InvalidOption``.

    ``config`` becomes keyword arguments. The signature does not change, so type checkers and editors show the options.

    Args:
        client: the name in messages of the function, or of the object that it opens.
        kafka: the meaning of the argument ``config``; None if the function has no such argument.
        takes_text: numbers and booleans may be texts. In ``config`` they always may.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        names = [name for name in signature.parameters if name != "self" and (name != "config" or kafka is None)]
        kinds = kinds_of({name: signature.parameters[name].annotation for name in names})

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in signature.parameters:
                    raise _unknown(client, name, names, kafka)
            if kafka is not None and any(isinstance(each, Mapping) for each in args):
                raise InvalidOption(f"give Kafka's keys to {client} as config={{…}}, not as the first argument")
            options: dict[str, _Given] = {}
            config: Any = kwargs.pop("config", None) if kafka is not None else None
            if kafka is not None and config is not None:
                if not isinstance(config, Mapping):
                    raise InvalidOption(f"config of {client} must be a mapping of Kafka's keys, not {quoted(config)}")
                given = signature.bind_partial(*args, **kwargs).arguments
                options = kafka.options(config, names, kinds)
                for name in options:
                    if name in given:
                        raise InvalidOption(f"option {name!r} of {client} is given as an argument and in config")
                kwargs.update({name: option.value for name, option in options.items()})
            try:
                for name in kinds:
                    if name in kwargs:
                        value = read_option(kinds[name], kwargs[name]) if takes_text else kwargs[name]
                        kwargs[name] = checked_option(name, kinds[name], value)
                return function(*args, **kwargs)
            except InvalidOption as error:
                raise _by_given_keys(error, options) from error.__cause__

        return checked

    return decorated


def named_otherwise(
    calls: Mapping[str, str], needless: Mapping[str, str] | None = None
) -> Callable[[type[T]], type[T]]:
    """Decorate a class: for methods of other libraries that it lacks, the error names the call to use instead.

    Args:
        calls: the calls, by the names of methods of other libraries.
        needless: the reasons why a program needs no such call, by the names of methods.
    """
    hints = {name: f"Call {call} instead" for name, call in calls.items()}
    hints |= {name: f"Leave the call out: {reason}" for name, reason in (needless or {}).items()}

    def decorated(client: type[T]) -> type[T]:
        for name, hint in hints.items():
            setattr(client, name, _Missing(f"{client.__name__!r} object has no attribute {name!r}. {hint}", name))
        # Completion in an editor or a shell must not offer them.
        client.__dir__ = lambda self: [name for name in object.__dir__(self) if name not in hints]  # type: ignore[method-assign]
        return client

    return decorated


class _Missing:
    """An attribute that a class lacks, with a hint for its error.

    A ``__getattr__`` in the class would do the same, but Python looks up every attribute of such a class more slowly.
    """

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._text, name=self._name, obj=owner if instance is None else instance)


def _by_given_keys(error: InvalidOption, options: Mapping[str, _Given]) -> InvalidOption:
    """Return an error about an option that names the key by which the user gave the option."""
    text = str(error)
    for name, option in options.items():
        text = re.sub(rf"\b{name}\b", str(option.key), text)
    return error if text == str(error) else InvalidOption(text)


def _unknown(client: str, name: str, names: Collection[str], kafka: KafkaConfig | None) -> InvalidOption:
    key = name.replace("_", ".")
    own = key.replace(".", "_")
    if kafka is not None and own not in names:
        if key in kafka.other_names:
            own = kafka.other_names[key]
        elif key in kafka.fixed or key in kafka.refused or kafka.is_ignored(key):
            return InvalidOption(f"option {quoted(name)} of {client} is Kafka's: give it in config={{{key!r}: …}}")
    subject = f"option {quoted(name)} of {client}"
    return InvalidOption(f"{subject} is unknown. Use {own}" if own in names else unknown(subject, name, names))


@cache
def warn_of_ignored(subject: str, names: tuple[str, ...]) -> None:
    """Warn of options that only a broker uses, once in a process. Their values are not logged: some are passwords."""
    _logger.warning("%s that only a broker uses are ignored: %s", subject, ", ".join(names))


_BROKER = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "client.rack", "client.dns.lookup"),
        *("allow.auto.create.topics", "connections.max.idle.ms", "request.timeout.ms", "default.api.timeout.ms"),
        *("send.buffer.bytes", "receive.buffer.bytes", "message.max.bytes", "statistics.interval.ms", "debug"),
        *("enable.ssl.certificate.verification", "stats.cb", "error.cb", "throttle.cb", "oauth.cb", "logger"),
    }
)
_BROKER_PREFIXES: tuple[str, ...] = (
    *("sasl.", "ssl.", "security.", "socket.", "metadata.", "topic.metadata.", "broker.", "api.version."),
    *("reconnect.backoff.", "retry.backoff.", "metrics.", "log."),
)
_JAVA = "it names a Java class"
_ALWAYS_DURABLE = "eoslog has no weaker mode: a row is durable when its flush returns. Leave the key out, or give 'all'"
_IDEMPOTENT = "every producer of eoslog is idempotent. Leave the key out"
_MURMUR = "rows go by Kafka's murmur2 of their key ('murmur2_random'). Give send() a partition to choose another"

PRODUCER_CONFIG = KafkaConfig(
    client="a producer",
    other_names={"message.timeout.ms": "delivery_timeout_ms", "queue.buffering.max.ms": "linger_ms"},
    fixed={
        "acks": (("all", "-1"), _ALWAYS_DURABLE),
        "request.required.acks": (("all", "-1"), _ALWAYS_DURABLE),
        "enable.idempotence": (("true",), _IDEMPOTENT),
        "partitioner": (("murmur2", "murmur2_random"), _MURMUR),
    },
    refused={
        "partitioner.class": f"{_JAVA}. {_MURMUR}",
        "interceptor.classes": f"{_JAVA}. Change rows before send()",
        "on.delivery": "give on_delivery to each send()",
        "dr.cb": "give on_delivery to each send()",
        "delivery.report.only.error": "let the function that you give as on_delivery return if there is no error",
    },
    ignored=_BROKER
    | {
        *("batch.size", "batch.num.messages", "buffer.memory", "max.request.size", "retries", "max.in.flight"),
        *("max.in.flight.requests.per.connection", "message.send.max.retries", "queue.buffering.max.messages"),
        *("client.id", "queue.buffering.max.kbytes", "compression.type", "compression.codec", "compression.level"),
    },
    ignored_prefixes=_BROKER_PREFIXES,
)
_STORED_OFFSETS = "positions move as records are returned. Give commit() the offsets to commit"
_NO_EOF = "poll() returns an empty list at the end. Compare position() with end_offsets()"

CONSUMER_CONFIG = KafkaConfig(
    client="a consumer",
    other_names={"max.poll.interval.ms": "session_timeout_ms"},
    values={
        "auto_offset_reset": {
            "smallest": "earliest",
            "beginning": "earliest",
            "largest": "latest",
            "end": "latest",
            "error": "none",
        }
    },
    # The session lasts from poll to poll, so it must last as long as either of Kafka's two times.
    largest=frozenset({"session_timeout_ms"}),
    fixed={
        "enable.auto.offset.store": (("true",), _STORED_OFFSETS),
        "enable.partition.eof": (("false",), _NO_EOF),
    },
    refused={
        "interceptor.classes": f"{_JAVA}. Change records after poll()",
        "on.commit": "commit() raises its errors",
    },
    ignored=_BROKER
    | {
        *("heartbeat.interval.ms", "partition.assignment.strategy", "group.protocol", "group.remote.assignor"),
        *("check.crcs", "exclude.internal.topics", "max.partition.fetch.bytes", "queued.min.messages"),
        *("queued.max.messages.kbytes",),
    },
    ignored_prefixes=(*_BROKER_PREFIXES, "fetch."),
)

_TOPICS = "store.admin.list_topics()"
_DESCRIPTION = "store.admin.describe_topic(topic)"
PRODUCER_CALLS = {
    "produce": "send(topic, value, key=…)",
    "list_topics": _TOPICS,
    "partitions_for": _DESCRIPTION,
}
NEEDLESS_PRODUCER_CALLS = {"poll": "the call that writes a record also calls its on_delivery"}
CONSUMER_CALLS = {
    "consume": "poll(timeout)",
    "store_offsets": "commit(offsets)",
    "list_topics": _TOPICS,
    "topics": _TOPICS,
    "partitions_for_topic": _DESCRIPTION,
    "get_watermark_offsets": "beginning_offsets(partitions) and end_offsets(partitions)",
    "consumer_group_metadata": "group_metadata()",
    "incremental_assign": "assign(partitions)",
    "incremental_unassign": "unsubscribe()",
}
ADMIN_CALLS = {
    "create_topics": "create_topic(topic, partitions=…)",
    "delete_topics": "delete_topic(topic)",
    "describe_topics": "describe_topic(topic)",
    "describe_configs": "describe_topic(topic).config",
    "alter_configs": "alter_topic(topic, retention_ms=…)",
    "incremental_alter_configs": "alter_topic(topic, retention_ms=…)",
    "list_offsets": "offsets(topic)",
    "describe_consumer_groups": "describe_consumer_group(group_id)",
    "delete_consumer_groups": "delete_consumer_group(group_id)",
    "fence_producers": "fence_producer(transactional_id)",
}
