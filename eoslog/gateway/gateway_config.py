"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

DISK_LINGER_MS = 5
OBJECT_STORE_LINGER_MS = 50
LONGEST_LINGER_MS = 10_000
"""A longer linger would take too much of the time that clients wait for an answer: by default 30 s or more."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Settings of a gateway. The defaults fit most stores."""

    linger_ms: int
    """How long a batch waits for others with which it shares a record, while earlier ones are appended (ms)."""
    auto_create_topics: bool = False
    """Create a topic when a client that allows this asks for it (Kafka's ``auto.create.topics.enable``)."""
    default_partitions: int = 1
    """The partitions of a new topic if its creator gives no number (Kafka's ``num.partitions``)."""
    rack: str | None = None
    """The rack of the gateway (Kafka's ``broker.rack``)."""
    max_frame_bytes: int = 100 << 20
    """The largest request (Kafka's ``socket.request.max.bytes``)."""
    max_batch_bytes: int = 16 << 20
    """The largest size of the records of a batch, without compression."""
    max_connections: int = 1_024
    """Beyond it a new connection takes the place of the oldest one that is not authenticated yet, or is closed."""
    handshake_timeout_ms: int = 10_000
    """A connection is closed if its handshake of TLS takes longer, or its authentication after that (ms)."""
    max_stranger_frame_bytes: int = 64 << 10
    """The largest request of a client before its authentication (Kafka's ``sasl.server.max.receive.size``). Each
    connection may take so much memory at any time."""
    failed_authentication_delay_ms: int = 100
    """A client learns of its failed authentication after this time (ms; Kafka's
    ``connection.failed.authentication.delay.ms``)."""
    max_in_flight: int = 64
    """The gateway reads no further request of a connection while this many have no answer."""
    request_bytes: int = 128 << 20
    """The memory for requests of all connections together."""
    row_bytes: int = 256 << 20
    """The memory for the rows of produced batches that are not appended yet, of all connections together."""
    response_bytes: int = 128 << 20
    """The memory for rows in answers of all connections together. A large batch is sent whole, whatever it takes."""
    cache_bytes: int = 64 << 20
    """The memory for rows that several consumers may fetch."""
    max_idle_ms: int = 600_000
    """A connection without requests is closed after this time (Kafka's ``connections.max.idle.ms``)."""
    frame_timeout_ms: int = 30_000
    """A connection is closed if the rest of a request, or the taking of an answer, takes longer (ms)."""
    group_bytes: int = 64 << 20
    """The memory for the members of all groups together."""
    group_initial_rebalance_delay_ms: int = 3_000
    """How long an empty group waits for more members before its first generation (ms; Kafka's
    ``group.initial.rebalance.delay.ms``)."""
    redirect_ms: int = 2_000
    """If there are other gateways, one that ends tells its clients to move there. It disconnects them after this time
    (ms)."""
    append_timeout_ms: int = 60_000
    """Batches whose append has failed for this long get an error (ms)."""
