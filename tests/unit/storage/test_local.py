"""What is particular to a store in a local directory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoslog.errors import PutIfAbsentUnsupported, StorageFull, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectNotFound, PutOutcome

DAY_MS = 24 * 3600 * 1000


def root_of(store: LocalStore) -> Path:
    return Path(store.url)


def leftovers(store: LocalStore) -> list[str]:
    temporary = root_of(store) / ".tmp"
    return [name for name in os.listdir(temporary) if len(name) == 32] if temporary.exists() else []


def fail_with(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_of_many_processes_exactly_one_creates_each_object(local_store: LocalStore) -> None:
    processes, slots = 4, 40
    context = multiprocessing.get_context("fork")
    start, wins = context.Barrier(processes), context.SimpleQueue()

    def race(number: int) -> None:
        for slot in range(slots):
            start.wait(30)
            if local_store.put_if_absent(f"slot/{slot // 10}/{slot}", b"%d" % number) is PutOutcome.CREATED:
                wins.put((slot, number))

    racers = [context.Process(target=race, args=(number,)) for number in range(processes)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    won = []
    while not wins.empty():
        won.append(wins.get())
    assert sorted(slot for slot, _ in won) == list(range(slots))
    assert all(local_store.get(f"slot/{slot // 10}/{slot}").body == b"%d" % number for slot, number in won)
    assert leftovers(local_store) == []


def test_a_link_that_was_made_but_reported_as_failed_is_created(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    for number in (errno.EIO, errno.EEXIST, errno.ETIMEDOUT):

        def lose_answer(source: str, target: str, *, number: int = number, **options: Any) -> None:
            link(source, target, **options)
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", lose_answer)
        assert local_store.put_if_absent(f"slot/{number}", b"mine") is PutOutcome.CREATED
        assert local_store.get(f"slot/{number}").body == b"mine"
    assert leftovers(local_store) == []


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StoreAccessDenied),
        (errno.EXDEV, StoreAccessDenied),
        (errno.EPERM, PutIfAbsentUnsupported),
        (errno.EOPNOTSUPP, PutIfAbsentUnsupported),
    ],
)
def test_a_failed_link_is_reported_by_its_cause_and_nothing_lands(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(os, "link", fail_with(number))

    with pytest.raises(error, match="slot/1"):
        local_store.put_if_absent("slot/1", b"mine")

    with pytest.raises(ObjectNotFound):
        local_store.get("slot/1")
    assert leftovers(local_store) == []


@pytest.mark.parametrize("method", ["put_if_absent", "put"])
@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, StorageFull), (errno.EACCES, StoreAccessDenied), (errno.EIO, StoreUnavailable)],
)
def test_a_body_that_cannot_be_written_aside_never_lands(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, method: str, number: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(os, "write", fail_with(number))

    with pytest.raises(error):
        getattr(local_store, method)("a", b"body")

    monkeypatch.undo()
    assert list(local_store.list("")) == []
    assert leftovers(local_store) == []


@pytest.mark.parametrize("method", ["put_if_absent", "put"])
def test_an_object_whose_directory_cannot_be_made_durable_has_an_unknown_outcome(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    local_store.put("slot/0", b"")
    monkeypatch.setattr("eoslog.storage.local_store.fsync_directory", fail_with(errno.ENOSPC))

    with pytest.raises(StoreUnavailable, match="may not be durable"):
        getattr(local_store, method)("slot/1", b"mine")


def test_an_object_is_not_reported_to_exist_before_it_is_durable(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("slot/0", b"")
    with monkeypatch.context() as patched:
        patched.setattr("eoslog.storage.local_store.fsync_directory", fail_with(errno.EIO))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="may not be durable"):
                local_store.put_if_absent("slot/1", b"mine")

    assert local_store.put_if_absent("slot/1", b"mine") is PutOutcome.EXISTS


def test_an_object_is_durable_before_it_is_reported(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("fsync " + (os.path.relpath(target, root_of(local_store).parent) if is_directory else "file"))
        fsync(descriptor)

    def noted_link(source: str, target: str, **options: Any) -> None:
        steps.append("link")
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)

    local_store.put_if_absent("a/b/1", b"")
    assert steps == ["fsync file", "fsync store/a", "fsync store", "fsync .", "link", "fsync store/a/b"]

    steps.clear()
    local_store.put_if_absent("a/b/2", b"")
    assert steps == ["fsync file", "link", "fsync store/a/b"]


def test_a_directory_that_another_process_removed_is_made_anew(local_store: LocalStore) -> None:
    local_store.put("a/b/1", b"")
    os.unlink(root_of(local_store) / "a/b/1")
    os.rmdir(root_of(local_store) / "a/b")
    os.rmdir(root_of(local_store) / "a")

    assert local_store.put_if_absent("a/b/2", b"2") is PutOutcome.CREATED
    os.unlink(root_of(local_store) / "a/b/2")
    os.rmdir(root_of(local_store) / "a/b")
    local_store.put("a/b/3", b"3")

    assert [info.path for info in local_store.list("")] == ["a/b/3"]


def test_symbolic_links_are_neither_followed_nor_listed(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a/real", b"real")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root_of(local_store) / "a/link").symlink_to(outside / "secret")
    (root_of(local_store) / "way").symlink_to(outside)

    for path in ("a/link", "way/secret"):
        with pytest.raises(StoreAccessDenied, match="symbolic link"):
            local_store.get(path)
        with pytest.raises(StoreAccessDenied, match="symbolic link"):
            local_store.get_range(path, 0, 1)
    for call in (local_store.put, local_store.put_if_absent):
        with pytest.raises(StoreAccessDenied, match="symbolic link"):
            call("way/new", b"")
    with pytest.raises(StoreAccessDenied, match="symbolic link"):
        local_store.delete(["way/secret"])
    assert local_store.put_if_absent("a/link", b"mine") is PutOutcome.EXISTS

    assert [info.path for info in local_store.list("")] == ["a/real"]
    assert list(local_store.list("way/")) == []
    assert list(local_store.list_directories("")) == ["a"]
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_directories_deeper_than_any_objects_path_are_told_and_not_entered(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a/b", b"body")
    monkeypatch.chdir(root_of(local_store) / "a")
    for _ in range(500):
        os.mkdir("d")
        os.chdir("d")
    Path("file").touch()

    told = dict(local_store.irregular())

    assert [info.path for info in local_store.list("")] == ["a/b"]
    assert list(local_store.list_directories("a/")) == []
    assert told == {"a/" + "d/" * 449 + "d": "at a path of more than 900 bytes, which no object has"}


def test_a_denied_search_for_irregular_names_is_reported_as_denied(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a", b"body")
    monkeypatch.setattr(os, "lstat", fail_with(errno.EACCES))

    with pytest.raises(StoreAccessDenied, match="Check the path and permissions"):
        list(local_store.irregular())


def test_the_search_for_irregular_names_ignores_files_that_vanish_meanwhile(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a", b"body")
    for gone in (errno.ENOENT, errno.ENOTDIR):
        monkeypatch.setattr(os, "lstat", fail_with(gone))
        assert list(local_store.irregular()) == []


def test_a_directory_that_a_symbolic_link_has_replaced_is_refused(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a/b/1", b"own")
    outside = tmp_path / "outside" / "b"
    outside.mkdir(parents=True)
    (outside / "1").write_bytes(b"another's")
    (root_of(local_store) / "a").rename(tmp_path / "moved")
    (root_of(local_store) / "a").symlink_to(outside.parent)

    with pytest.raises(StoreAccessDenied, match="symbolic link"):
        local_store.get("a/b/1")
    with pytest.raises(StoreAccessDenied, match="symbolic link"):
        local_store.put("a/b/2", b"")


def test_a_symbolic_link_as_the_root_is_the_users_choice(tmp_path: Path, environment: Environment) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    LocalStore(tmp_path / "link", environment).put("a", b"body")

    assert LocalStore(tmp_path / "real", environment).get("a").body == b"body"


def test_a_named_pipe_in_an_objects_place_is_refused_and_hangs_nobody(local_store: LocalStore) -> None:
    local_store.put("a", b"")
    os.mkfifo(root_of(local_store) / "pipe")

    with pytest.raises(StoreAccessDenied, match="plain file"):
        local_store.get("pipe")


def test_an_object_is_no_directory(local_store: LocalStore) -> None:
    local_store.put("a", b"")

    with pytest.raises(StoreAccessDenied):
        local_store.put_if_absent("a/b", b"")


def test_age_is_that_of_the_link_and_not_of_the_bytes(local_store: LocalStore) -> None:
    local_store.put("a", b"")
    os.utime(root_of(local_store) / "a", (1, 1))

    assert local_store.get("a").last_modified_ms > 1_700_000_000_000


def test_the_clock_is_the_file_systems(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoslog.storage.local_store.host_time_ms", lambda: 1)
    local_store.put("a", b"")
    local_store.get("a")

    touched = os.stat(root_of(local_store) / ".tmp" / f"clock-{os.geteuid()}").st_ctime_ns // 1_000_000
    assert local_store.clock.last_date_ms == touched


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_reader_that_may_not_write_takes_the_hosts_time(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a", b"body")
    os.chmod(root_of(local_store) / ".tmp", 0o555)
    monkeypatch.setattr("eoslog.storage.local_store.host_time_ms", lambda: 12345)
    reader = LocalStore(root_of(local_store), Environment())

    assert reader.get("a").body == b"body"
    assert reader.clock.last_date_ms == 12345


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_where_nothing_can_be_touched_the_hosts_time_serves(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    local_store.put("a", b"body")
    monkeypatch.setattr("eoslog.storage.local_store.host_time_ms", lambda: 12345)
    monkeypatch.setattr(os, "utime", fail_with(number))
    reader = LocalStore(root_of(local_store), Environment())

    assert reader.get("a").body == b"body"
    assert reader.clock.last_date_ms == 12345


def test_looking_into_a_foreign_directory_leaves_nothing_there(tmp_path: Path, environment: Environment) -> None:
    store = LocalStore(tmp_path, environment)
    with pytest.raises(ObjectNotFound):
        store.get("eoslog.json")
    assert list(store.list("")) == []

    assert os.listdir(tmp_path) == []
    assert store.clock.last_date_ms > 0


def test_reading_a_root_that_does_not_exist_does_not_make_it(local_store: LocalStore) -> None:
    with pytest.raises(ObjectNotFound):
        local_store.get("a")
    assert list(local_store.list("")) == []
    assert list(local_store.list_directories("")) == []

    assert not root_of(local_store).exists()


def test_files_being_written_are_not_listed(local_store: LocalStore) -> None:
    local_store.put("a", b"")
    (root_of(local_store) / ".tmp" / ("0" * 32)).write_bytes(b"half")

    assert [info.path for info in local_store.list("")] == ["a"]
    assert list(local_store.list_directories("")) == []


def test_dead_writers_temporary_files_are_swept_only_after_a_day(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a", b"")
    (root_of(local_store) / ".tmp" / ("0" * 32)).write_bytes(b"half")

    LocalStore(root_of(local_store), Environment()).put("b", b"")
    assert leftovers(local_store) == ["0" * 32]

    monkeypatch.setattr("eoslog.storage.local_store._TEMPORARY_AGE_MS", -DAY_MS)
    LocalStore(root_of(local_store), Environment()).put("c", b"")
    assert leftovers(local_store) == []


def test_a_list_does_not_read_directories_that_sort_before_its_start(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        local_store.put(f"slot/{number}/x", b"")
    scandir, read = os.scandir, []

    def noted_scandir(path: str) -> Any:
        read.append(os.path.relpath(path, root_of(local_store)))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted_scandir)

    assert [info.path for info in local_store.list("slot/", start_after="slot/3/")] == ["slot/3/x", "slot/4/x"]
    assert read == ["slot", "slot/3", "slot/4"]


def test_stores_of_one_directory_share_turns(local_store: LocalStore) -> None:
    local_store.put("a", b"")
    same = LocalStore(root_of(local_store), Environment())
    assert local_store.host_queue is not None
    assert same.host_queue is not None

    with local_store.host_queue.turn() as turn, same.host_queue.turn() as other:
        assert turn.begin()
        assert not other.begin()


def test_a_sync_of_its_directory_makes_a_read_object_durable(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("d/a", b"1")
    synced: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr("eoslog.storage.local_store.fsync_directory", synced.append)
        local_store.make_durable("d/a")
    assert synced == [str(root_of(local_store) / "d")]

    monkeypatch.setattr("eoslog.storage.local_store.fsync_directory", fail_with(errno.EIO))
    with pytest.raises(StoreUnavailable):
        local_store.make_durable("d/a")
    # A process that may not sync the directory does not write to it either.
    monkeypatch.setattr("eoslog.storage.local_store.fsync_directory", fail_with(errno.EACCES))
    local_store.make_durable("d/a")


def test_without_fsync_puts_stay_exclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fail_with(errno.EIO))
    store = LocalStore(tmp_path, Environment(), fsync=False)

    assert store.put_if_absent("a/b", b"first") is PutOutcome.CREATED
    assert store.put_if_absent("a/b", b"second") is PutOutcome.EXISTS
