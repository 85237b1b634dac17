"""A zombie: a producer is paused, another takes its transactional id over, and then the first one wakes up.

``python -m examples.zombie`` tells the story with two processes and a store in a temporary directory.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

import eoslog

TOPIC = "payments"
TRANSACTIONAL_ID = "payroll"
FENCED = 3


def pay(url: str) -> int:
    """The first instance: it pays Anna, hangs before its commit, and goes on as if nothing had happened."""
    producer = eoslog.connect(url).producer(transactional_id=TRANSACTIONAL_ID)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, key=b"card-1", value=b"1000, from the first instance")
    producer.flush()
    print("flushed", flush=True)
    sys.stdin.readline()  # It is stopped here: a long garbage collection, a virtual machine that is moved ...
    try:
        producer.commit_transaction()
    except eoslog.ProducerFenced as error:
        # What to do: no retry and no init_transactions(), which would fence the successor in turn. Close and end.
        print(error, flush=True)
        producer.close()
        return FENCED
    return 0


def pay_instead(store: eoslog.Store) -> None:
    """The second instance, which somebody started because the first one did not answer."""
    with store.producer(transactional_id=TRANSACTIONAL_ID) as producer:
        producer.init_transactions()  # What the first one left open is aborted, and its epoch is over.
        producer.begin_transaction()
        producer.send(TOPIC, key=b"card-1", value=b"1000, from the second instance")
        producer.commit_transaction()


def shown(store: eoslog.Store, isolation_level: str) -> list[bytes]:
    rows: list[bytes] = store.scan(TOPIC, isolation_level=isolation_level).to_table()["value"].to_pylist()
    return rows


def main(url: str) -> int:
    store = eoslog.connect(url)
    store.admin.create_topic(TOPIC)
    print("1. The first instance writes a payment in a transaction, and flushes it.")
    first = subprocess.Popen(
        [sys.executable, "-m", "examples.zombie", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "flushed\n"
        print("2. Before it commits, its process is stopped (SIGSTOP). To everybody else it looks dead.")
        first.send_signal(signal.SIGSTOP)
        print("3. A second instance with the same transactional id takes over, pays, and commits.")
        pay_instead(store)
        print("4. The first instance wakes up (SIGCONT) and commits what it had begun. It is told:")
        first.send_signal(signal.SIGCONT)
        answer, _ = first.communicate("go on\n", timeout=60)
    finally:
        first.kill()
        first.wait()
    print(f"   {answer.strip()}")
    committed, all_rows = shown(store, "read_committed"), shown(store, "read_uncommitted")
    print(f"5. read_committed shows   {committed}")
    print(f"   read_uncommitted shows {all_rows}, the zombie's row among them, aborted for ever.")
    print(
        "Anna was paid once. What to do on ProducerFenced: close the producer and end this instance; it was replaced."
    )
    exact = committed == [b"1000, from the second instance"] and len(all_rows) == 2
    return 0 if exact and first.returncode == FENCED else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(pay(sys.argv[1]))
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(place))
