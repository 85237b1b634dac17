"""``make soak``: real processes on one store, among faults, and a verdict at the end.

``python -m tests.soak.run --minutes 10 --store local`` ends with status 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import eoslog
from tests.soak.checking import Evidence, checked_history, contradictions_of
from tests.soak.disk import SmallDisk, enter_own_mount_space
from tests.soak.draining import drain
from tests.soak.faults import Faults
from tests.soak.history import write_history
from tests.soak.layout import PUBLISHED, Run, make_topics
from tests.soak.object_server import BUCKET, KINDS_OF_SERVERS, ObjectServer
from tests.soak.observer import Observer
from tests.soak.plot import draw
from tests.soak.summary import DRAINS, TRIED, Summary
from tests.soak.supervisor import KINDS, STREAMS, Supervisor
from tests.soak.untried import untried

_TICK_S = 0.1
_MEGABYTES = 1024
_PACE_WITH_SPARK = 3.0


def main() -> int:
    arguments = _arguments()
    folder = arguments.folder or Path("build") / "soak" / f"{arguments.store}-{arguments.seed}"
    if folder.exists():
        raise SystemExit(f"{folder} exists; choose another folder or another seed")
    folder.mkdir(parents=True)
    # What was started is ended, however the run ends.
    signal.signal(signal.SIGTERM, _end)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    print(f"{arguments.minutes} minutes on {arguments.store}, seed {arguments.seed}, in {folder}", flush=True)
    with contextlib.ExitStack() as stack:
        disk, server = None, None
        if arguments.store != "local":
            server = stack.enter_context(ObjectServer(arguments.store, folder.resolve(), arguments.seed))
            url = f"{arguments.store}://{BUCKET}/store"
            run = Run(folder.resolve(), url, arguments.seed, server.url, 15_000, 20_000, pace=_pace(arguments))
        else:
            disk = _small_disk(folder.resolve(), stack)
            place = folder.resolve() / "store" if disk is None else disk.store
            run = Run(folder.resolve(), str(place), arguments.seed, pace=_pace(arguments))
        return _soak(run, arguments.minutes, disk, server, with_spark=arguments.spark)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """What ends the processes is not to be cut short by a second signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def _pace(arguments: argparse.Namespace) -> float:
    given: float | None = arguments.pace
    return given if given is not None else _PACE_WITH_SPARK if arguments.spark else 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults go on")
    parser.add_argument("--store", choices=["local", *KINDS_OF_SERVERS], default="local")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="which faults, and when")
    parser.add_argument("--folder", type=Path, help="where histories, logs, plot and summary go")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="without streaming queries")
    parser.add_argument(
        "--pace",
        type=float,
        help=f"how many times as long processes pause: {_PACE_WITH_SPARK:g} with Spark, which starts slowly, else 1",
    )
    return parser.parse_args()


def _small_disk(folder: Path, stack: contextlib.ExitStack) -> SmallDisk | None:
    try:
        disk = SmallDisk(folder / "disk", _MEGABYTES)
    except Exception as error:
        print(f"no file system can be mounted here ({error}): the disk is never made full", flush=True)
        return None
    stack.callback(disk.unmount)
    return disk


def _soak(run: Run, minutes: float, disk: SmallDisk | None, server: ObjectServer | None, *, with_spark: bool) -> int:
    run.save()
    summary = Summary(run, minutes, can_fill_disk=disk is not None)
    names = [name for name in KINDS if with_spark or name != STREAMS]
    store = _connect(run, server)
    make_topics(store)
    observer = Observer(store)
    observer.start()
    supervisor = Supervisor(run, names)
    faults = Faults(supervisor, disk, run.seed)
    try:
        ends_s = time.time() + minutes * 60
        while time.time() < ends_s:
            supervisor.tend()
            faults.tick()
            time.sleep(_TICK_S)
        faults.end()
        if server is not None:
            server.calm()
        print("no more faults: everything is started again, and drains", flush=True)
        supervisor.note("drain", "all")
        left = drain(run, store, supervisor)
    finally:
        faults.end()
        supervisor.end_all()
    # Compaction and retention went on after the last version. The snapshot at its slot may be gone by now.
    for topic in PUBLISHED:
        store.admin.publish(topic)
    observer.stop()
    evidence = Evidence.gather(run, _connect(run, server), observer, has_streams=with_spark)
    write_history(run.judged, checked_history(evidence))
    contradictions = contradictions_of(evidence)
    contradictions[DRAINS] = [] if left is None else [left]
    contradictions[TRIED] = untried(evidence, supervisor.events, minutes)
    summary.write(evidence, supervisor.events, contradictions, server.faults() if server is not None else {})
    draw(run, evidence, supervisor.events, observer.samples)
    print(summary.text(), flush=True)
    if any(contradictions.values()) and disk is not None:
        shutil.copytree(disk.path, run.folder / "store-as-it-was", symlinks=True)
    return 1 if any(contradictions.values()) else 0


def _connect(run: Run, server: ObjectServer | None) -> eoslog.Store:
    """As a bystander: past the bad network, with the time limits of all others."""
    for name, value in run.environment().items():
        if name.startswith("EOSLOG_"):
            os.environ[name] = value
    return run.connect(endpoint_url=server.direct_url if server is not None else None)


if __name__ == "__main__":
    if not {*KINDS_OF_SERVERS} & {*sys.argv[1:]}:
        enter_own_mount_space("tests.soak.run")
    sys.exit(main())
