"""A prepared transaction, and what its ends and other prepares are refused with."""

from __future__ import annotations

from eoslog.state.end_requests import EndTransaction, end_request, prepare_request
from eoslog.state.names import PartitionId
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.transaction_requests import PrepareTransaction
from tests.unit.state.histories import TOPIC_ID, History, with_content

PLACE = PartitionId(TOPIC_ID, 0)


def eager(history: History) -> ProducerIdentity:
    """A prepared transaction with two rows at offsets 0 and 1."""
    identity = history.init()
    history.send(identity, 0, 2)
    return history.prepare(identity)


def end_refused(history: History, identity: ProducerIdentity, outcome: str, **options: object) -> Exception:
    request = end_request("tx", identity, outcome, time_ms=history.now_ms, **with_content(options))
    return history.refused(lambda draft: EndTransaction(request).apply(draft))


def prepare_refused(history: History, identity: ProducerIdentity, **options: object) -> Exception:
    options = {"time_ms": history.now_ms, "timeout_ms": None, "upload_ms": history.now_ms} | options
    request = prepare_request("tx", identity, **with_content(options))
    return history.refused(lambda draft: PrepareTransaction(request).apply(draft))
