"""What kafka-python's tests import as ``test.service``. The source distribution does not have it."""

from __future__ import annotations


class ExternalService:
    """A server that runs already. The tests neither start nor stop it."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


class SpawnedService:
    """A server that a test starts. No test does."""
