"""An end of a transaction that waits in a frozen gateway, while its client goes on at another gateway.

Under transaction version 1 the epoch does not tell one transaction of a producer from the next, so the log accepts a
late end. A gateway therefore notes which transaction is open when a request arrives. Under version 2 the epoch tells.
"""

from __future__ import annotations

import os
import signal

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.gateway_process import GatewayProcess
from tests.unit.gateway.raw_client import Client, Transactional

pytestmark = pytest.mark.slow
TIMES = 10


def connected(gateway: GatewayProcess) -> Client:
    return Client(int(gateway.servers.rpartition(":")[2]))


@pytest.mark.parametrize(
    ("api_version", "refusal"),
    [(3, ErrorCode.coordinator_not_available), (5, ErrorCode.producer_fenced)],
    ids=["version 1", "version 2"],
)
def test_a_late_end_does_not_end_the_next_transaction(
    local: Served, second: GatewayProcess, api_version: int, refusal: ErrorCode
) -> None:
    local.store.admin.create_topic("t")
    late = []
    with connected(local.gateway) as frozen, connected(second) as alive:
        producer = Transactional(frozen, api_version=api_version)
        producer.init()
        for number in range(TIMES):
            producer.client = frozen
            producer.add(0)
            assert producer.send(b"committed %d" % number).error_code is ErrorCode.none
            os.kill(local.gateway.pid, signal.SIGSTOP)
            try:
                frozen.send(ApiKey.END_TXN, api_version, committed=True, **producer.of)
                # The client gets no answer. It repeats the request at the other gateway, and goes on there.
                producer.client = alive
                # This gateway does not know the transaction yet, so it asks a client of version 1 to repeat the end.
                assert ErrorCode.none in (producer.end(), producer.end())
                producer.add(0)
                assert producer.send(b"aborted %d" % number).error_code is ErrorCode.none
            finally:
                os.kill(local.gateway.pid, signal.SIGCONT)
            late.append(frozen.answer(ApiKey.END_TXN, api_version).error_code)
            assert producer.end(commit=False) is ErrorCode.none

    assert [row["value"] for row in local.rows("t")] == [b"committed %d" % number for number in range(TIMES)]
    assert late == [refusal] * TIMES
