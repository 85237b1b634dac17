"""The verification of a store: check the log, the objects that it names, and all other objects. It writes nothing.

It first looks for links and special files, because one in the place of a part of the log makes that part unreadable.

The verification reads the state once. Other processes may change the store meanwhile, so it asks the newest state
before it reports an object. Memory holds the state, the paths of one partition and one data file.
"""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.errors import CorruptRecord, NotAStore
from eoslog.log.slots import SLOTS
from eoslog.session.description import DESCRIPTION_PATH, StoreDescription, decode_description
from eoslog.session.session import Session
from eoslog.state.entry_fields import SHARED_OBJECTS
from eoslog.state.invariants import broken_in_store
from eoslog.state.names import PartitionId
from eoslog.state.partitions import shared_positions
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.state.transactions import timed_out
from eoslog.storage.object_store import ObjectNotFound
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Kind, Progress, finding, of_broken
from eoslog.verification.live_files import Live
from eoslog.verification.log_checks import LogVerification, verify_log
from eoslog.verification.partition_checks import PartitionVerification
from eoslog.verification.unknown_files import find_irregular, find_unexpected
from eoslog.wording import without_code


def verify_store(store: Session, topic: str | None, with_data: bool, progress: Progress) -> Iterator[Finding]:
    """Yield the findings of a store; see ``Admin.verify``."""
    description, found = read_stored_description(store)
    yield from found
    session = fresh_session(store, description)
    yield from verify(session, description, topic=topic, with_data=with_data, progress=progress)


def fresh_session(store: Session, description: StoreDescription | None) -> Session:
    """Open the log again. The state that the store's own log has read may be older than the damage."""
    session = Session(store.object_store, store.environment, store.log.config)
    if description is not None:
        session.log.adopt_slot_retention(description.slot_retention_ms)
    return session


def read_stored_description(store: Session) -> tuple[StoreDescription | None, list[Finding]]:
    """Return the description of a store, or None and the finding why it cannot be read.

    Raises:
        NotAStore, UnsupportedFormat
    """
    problem = ""
    for _ in range(READS_BEFORE_REPORT):
        try:
            return decode_description(store.object_store.get(DESCRIPTION_PATH).body, store.url), []
        except ObjectNotFound:
            if not store.object_store.list_directories(SLOTS):
                raise NotAStore(f"there is no eoslog store at {store.url}: neither a description nor a log") from None
            return None, [finding(Kind.DESCRIPTION_MISSING, DESCRIPTION_PATH)]
        except CorruptRecord as error:
            problem = without_code(error)
    return None, [finding(Kind.DESCRIPTION_DAMAGED, DESCRIPTION_PATH, problem=problem)]


def conditions(live: Live, state: StoreState, now_ms: int) -> Iterator[Finding]:
    """Yield facts about a state that an operator may want to know, if they are still true in the newest state."""
    overdue = {each.transactional_id: each for each in timed_out(state.transactions.values(), now_ms)}
    for name in state.ongoing:
        transaction = state.transactions[name]
        if name in overdue:
            kind = Kind.TRANSACTION_OVERDUE
        elif transaction.prepared is not None:
            kind = Kind.TRANSACTION_PREPARED
        else:
            continue
        start = transaction.start_slot
        if live.read(lambda newest, name=name, start=start: _is_open(newest, name, start)):  # type: ignore[misc]
            yield finding(kind, slot=start, name=name, start=start)
    for partition_id, partition in state.partitions.items():
        for skipped in partition.skipped:
            yield finding(
                Kind.ROWS_SKIPPED,
                topic=state.topics[partition_id.topic_id].topic,
                partition=partition_id.partition,
                offsets=(skipped.base_offset, skipped.end_offset),
                rows=skipped.rows,
                since=skipped.slot,
            )
    for group_id, group in state.groups.items():
        for partition_id, committed in group.offsets.items():
            of_group = state.partitions.get(partition_id)
            if of_group is not None and committed.offset > of_group.high_watermark:
                yield finding(
                    Kind.GROUP_OFFSET_BEYOND_END,
                    topic=state.topics[partition_id.topic_id].topic,
                    partition=partition_id.partition,
                    group=group_id,
                    offset=committed.offset,
                    end=of_group.high_watermark,
                )


def _is_open(state: StoreState, transactional_id: str, start_slot: int) -> bool:
    transaction = state.transactions.get(transactional_id)
    return transaction is not None and transactional_id in state.ongoing and transaction.start_slot == start_slot


def verify(
    session: Session, description: StoreDescription | None, *, topic: str | None, with_data: bool, progress: Progress
) -> Iterator[Finding]:
    """Yield the findings of a store.

    Args:
        session: opened for the verification. Nothing is appended.
        description: the description of the store; None if it cannot be read.
        topic: check only the files of this topic; None checks all. The log is always checked.
        with_data: read all data files and check their rows. Otherwise check only their presence and length.
        progress: called with the progress.

    Raises:
        UnknownTopicOrPartition: there is no such topic.
        UnsupportedFormat: a newer version wrote a record or a checkpoint.
        StoreUnavailable, StoreAccessDenied: the store cannot be read.
    """
    store = session.object_store
    if topic is None:
        yield from find_irregular(store)
    verification, found = verify_state(session, description, progress)
    yield from found
    state, slot = verification.state, verification.slot
    if state is None:
        return
    live = Live(session)
    yield from conditions(live, state, store.clock.now_ms())
    chosen = _chosen_partitions(state, topic)
    # After the state was read, so that the LIST has each shared object that it names.
    shared = store.list(SHARED_OBJECTS) if shared_positions(state) else ()
    shared_bytes = {info.path: info.size for info in shared}
    for number, (each, partition_id) in enumerate(chosen):
        progress("partitions", number, len(chosen))
        partition = PartitionVerification(
            live,
            state,
            slot,
            topic=each,
            partition_id=partition_id,
            shared_bytes=shared_bytes,
            lost_slots=verification.lost,
            with_data=with_data,
        )
        yield from partition.findings()
    progress("partitions", len(chosen), len(chosen))
    if topic is None:
        yield from find_unexpected(live, verification.checkpoint_objects)


def verify_state(
    session: Session, description: StoreDescription | None, progress: Progress
) -> tuple[LogVerification, list[Finding]]:
    """Verify the log and the state that it leads to, but not the files that it names.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied
    """
    origin = None if description is None else description.copied
    verification, found = verify_log(session.log, None if origin is None else origin.first_slot, progress)
    state = verification.state
    if state is not None:
        if description is not None and state.store_id != description.store_id:
            described, of_log = description.store_id, state.store_id
            found.append(finding(Kind.DESCRIPTION_DIFFERS, DESCRIPTION_PATH, described=described, of_log=of_log))
        found += [of_broken(broken, state) for broken in broken_in_store(state, verification.slot)]
    return verification, found


def _chosen_partitions(state: StoreState, topic: str | None) -> list[tuple[Topic, PartitionId]]:
    topics = list(state.topics.values()) if topic is None else [topic_named(state, topic)]
    return [
        (each, partition_id)
        for each in topics
        for partition_id in each.partition_ids()
        if partition_id in state.partitions
    ]
