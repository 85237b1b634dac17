"""The public entry point: ``connect()`` and ``Store``, which opens producers, consumers, scans and administration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eoslog.arguments import DEFAULT_SESSION_TIMEOUT_MS, Count, Natural, SessionTimeout, TimeLimit, TransactionTimeout
from eoslog.errors import InvalidOption
from eoslog.log.replica import LogConfig
from eoslog.maintenance.file_compaction import join_small_segments
from eoslog.maintenance.known_tables import KnownTables
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer import exit_flush  # noqa: F401 - must register its functions before the program registers its own
from eoslog.read.commits import Commit, read_commits
from eoslog.read.history import History
from eoslog.read.isolation import IsolationLevel
from eoslog.read.scan import Scan, plan_scan
from eoslog.session.client_options import CONSUMER_CONFIG, PRODUCER_CONFIG, named_options
from eoslog.session.metrics import StoreMetrics, is_behind, store_metrics
from eoslog.session.serializers import Deserializer, Serializer
from eoslog.session.session import Session
from eoslog.session.settings import Settings, load_settings
from eoslog.session.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS
from eoslog.state.names import PartitionId, names_given
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS
from eoslog.state.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.environment import Environment
from eoslog.storage.opening import open_object_store
from eoslog.storage.process import cannot_be_pickled
from eoslog.wording import quoted

if TYPE_CHECKING:
    from eoslog.admin.admin import Admin
    from eoslog.consumer.consumer import Consumer
    from eoslog.processor import Process, Processor
    from eoslog.producer.producer import Producer

T = TypeVar("T")


@named_options("connect()", takes_text=True)
def connect(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    log_config: LogConfig | None = None,
    settings: Settings | None = None,
    endpoint_url: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    token: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    anon: bool | None = None,
    server_side_encryption: str | None = None,
    sse_kms_key_id: str | None = None,
    key_file: str | None = None,
    account: str | None = None,
    account_key: str | None = None,
    sas_token: str | None = None,
    tenant_id: str | None = None,
    client_id: str | None = None,
    client_secret: str | None = None,
    credentials: str | None = None,
    connect_timeout_ms: Count | None = None,
    read_timeout_ms: Count | None = None,
    max_attempts: Count | None = None,
    retry_base_ms: Natural | None = None,
    fsync: bool | None = None,
) -> Store:
    """Return the store at a URL. The first use of the store sends the first request.

    Args:
        url: a local path (also a ``Path``), ``s3://bucket/prefix``, ``gs://bucket/prefix``,
            ``abfss://container@account.dfs.core.windows.net/prefix``, ``az://container/prefix``, or ``memory://name``
            (within this process).
        create: if False, ``create_topic`` raises ``NotAStore`` where no store exists. Otherwise it creates the store.
            Then a mistyped URL becomes a new store.
        log_config: settings of the log; if None, they come from ``settings``.
        settings: defaults for everything that is not an argument. If None, they are read from the file that
            ``EOSLOG_CONFIG`` names and from the environment.
        endpoint_url: clouds: the URL of a server other than the cloud's.
        key, secret, token: S3: the credentials. Without them the environment, the profile or the instance's role gives
            them.
        region, profile: S3: the region, and the profile with the credentials.
        token: Google, Azure: an access token, which is never renewed. Without credentials Google's application default
            credentials count. In Azure it is the variables of its command line, or the identity of the machine.
        anon: clouds: send requests without credentials.
        server_side_encryption: S3: the header ``x-amz-server-side-encryption`` of each put: ``AES256``, ``aws:kms`` or
            ``aws:kms:dsse``. Default: the bucket's.
        sse_kms_key_id: S3: the key of KMS that encrypts. Default: the bucket's.
        key_file: Google: a JSON file with the key of a service account or with a workload identity federation.
        account: Azure: the storage account, where the URL does not name it.
        account_key, sas_token: Azure: the account's key or a shared access signature.
        tenant_id, client_id, client_secret: Azure: a service principal. ``client_id`` alone is a managed identity that
            the user assigned.
        credentials: clouds: the function ``module:function`` that gives the credentials. Each process imports it and
            calls it with the URL. It returns a mapping, such as ``{"token": …, "expires_at_ms": …}``, or an object of
            the cloud's own library: a botocore session, credentials of google-auth, a credential of azure-identity.
        connect_timeout_ms, read_timeout_ms: clouds: how long a request waits for a connection (5,000 ms) and for bytes
            (30,000 ms).
        max_attempts: clouds: the largest number of attempts of a request that may be repeated (6).
        retry_base_ms: clouds: the wait before the first retry (ms; 100). It doubles up to 5 s.
        fsync: local disk: if False, a write that has returned may not survive a power failure. The default is True.

    Raises:
        InvalidOption: an unknown scheme or option.
    """
    # Import these modules now, not at their first use. If one thread forks while another imports, the child waits
    # forever for the import lock, because the importing thread does not exist in the child.
    import eoslog.admin.admin
    import eoslog.consumer.consumer
    import eoslog.maintenance.coordinator
    import eoslog.processor
    import eoslog.producer.producer  # noqa: F401

    if settings is None:
        settings = load_settings()
    if not isinstance(settings, Settings):
        raise InvalidOption(f"settings must be Settings, as load_settings(path) returns them, not {quoted(settings)}")
    if log_config is not None and not isinstance(log_config, LogConfig):
        raise InvalidOption(f"log_config must be a LogConfig, not {quoted(log_config)}")
    root = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(root, str):
        raise InvalidOption(f"a store's URL is a string or a Path, not {quoted(url)}")
    given = {
        "endpoint_url": endpoint_url,
        "key": key,
        "secret": secret,
        "token": token,
        "region": region,
        "profile": profile,
        "anon": anon,
        "server_side_encryption": server_side_encryption,
        "sse_kms_key_id": sse_kms_key_id,
        "key_file": key_file,
        "account": account,
        "account_key": account_key,
        "sas_token": sas_token,
        "tenant_id": tenant_id,
        "client_id": client_id,
        "client_secret": client_secret,
        "credentials": credentials,
        "connect_timeout_ms": connect_timeout_ms,
        "read_timeout_ms": read_timeout_ms,
        "max_attempts": max_attempts,
        "retry_base_ms": retry_base_ms,
        "fsync": fsync,
    }
    options = {name: value for name, value in given.items() if value is not None}
    environment = Environment()
    object_store = open_object_store(root, environment, **settings.store_options(root, options))
    return Store(
        object_store,
        environment,
        log_config or settings.log_config(),
        may_create=create,
        iceberg_settings=settings.iceberg,
    )


class Store(Session):
    """One eoslog store: topics, transactions and consumer groups, ordered by one log.

    Threads may share it. A forked child may use it too, but must open its own producers and consumers.
    """

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "its URL and options, and call eoslog.connect() there")

    def metrics(self) -> StoreMetrics:
        """Return numbers for monitoring: what open transactions hold back, and the work of this process.

        The call sends one small request. It sends another one for each published table whose newest known version
        lacks rows. The first call opens the logs of the tables, with about three requests each.
        """
        store_id = self.describe().store_id
        tables = KnownTables.of(self)

        def behind(state: StoreState, slot: int) -> list[Topic]:
            published = [topic for topic in state.topics.values() if topic.config.is_published]
            known = [(topic, tables.known(topic, store_id)) for topic in published]
            return [topic for topic, last in known if last is None or is_behind(state, topic, last.slot)]

        tables.refresh(self.read(behind))

        def snapshot(state: StoreState, slot: int) -> StoreMetrics:
            found = {topic.topic: tables.known(topic, store_id) for topic in state.topics.values()}
            publications = {topic: last for topic, last in found.items() if last is not None}
            return store_metrics(
                state,
                slot,
                self.now_ms(),
                publications=publications,
                slots_since_checkpoint=self.log.replica.slots_since_checkpoint(),
                log_counts=self.log_counts,
                call_counts=self.call_counts,
                requests=self.requests,
                appends=self.log.appender.counts.as_dict(),
                call_times_ns=self.call_times.totals(),
            )

        return self.read(snapshot, refresh=False)

    @property
    def admin(self) -> Admin:
        """Administration of topics, transactions and consumer groups."""
        from eoslog.admin.admin import Admin

        return Admin(self)

    @named_options("a producer", PRODUCER_CONFIG)
    def producer(
        self,
        transactional_id: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        transaction_timeout_ms: TransactionTimeout = DEFAULT_TRANSACTION_TIMEOUT_MS,
        staged: bool = False,
        buffer_bytes: Count | None = None,
        max_block_ms: TimeLimit = DEFAULT_MAX_BLOCK_MS,
        delivery_timeout_ms: TimeLimit = DEFAULT_DELIVERY_TIMEOUT_MS,
        prepared_timeout_ms: TransactionTimeout | None = DEFAULT_PREPARED_TIMEOUT_MS,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        linger_ms: Natural | None = None,
        fail_on_send_error: bool = False,
    ) -> Producer:
        """Open a producer. It is transactional if it has a transactional id, otherwise idempotent.

        Args:
            config: options by Kafka's names, such as ``{"transactional.id": "etl-1", "acks": "all"}``. Keys that only a
                broker uses are ignored with a warning. docs/from-confluent-kafka.md lists the keys.
            transaction_timeout_ms: any process may abort a transaction that has been open for longer (ms).
            max_block_ms: how long one call tries (ms). Then it raises ``RequestTimedOut``, and only the same call may
                follow.
            delivery_timeout_ms: the producer gives rows up when writing them has failed for this long (ms), over all
                calls together.
            staged: rows get their offsets when the transaction commits, not when they are flushed. Until then they do
                not hold back ``read_committed``, and ``read_uncommitted`` does not show them.
            buffer_bytes: the producer flushes when it has collected this many bytes.
            prepared_timeout_ms: any process may abort a transaction that has been prepared for longer (ms, KIP-939).
                While a transaction is prepared, ``transaction_timeout_ms`` does not apply. None: no process may abort
                it. Until it ends, its flushed rows hold ``read_committed`` back, unless the producer is staged.
            key_serializer, value_serializer: functions that turn the keys and values of ``send`` into bytes. They never
                get None. A key of None stays no key, and a value of None stays a tombstone.
            linger_ms: a thread flushes waiting rows, at the latest this time after the first row was sent (ms). None:
                rows wait for a flush, a commit, a full buffer or the close.
            fail_on_send_error: a record that ``send`` or ``send_table`` refuses fails the transaction, also if the
                program catches the error. Then the commit raises ``TransactionAbortable``. By default the refused
                record is left out, and the commit succeeds.

        Raises:
            InvalidOption, InvalidRequest
        """
        from eoslog.producer.producer import Producer

        return Producer(
            self,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            staged=staged,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            prepared_timeout_ms=prepared_timeout_ms,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            linger_ms=linger_ms,
            fail_on_send_error=fail_on_send_error,
        )

    @named_options("a consumer", CONSUMER_CONFIG)
    def consumer(
        self,
        group_id: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: str = "latest",
        new_partitions_from_beginning: bool = True,
        max_poll_records: Count = 500,
        session_timeout_ms: SessionTimeout = DEFAULT_SESSION_TIMEOUT_MS,
        group_instance_id: str | None = None,
        client_id: str = "",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: Natural = 5_000,
        consumer_timeout_ms: Natural | None = None,
        with_transaction: bool = False,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> Consumer:
        """Open a consumer, in a group if it has a group id.

        Args:
            config: options by Kafka's names, such as ``{"group.id": "billing", "auto.offset.reset": "latest"}``. Keys
                that only a broker uses are ignored with a warning. docs/from-confluent-kafka.md lists the keys.
            isolation_level: ``read_committed`` or ``read_uncommitted``.
            auto_offset_reset: where to start if there is no committed offset, or if the position was deleted:
                ``earliest``, ``latest``, ``none`` (an error), or ``by_duration:PT1H``: at the first row of the last
                hour (KIP-1106; ISO 8601).
            new_partitions_from_beginning: start at the first row of a partition that was added since the subscription,
                also with ``latest``. False: start there as ``auto_offset_reset`` says, as in Kafka.
            max_poll_records: the largest number of records that a poll returns.
            session_timeout_ms: how long a member may go without a poll (6,000 to 1,800,000 ms; 45,000 by default).
            group_instance_id: makes this consumer a static member (KIP-345). When it is closed or dies, its partitions
                wait up to ``session_timeout_ms`` for the next consumer with the same id.
            client_id: a name for this consumer. Descriptions of its group show it, beside the name of its host.
            enable_auto_commit: commit positions in ``poll`` and ``close``. A ``with`` block that an exception leaves
                commits none: the rows after the last commit are read again.
            auto_commit_interval_ms: the shortest time between two automatic commits in ``poll`` (ms).
            consumer_timeout_ms: a ``for`` loop over the consumer ends after this time without a record (ms). None: the
                loop waits without a limit.
            with_transaction: return the transaction of each record (``ConsumerRecord.transaction``).
            key_deserializer, value_deserializer: functions that turn the bytes of keys and values into objects. They
                never get None: None stays None. They do not apply to topics of columns. If one raises an error,
                ``poll`` raises ``RecordDeserializationFailed``.

        Raises:
            InvalidOption, InvalidRequest
        """
        from eoslog.consumer.consumer import Consumer

        return Consumer(
            self,
            group_id,
            isolation_level=isolation_level,
            auto_offset_reset=auto_offset_reset,
            new_partitions_from_beginning=new_partitions_from_beginning,
            max_poll_records=max_poll_records,
            session_timeout_ms=session_timeout_ms,
            group_instance_id=group_instance_id,
            client_id=client_id,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            consumer_timeout_ms=consumer_timeout_ms,
            with_transaction=with_transaction,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )

    @named_options("a processor")
    def processor(
        self,
        topics: str | Iterable[str],
        process: Process,
        *,
        group_id: str,
        transactional_id: str,
        max_records: Count = 500,
        commit_interval_ms: Natural = 100,
        dead_letter_topic: str | None = None,
        consumer_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
    ) -> Processor:
        """Return a processor: it consumes topics, transforms their records, and produces the results, exactly once.

        Args:
            topics: the topics to read.
            process: a function of the records of one transaction and a ``ProcessorOutput``, which sends rows by
                ``send`` and ``send_table``. After an error the processor calls it again with the same records, in
                another transaction. So it should have no effects outside of the store.
            group_id: the group that keeps the progress.
            transactional_id: the id of this processor. A program that is started again uses the same one, and so fences
                its predecessor.
            max_records: the largest number of records of one transaction.
            commit_interval_ms: the shortest time between the begins of two transactions, while fewer than
                ``max_records`` records wait (ms).
            dead_letter_topic: a topic of Kafka records. If ``process`` raises an exception, the records are processed
                one by one, and a record for which it fails goes to this topic, with Kafka Streams' headers for the
                error. If it is None, the exception ends the run.
            consumer_options, producer_options: options of ``Store.consumer`` and ``Store.producer`` for its clients. By
                default the consumer begins at the earliest record, and the producer is staged.

        Raises:
            InvalidOption, InvalidRequest
        """
        from eoslog.processor import Processor

        return Processor(
            self,
            topics,
            process,
            open_consumer=self.consumer,
            open_producer=self.producer,
            group_id=group_id,
            transactional_id=transactional_id,
            max_records=max_records,
            commit_interval_ms=commit_interval_ms,
            dead_letter_topic=dead_letter_topic,
            consumer_options=consumer_options,
            producer_options=producer_options,
        )

    @named_options("scan()")
    def scan(
        self,
        topic: str,
        *,
        isolation_level: str | IsolationLevel | None = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
        starting_offsets: Mapping[int, int] | None = None,
        ending_offsets: Mapping[int, int] | None = None,
        slot: int | None = None,
        timestamp: datetime | int | str | None = None,
        transaction_consistent: bool = False,
        include_control_rows: bool = False,
        predicate: str | None = None,
        latest_by_key: bool = False,
    ) -> Scan:
        """Plan a read of the rows of a topic that are visible now.

        Args:
            isolation_level: ``read_committed`` if None; ``snapshot`` if a slot or a timestamp is given.
            columns: the columns to read. If None: a topic's own columns, and of Kafka records those of Spark's Kafka
                connector with ``headers``. Topics of columns also have ``_topic, _partition, _offset, _timestamp``.
                Every topic has ``_transactional_id, _producer_id, _producer_epoch, _sequence, _control, _slot,
                _commit_timestamp`` (see ``read.columns.TRANSACTION_COLUMNS``).
            partitions: the partitions to read; all if None.
            starting_offsets: the first offset to read, by partition (inclusive). Default: the log start.
            ending_offsets: the end, by partition (exclusive). Default: the end of the visible rows.
            slot: for ``snapshot``: read the transactions that had ended by this slot; the newest slot if None.
            timestamp: for ``snapshot``: read the transactions that had ended by this time of the log. Give a datetime
                with a time zone, its text in ISO 8601, such as ``2026-01-31T12:00:00Z``, or ms since the epoch.
            transaction_consistent: under ``read_committed``: choose ends that split no committed transaction over the
                partitions to read. They are at or before the ends that would apply otherwise.
            include_control_rows: return control rows too, with ``COMMIT`` or ``ABORT`` in ``_control`` and nulls in the
                topic's own columns. ``ABORT`` rows are returned only where aborted rows are visible. If ``columns`` is
                None, this adds the transaction columns.
            predicate: which rows to read, in the syntax of SQL's WHERE: ``miles > 1000 AND carrier IN ('UA', 'B6')``.
                It compares columns with literals, also ``_partition, _offset, _timestamp`` (``partition, offset,
                timestamp`` of Kafka records). A file is not fetched if the log's statistics exclude its rows. Strings
                are compared by their bytes, and NaN is greater than any other number, as in Spark.
            latest_by_key: read only the newest row of each key in each partition. Keys whose newest row is a tombstone
                are left out. Keys and tombstones are those of compaction by key. A row without a key is always read.
                ``predicate`` selects among the newest rows. Memory holds up to three copies of the distinct keys of
                one partition.

        Raises:
            OffsetOutOfRange: an offset is outside of the partition's, or the snapshot is from before the topic's
                creation or before rows were removed.
            UnknownTopicOrPartition, InvalidOption
        """
        return plan_scan(
            self,
            topic,
            isolation_level,
            columns=columns,
            partitions=partitions,
            starting_offsets={} if starting_offsets is None else starting_offsets,
            ending_offsets={} if ending_offsets is None else ending_offsets,
            slot=slot,
            timestamp=timestamp,
            transaction_consistent=transaction_consistent,
            include_control_rows=include_control_rows,
            predicate=predicate,
            latest_by_key=latest_by_key,
        )

    @named_options("commits()")
    def commits(
        self, topics: str | Sequence[str], *, after_slot: int = NO_SLOT, until_slot: int | None = None
    ) -> Iterator[Commit]:
        """Iterate over the commits to these topics, in the order of the log. Each commit comes whole and once.

        The iterator ends with the commit that was the newest at this call. To continue later, or in another process,
        give the last ``Commit.slot`` as ``after_slot``. An open transaction hides no other commit, and is
        returned after it commits. Only one thread at a time may use the iterator.

        Args:
            after_slot: start after this slot; -1 is the beginning of the log.
            until_slot: the last slot (inclusive); the newest if None.

        Raises:
            UnknownTopicOrPartition, InvalidOption
            OffsetOutOfRange: rows that were committed after ``after_slot`` have been deleted since.
            ConcurrentAccess: another thread is using the iterator.
        """
        return read_commits(self, names_given("topics", topics), after_slot, until_slot)

    @named_options("history()")
    def history(
        self,
        topic: str | None = None,
        *,
        limit: int | None = None,
        transactional_id: str | None = None,
        include_aborts: bool = False,
        after_slot: int = NO_SLOT,
        until_slot: int | None = None,
    ) -> History:
        """Return the operations on topics, the newest first: commits, and all else that changed a topic or its rows.

        The iterator reads the log step by step; one request fetches many slots. Old slots are deleted after their
        retention, and the history ends there. ``History.is_cut`` is True then.

        Args:
            topic: return only operations on this topic since it was created, and count only its rows.
            limit: return at most this many operations.
            transactional_id: return only the transactions of this transactional id.
            include_aborts: also return aborted transactions.
            after_slot: read only slots after this one; -1 for all. The newest operations come first.
            until_slot: the newest slot to read (inclusive); the newest of the log if None.

        Raises:
            UnknownTopicOrPartition, InvalidOption
            CorruptRecord, UnsupportedFormat: the iterator has reached a slot that cannot be read.
            ConcurrentAccess: another thread is using the iterator.
        """
        return History(
            self,
            topic,
            limit=limit,
            transactional_id=transactional_id,
            include_aborts=include_aborts,
            after_slot=after_slot,
            until_slot=until_slot,
        )

    def _before_checkpoint(self) -> None:
        sealed = seal_segments(self)
        join_small_segments(self, {PartitionId(each.topic_id, each.partition) for each in sealed})
