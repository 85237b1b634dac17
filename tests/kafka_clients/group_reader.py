"""A member of a group in a process of its own. It prints the rows that it reads, and commits them after that."""

from __future__ import annotations

import json
import sys

from tests.kafka_clients.group_members import CLIENTS


def main(package: str, servers: str, topic: str, group: str) -> None:
    """Read a topic until the process is killed."""
    (client,) = (each for each in CLIENTS if each.package == package)
    member = client.member(servers, topic, group)
    while True:
        rows = [(partition, offset) for partition, offset, _ in member.poll()]
        if rows:
            print(json.dumps(["rows", rows]), flush=True)
            try:
                member.commit()
                print(json.dumps(["committed", None]), flush=True)
            except Exception as error:
                # The rows are read again, by this member or by another one.
                print(json.dumps(["failed", repr(error)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
