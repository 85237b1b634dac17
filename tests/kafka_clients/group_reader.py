"""A member of a group in a process of its own. It prints the rows that it reads, and commits them after that."""

from __future__ import annotations

import json
import sys

from tests.kafka_clients.group_members import CLIENTS


def say(kind: str, value: object = None) -> None:
    print(json.dumps([kind, value]), flush=True)


def main(package: str, servers: str, topic: str, group: str) -> None:
    """Read a topic until the process is killed."""
    (client,) = (each for each in CLIENTS if each.package == package)
    member = client.member(servers, topic, group)
    while True:
        try:
            rows = [(partition, offset) for partition, offset, _ in member.poll()]
            if rows:
                say("rows", rows)
                member.commit()
                say("committed")
        except Exception as error:
            # A commit that has failed is not repeated: the rows are read again, by this member or by another one.
            # kafka-python's polls raise errors of connections, too.
            say("failed", repr(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
