"""A bad network between the processes and an object store: the fault proxy, with faults at random.

It spoils answers of all kinds; SIGUSR1 ends that, and from then on it only forwards.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.fault_proxy import FaultProxy

_MEAN_PAUSE_S = 0.4
_LATE_S = (0.5, 12.0)


class BadNetwork:
    """Draws faults one after the other."""

    def __init__(self, proxy: FaultProxy, seed: str) -> None:
        self._proxy = proxy
        self._random = random.Random(seed)
        self.drawn: Counter[str] = Counter()

    def draw(self) -> None:
        """The next one, for the next requests of a kind."""
        proxy, kind = self._proxy, self._random.choice(["PUT", "PUT", "GET", "GET", "LIST", "DELETE"])
        times = self._random.choice([1, 1, 2, 5])
        faults: dict[str, Callable[[], object]] = {
            "reset": lambda: proxy.reset(kind, times=times),
            "lost answer": lambda: proxy.lose_answer(kind, times=times),
            "503": lambda: proxy.answer(503, "SlowDown", kind, times=times),
            "500": lambda: proxy.answer(500, "InternalError", kind, times=times),
            "500 after it was done": lambda: proxy.forward_then_answer(500, "InternalError", kind, times=times),
            "409": lambda: proxy.answer(409, "ConditionalRequestConflict", "PUT", "/slot/"),
            "late put": self._delay_a_put,
            "half an answer": lambda: proxy.truncate(times=times),
        }
        name = self._random.choice(list(faults))
        faults[name]()
        self.drawn[name] += 1

    def _delay_a_put(self) -> None:
        lands = threading.Event()
        self._proxy.delay(lands, "PUT", "/slot/")
        timer = threading.Timer(self._random.uniform(*_LATE_S), lands.set)
        timer.daemon = True
        timer.start()

    def pause(self) -> None:
        time.sleep(self._random.expovariate(1 / _MEAN_PAUSE_S))


def main(kind: str, target: str, seed: str, address: Path) -> None:
    """Print nothing; the file ``address`` has the proxy's URL as soon as it listens, then the faults drawn so far."""
    calm = threading.Event()
    ended = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: calm.set())
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with FaultProxy(target) as proxy:
        if kind == "gs":
            # The server knows itself by its own address only.
            proxy.ignored_headers.add("host")
        address.write_text(proxy.url)
        network = BadNetwork(proxy, seed)
        while not ended.is_set():
            if calm.is_set():
                proxy.forget_faults()
                ended.wait()
                return
            network.draw()
            address.with_suffix(".faults").write_text(
                "\n".join(f"{count} {name}" for name, count in network.drawn.items())
            )
            network.pause()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
