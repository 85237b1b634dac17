"""Verification and repair of a store: first its description, then the log and its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eoslog.errors import CorruptRecord, NotAStore, without_code
from eoslog.log.log import Log
from eoslog.log.slot_paths import SLOTS
from eoslog.session.description import DESCRIPTION_PATH, StoreDescription, decode_description
from eoslog.session.session import Session
from eoslog.session.store_machine import StoreMachine
from eoslog.state.store_state import StoreState
from eoslog.storage.object_store import ObjectNotFound
from eoslog.verification import repair as repairing
from eoslog.verification import store_checks as verifying
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Kind, Progress, finding


def verify_store(store: Session, topic: str | None, with_data: bool, progress: Progress) -> Iterator[Finding]:
    """Yield the findings of a store; see ``Admin.verify``."""
    description, found = _description(store)
    yield from found
    log = _fresh_log(store, description)
    store_id = None if description is None else description.store_id
    yield from verifying.verify(log, DESCRIPTION_PATH, store_id, topic=topic, with_data=with_data, progress=progress)


def repair_store(store: Session, findings: Iterable[Finding]) -> Iterator[repairing.Repair]:
    """Repair findings; see ``Admin.repair``."""
    description, found = _description(store)
    if description is None:
        what = f"the store cannot be opened, so nothing is repaired: {DESCRIPTION_PATH}: {found[0].problem}"
        yield from (repairing.Repair(each, False, what) for each in findings if each.repairable)
    else:
        yield from repairing.repair(_fresh_log(store, description), findings, DESCRIPTION_PATH, description.store_id)


def _fresh_log(store: Session, description: StoreDescription | None) -> Log[StoreState]:
    """Open the log again. The state that the store's own log has read may be older than the damage."""
    log: Log[StoreState] = Log(store.object_store, StoreMachine(), store.environment, store.log.config)
    if description is not None:
        log.adopt_slot_retention(description.slot_retention_ms)
    return log


def _description(store: Session) -> tuple[StoreDescription | None, list[Finding]]:
    """Raises: NotAStore, UnsupportedFormat"""
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
