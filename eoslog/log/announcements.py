"""The append service that the log announces, and the one that this process runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eoslog.log.replica import Replica
from eoslog.log.slots import AppendServiceAnnouncement


@dataclass(frozen=True)
class OwnService:
    """The append service of this process, as its records announce it."""

    service_id: str
    address: str
    certificate_sha256: str | None
    lease_ms: int
    """An announcement expires this long after its record was made (ms)."""
    replaces: str | None = None
    """The id of a service that did not answer, whose announcement this one replaces."""
    is_withdrawn: bool = False
    """True if the service ends. Its records announce no service then."""

    def at(self, now_ms: int) -> AppendServiceAnnouncement | None:
        """Return the announcement in a record that is made at ``now_ms`` (ms by the store's clock)."""
        if self.is_withdrawn:
            return None
        return AppendServiceAnnouncement(
            service_id=self.service_id,
            address=self.address,
            expires_ms=now_ms + self.lease_ms,
            certificate_sha256=self.certificate_sha256,
        )


class Announcements:
    """The announcements in the records that this process reads and puts."""

    def __init__(self, replica: Replica[Any]) -> None:
        self.own_service: OwnService | None = None
        """The append service of this process; None if it runs none."""
        self._replica = replica

    def of_another_process(self) -> AppendServiceAnnouncement | None:
        """Return the announcement of another process's service in the newest record. It may have expired."""
        found, own = self._replica.append_service, self.own_service
        return None if found is None or (own is not None and found.service_id == own.service_id) else found

    def next(self, now_ms: int) -> AppendServiceAnnouncement | None:
        """Return the append service that the next record announces.

        Args:
            now_ms: the time of the record (ms by the store's clock).
        """
        found, own = self._replica.append_service, self.own_service
        if found is not None and not found.is_current(now_ms):
            found = None
        if own is None or (found is not None and found.service_id not in (own.service_id, own.replaces)):
            return found
        return own.at(now_ms)
