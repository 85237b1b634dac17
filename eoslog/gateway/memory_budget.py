"""Memory of the gateway: the bytes of all connections together are bounded."""

from __future__ import annotations

import asyncio
from collections import deque


class MemoryBudget:
    """A number of bytes that requests share. A request waits until its bytes are free, in the order of requests."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> Lease:
        """Wait until ``size`` bytes are free, and take them. A larger size than the total counts as the total."""
        size = min(size, self.total)
        if self._waiting or size > self.free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            place = (size, turn)
            self._waiting.append(place)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give(size)
                elif place in self._waiting:
                    self._waiting.remove(place)
                    self._serve()
                raise
        else:
            self.free -= size
        return Lease(self, size)

    def take_some(self, wanted: int, least: int) -> Lease:
        """Take up to ``wanted`` bytes without a wait: at most an eighth of the free ones, but at least ``least``."""
        size = max(min(wanted, self.free // 8), min(wanted, least))
        self.free -= size
        return Lease(self, size)

    def _give(self, size: int) -> None:
        self.free += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= size
                turn.set_result(None)


class Lease:
    """Bytes of a budget, until they are returned."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self._budget = budget
        self.size = size

    def release(self) -> None:
        """Return the bytes. Further calls do nothing."""
        size, self.size = self.size, 0
        if size:
            self._budget._give(size)

    async def resize(self, size: int) -> None:
        """Keep only ``size`` bytes, or wait for more."""
        if size > self.size:
            # Nobody waits for more while holding some: two that did might wait for each other.
            self.release()
            self.size = (await self._budget.take(size)).size
        self.shrink(size)

    def shrink(self, size: int) -> None:
        """Keep only ``size`` bytes, and return the others."""
        if size < self.size:
            given, self.size = self.size - size, size
            self._budget._give(given)
