"""SCRAM: the file of users, and the messages of clients."""

from __future__ import annotations

import logging
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from eoslog.errors import InvalidOption
from eoslog.gateway.authentication import AuthenticationFailed, Identity, MechanismAnswer
from eoslog.gateway.scram import ScramUsers, write_user
from eoslog.storage.environment import Environment

PASSWORD = "alice's secret"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "users"
    write_user(found, "alice", PASSWORD, Environment())
    return found


def first_answer(users: ScramUsers, name: str, mechanism: str = MECHANISMS[0]) -> dict[str, str]:
    """The first message of the gateway to a client of this name."""
    scram = ScramClient([mechanism], name, PASSWORD)
    content = users.mechanisms()[mechanism]().answer(scram.get_client_first().encode()).content.decode()
    return dict(part.split("=", 1) for part in content.split(","))  # type: ignore[misc]


def prove(users: ScramUsers, name: str, password: str, mechanism: str = MECHANISMS[0]) -> MechanismAnswer:
    exchange, scram = users.mechanisms()[mechanism](), ScramClient([mechanism], name, password)
    scram.set_server_first(exchange.answer(scram.get_client_first().encode()).content.decode())
    answer = exchange.answer(scram.get_client_final().encode())
    scram.set_server_final(answer.content.decode())
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["amy", "a=b, c", "ä-ß-字", "o'neil@example.com"])
def test_a_user_proves_the_password(path: Path, name: str, mechanism: str) -> None:
    write_user(path, name, "päss,=word", Environment())

    assert prove(ScramUsers(path), name, "päss,=word", mechanism).identity == Identity(name)
    assert prove(ScramUsers(path), "alice", PASSWORD, mechanism).identity == Identity("alice")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", PASSWORD), ("ALICE", PASSWORD)])
def test_a_wrong_password_and_an_unknown_name_look_alike(path: Path, name: str, password: str, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed) as failure:
        prove(ScramUsers(path), name, password, mechanism)

    assert str(failure.value) == f"{mechanism}: there is no user {name!r}, or the password is wrong"


def test_an_unknown_name_gets_the_same_salt_each_time_and_in_each_gateway(path: Path, tmp_path: Path) -> None:
    users = ScramUsers(path)
    found = [first_answer(users, name) for name in ("bob", "bob", "carol", "alice", "alice")]
    elsewhere = first_answer(ScramUsers(path), "bob")
    write_user(path, "dave", PASSWORD, Environment())
    later = first_answer(users, "bob")
    other = tmp_path / "other"
    write_user(other, "alice", PASSWORD, Environment())

    bob, again, carol, alice, alice_again = (each["s"] for each in found)
    assert bob == again == elsewhere["s"] == later["s"]
    assert len({bob, carol, alice, first_answer(ScramUsers(other), "bob")["s"]}) == 4
    assert alice == alice_again
    assert {(len(each["s"]), each["i"], len(each["r"])) for each in found} == {(24, "16384", len(found[0]["r"]))}
    assert first_answer(users, "bob", MECHANISMS[1])["s"] != bob


def test_an_unknown_name_gets_the_iterations_of_the_users(path: Path) -> None:
    path.write_text(path.read_text().replace(":16384:", ":4096:"))

    assert {first_answer(ScramUsers(path), name)["i"] for name in ("alice", "bob")} == {"4096"}


def test_the_file_has_no_password_and_is_for_its_owner_only(path: Path) -> None:
    assert PASSWORD not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode, later in ((0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o777, 0o660)):
        os.chmod(path, mode)
        write_user(path, "bob", PASSWORD, Environment())
        assert stat.S_IMODE(path.stat().st_mode) == later
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_user_gets_a_new_password_and_the_others_keep_theirs(path: Path) -> None:
    path.write_text(path.read_text() + "# a comment\n\n")
    write_user(path, "bob", "bob's secret", Environment())
    write_user(path, "alice", "another secret", Environment())

    users = ScramUsers(path)
    assert prove(users, "bob", "bob's secret").identity == Identity("bob")
    assert prove(users, "alice", "another secret").identity == Identity("alice")
    with pytest.raises(AuthenticationFailed):
        prove(users, "alice", PASSWORD)
    assert "# a comment" in path.read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
def test_a_user_that_root_adds_does_not_take_the_file_from_the_gateway(path: Path) -> None:
    os.chown(path, 1, 2)

    write_user(path, "bob", PASSWORD, Environment())

    assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)


def test_a_user_comes_into_the_file_to_which_a_link_leads(path: Path) -> None:
    link = path.parent / "links" / "users"
    link.parent.mkdir()
    link.symlink_to("../users")

    write_user(link, "bob", PASSWORD, Environment())

    assert link.is_symlink()
    assert prove(ScramUsers(path), "bob", PASSWORD).identity == Identity("bob")
    assert [each.name for each in link.parent.iterdir()] == ["users"]


def test_a_file_that_becomes_readable_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    users = ScramUsers(path)
    write_user(path, "bob", PASSWORD, Environment())

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as unreadable:
        unreadable.setattr("builtins.open", refuse)
        with pytest.raises(AuthenticationFailed):
            prove(users, "bob", PASSWORD)
    assert "stays in use" in caplog.text
    time.sleep(0.02)
    os.chmod(path, 0o640)

    assert prove(users, "bob", PASSWORD).identity == Identity("bob")


def test_a_changed_file_counts_from_the_next_authentication_on(path: Path) -> None:
    users = ScramUsers(path)
    write_user(path, "bob", PASSWORD, Environment())
    assert prove(users, "bob", PASSWORD).identity == Identity("bob")

    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("alice:")))
    with pytest.raises(AuthenticationFailed):
        prove(users, "alice", PASSWORD)


@pytest.mark.parametrize("content", ["", "alice:wrong\n", None])
def test_a_broken_new_file_is_not_used(path: Path, content: str | None, caplog: pytest.LogCaptureFixture) -> None:
    users = ScramUsers(path)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)

    for _ in range(2):
        assert prove(users, "alice", PASSWORD).identity == Identity("alice")
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
    assert f"the former content of {path} stays in use" in warning


SECRET = "*:" + "A" * 43 + "="
KEYS = f"{'A' * 22}==:{'A' * 43}=:{'A' * 43}="


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("alice", "is not name:mechanism:"),
        (f"alice:SCRAM-SHA-1:4096:{KEYS}", "is not name:mechanism:"),
        (f" :SCRAM-SHA-256:4096:{KEYS}", "is not name:mechanism:"),
        (f"alice:SCRAM-SHA-256:4095:{KEYS}", "must have 4096 to 16384 iterations"),
        (f"alice:SCRAM-SHA-256:16385:{KEYS}", "must have 4096 to 16384 iterations"),
        (f"alice:SCRAM-SHA-256:999999999:{KEYS}", "is not name:mechanism:"),
        (f"alice:SCRAM-SHA-512:4096:{KEYS}", "of a wrong length"),
        (f"alice:SCRAM-SHA-256:4096:AAAA:{KEYS.partition(':')[2]}", "of a wrong length"),
        (f"alice:SCRAM-SHA-256:4096:{KEYS[:-1]}", "is not base64"),
        (f"bob:SCRAM-SHA-256:4096:{KEYS}", "of an earlier line"),
        (SECRET, "is not name:mechanism:"),
    ],
)
def test_a_broken_line_is_named_and_not_shown(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n{SECRET}\nbob:SCRAM-SHA-256:4096:{KEYS}\n{line}\n")

    with pytest.raises(InvalidOption, match="line 4 ") as error:
        ScramUsers(path)

    assert problem in str(error.value)
    assert "AAAA" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"*:AAAA\n", b"alice\n", b"\xff\n"])
def test_a_file_begins_with_its_secret(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users"
    path.write_bytes(content)

    with pytest.raises(InvalidOption, match="the file of users"):
        ScramUsers(path)


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("", PASSWORD),
        ("a:b", PASSWORD),
        (" alice", PASSWORD),
        ("#alice", PASSWORD),
        ("*", PASSWORD),
        ("a\nb", PASSWORD),
        ("ﬁ", PASSWORD),
        ("a" * 201, PASSWORD),
        ("alice", "short"),
        ("alice", "a" * 1_001),
        ("alice", "not\0printable"),
        ("alice", "not normal: ﬁ"),
    ],
)
def test_names_and_passwords_that_clients_could_send_in_two_ways_are_refused(
    tmp_path: Path, name: str, password: str
) -> None:
    with pytest.raises(InvalidOption) as error:
        write_user(tmp_path / "users", name, password, Environment())

    assert password not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("something else\n")

    with pytest.raises(InvalidOption, match="line 1 "):
        write_user(path, "alice", PASSWORD, Environment())
    with pytest.raises(InvalidOption, match="cannot be written: No such file"):
        write_user(tmp_path / "missing" / "users", "alice", PASSWORD, Environment())

    assert path.read_text() == "something else\n"


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=alice,r=nonce,tokenauth=true",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
        b"n,,n=alice,r=" + b"x" * 5_000,
        b"n,,m=x,n=alice,r=nonce",
        b"\xff",
    ],
)
def test_what_is_not_offered_is_refused(path: Path, message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="this is no first message of the mechanism"):
        ScramUsers(path).mechanisms()[MECHANISMS[0]]().answer(message)


ATTRIBUTES = st.lists(
    st.tuples(st.sampled_from("nrcspivme*é"), st.sampled_from(["alice", "biws", "=", "", "AAAA", "x" * 50, "\0", "ﬁ"])),
    max_size=6,
).map(lambda parts: ",".join(f"{name}={value}" for name, value in parts).encode())
GARBAGE = st.binary(max_size=100) | ATTRIBUTES | ATTRIBUTES.map(lambda text: b"n,," + text)


@given(st.sampled_from(MECHANISMS), st.lists(GARBAGE, min_size=1, max_size=2), st.booleans())
def test_whatever_a_client_sends_it_fails_as_told(mechanism: str, messages: list[bytes], begins_well: bool) -> None:
    exchange = SHARED.mechanisms()[mechanism]()
    if begins_well:
        messages = [b"n,,n=alice,r=nonce", *messages]

    def send_all() -> None:
        for message in (*messages, b""):
            assert exchange.answer(message).identity is None

    with pytest.raises(AuthenticationFailed, match=mechanism) as failure:
        send_all()
    assert str(failure.value).isprintable()


def _shared() -> ScramUsers:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "users"
        write_user(path, "alice", PASSWORD, Environment())
        return ScramUsers(path)


SHARED = _shared()


def test_nothing_secret_is_shown(path: Path) -> None:
    users = ScramUsers(path)
    exchange = users.mechanisms()[MECHANISMS[0]]()
    answer = exchange.answer(b"n,,n=alice,r=nonce")
    stored = path.read_text().split(":")
    for each in (users._users.value(), exchange, answer):
        shown = f"{each!r} {each}"
        assert not any(secret.strip() in shown for secret in (stored[5], answer.content.decode()))
