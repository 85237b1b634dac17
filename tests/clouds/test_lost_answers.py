"""Producers whose puts lose their answers after landing."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import eoslog
from tests.clouds.servers import CloudServer
from tests.fault_proxy import FaultProxy

_SHARE = 0.15
_MOST_PUTS = 600
_TRANSACTIONS = 12


def test_rows_are_exact_though_many_puts_lose_their_answers(
    cloud_server: CloudServer, cloud_bucket: str, cloud_proxy: FaultProxy
) -> None:
    options = cloud_server.behind(cloud_proxy.url).options() | {"retry_base_ms": "1"}
    url = f"{cloud_server.url(cloud_bucket)}/store"
    eoslog.connect(url, **options).admin.create_topic("t", partitions=2)  # type: ignore[arg-type]
    draw = random.Random(15)
    lost = [number for number in range(1, _MOST_PUTS) if draw.random() < _SHARE]
    for number in lost:
        cloud_proxy.lose_answer("PUT", nth=number)
    before = cloud_proxy.counts["PUT"]

    def produce(name: str) -> None:
        # Each on connections of its own, so they race.
        producer = eoslog.connect(url, **options).producer(name)  # type: ignore[arg-type]
        producer.init_transactions()
        for number in range(_TRANSACTIONS):
            producer.begin_transaction()
            for row in range(3):
                producer.send("t", value=f"{name} {number} {row}".encode(), partition=row % 2)
            if number % 4 == 3:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(produce, ["a", "b", "c"]))

    sent = cloud_proxy.counts["PUT"] - before
    assert sum(number <= sent for number in lost) >= 8
    store = eoslog.connect(url, **options)  # type: ignore[arg-type]
    found = store.scan("t").to_table().column("value").to_pylist()
    expected = [
        f"{name} {number} {row}".encode()
        for name in "abc"
        for number in range(_TRANSACTIONS)
        if number % 4 != 3
        for row in range(3)
    ]
    assert sorted(found) == sorted(expected)
    assert list(store.admin.verify()) == []
