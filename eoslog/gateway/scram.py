"""SCRAM: users authenticate with a password that the gateway does not know.

The users are lines of a file, ``name:mechanism:iterations:salt:stored key:server key``, the last three in base64. The
line ``*:secret`` comes first. From the secret the gateway makes up credentials for unknown names, the same at each
attempt and at each gateway with this file, so that nobody learns which names exist. Empty lines and lines that begin
with ``#`` do not count.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep

from eoslog.errors import InvalidOption
from eoslog.gateway.authentication import AuthenticationFailed, Identity, MechanismAnswer, Mechanisms
from eoslog.gateway.reloaded import Reloaded
from eoslog.storage.environment import Environment
from eoslog.wording import quoted

_DIGEST_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4_096, 16_384
"""Kafka's own limits for the rounds of PBKDF2, which each connection of a client costs."""
_SALT_BYTES = 16
_LONGEST_SALT = 64
_LONGEST_NAME, _LONGEST_PASSWORD = 200, 1_000
_LONGEST_MESSAGE = 4_096
_LONGEST_FILE = 16 << 20
_LINE = re.compile(r"([^:\s](?:[^:]*[^:\s])?):(SCRAM-SHA-(?:256|512)):(\d{4,5}):([^:]+):([^:]+):([^:]+)")
_SECRET = "*"
_REMEDY = "Write users by eoslog gateway --users FILE --new-user NAME"


@dataclass(frozen=True)
class _Credential:
    """The salt and the keys that the gateway has instead of a user's password."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True)
class _Users:
    """The content of a file of users."""

    secret: bytes = field(repr=False)
    credentials: Mapping[tuple[str, str], _Credential]
    """By mechanism and name."""

    def credential(self, mechanism: str, name: str) -> _Credential:
        """Return the credential of a user. That of an unknown name is made up, and no password fits it."""
        made_up = self._made_up(mechanism, name)
        return self.credentials.get((mechanism, name), made_up)

    def _made_up(self, mechanism: str, name: str) -> _Credential:
        def digest(purpose: str) -> bytes:
            algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
            return hmac.digest(self.secret, f"{purpose}:{mechanism}:{name}".encode(), algorithm)

        like = next((each for (kind, _), each in self.credentials.items() if kind == mechanism), None)
        iterations, salt_bytes = (_MOST_ITERATIONS, _SALT_BYTES) if like is None else (like.iterations, len(like.salt))
        return _Credential(iterations, (digest("salt") * 2)[:salt_bytes], digest("stored"), digest("server"))


class ScramUsers:
    """The users of a file. A change of the file counts from the next authentication on."""

    def __init__(self, path: Path) -> None:
        """Raises: InvalidOption"""
        self._users = Reloaded((path,), lambda: _read(path))

    def mechanisms(self) -> Mechanisms:
        return {mechanism: partial(_Exchange, mechanism, self._users) for mechanism in _DIGEST_BYTES}


class _Exchange:
    """The two messages of a client."""

    def __init__(self, mechanism: str, users: Reloaded[_Users]) -> None:
        self._mechanism = mechanism
        self._users = users
        self._name: str | None = None
        self._server = ScramMechanism(mechanism).make_server(self._credential)

    def answer(self, content: bytes) -> MechanismAnswer:
        is_first = self._name is None
        try:
            if len(content) > _LONGEST_MESSAGE:
                raise ScramException("the message is too long")
            message = content.decode()
            if is_first:
                self._server.set_client_first(message)
                return MechanismAnswer(self._server.get_server_first().encode())
            self._server.set_client_final(message)
            return MechanismAnswer(self._server.get_server_final().encode(), Identity(str(self._name)))
        except (ScramException, UnicodeDecodeError):
            # The text of the cause may have parts of the message.
            reason = "this is no first message of the mechanism"
            if not is_first:
                reason = f"there is no user {quoted(self._name)}, or the password is wrong"
            raise AuthenticationFailed(f"{self._mechanism}: {reason}") from None

    def _credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        found = self._users.value().credential(self._mechanism, name)
        return found.salt, found.stored_key, found.server_key, found.iterations


def write_user(path: Path, name: str, password: str, environment: Environment) -> None:
    """Put a user into a file of users, in the place of an earlier one of this name. Create the file if it is missing.

    Raises:
        InvalidOption: the name or the password cannot be used, or the file is broken.
    """
    _check_new("name of a user", name, 1, _LONGEST_NAME)
    if ":" in name or name != name.strip() or name.startswith("#") or name == _SECRET:
        raise InvalidOption("the name of a user has no colon, does not begin with #, and is not *")
    _check_new("password", password, 8, _LONGEST_PASSWORD)
    lines = [f"{_SECRET}:{_text(bytes.fromhex(environment.new_id() + environment.new_id()))}"]
    if path.exists():
        _read(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line.strip().partition(":")[0] != name]
    for mechanism in _DIGEST_BYTES:
        salt, stored_key, server_key, iterations = ScramMechanism(mechanism).make_auth_info(
            password, _MOST_ITERATIONS, bytes.fromhex(environment.new_id())
        )
        lines.append(":".join((name, mechanism, str(iterations), _text(salt), _text(stored_key), _text(server_key))))
    _replace(path, "".join(f"{line}\n" for line in lines), environment)


def _check_new(what: str, value: str, fewest: int, most: int) -> None:
    try:
        # Some clients of Kafka normalize by SASLprep, and others do not.
        is_normal = saslprep(value) == value and value.isprintable()
    except ScramException:
        is_normal = False
    if not is_normal or not fewest <= len(value) <= most:
        raise InvalidOption(
            f"the {what} has {fewest} to {most} characters, which are printable and in their normal form (SASLprep)"
        )


def _replace(path: Path, content: str, environment: Environment) -> None:
    """Write a file in one step for its readers. It keeps its owner and its group, and others cannot read it."""
    # A symbolic link stays, and leads to the new content.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{environment.new_id()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                if path.exists():
                    # A gateway may run as another user, which reads the file as its owner or by its group.
                    former = path.stat()
                    os.fchown(descriptor, former.st_uid, former.st_gid)
                    os.fchmod(descriptor, former.st_mode & 0o660)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidOption(f"the file of users {path} cannot be written: {error.strerror}") from None


def _read(path: Path) -> _Users:
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST_FILE + 1)
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidOption(f"the file of users {path} cannot be read: {reason}. {_REMEDY}") from None
    if len(content) > _LONGEST_FILE:
        raise InvalidOption(f"the file of users {path} has more than {_LONGEST_FILE} bytes")
    secret: bytes | None = None
    credentials: dict[tuple[str, str], _Credential] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            if secret is None:
                secret = _secret(line)
            else:
                key, credential = _parsed(line)
                if key in credentials:
                    raise ValueError("has the name and the mechanism of an earlier line")
                credentials[key] = credential
        except ValueError as error:
            # The line itself stays out of the message.
            raise InvalidOption(f"the file of users {path}: line {number} {error}. {_REMEDY}") from None
    if secret is None:
        raise InvalidOption(f"the file of users {path} is empty. {_REMEDY}")
    return _Users(secret, credentials)


def _secret(line: str) -> bytes:
    mark, _, text = line.partition(":")
    found = _bytes(text) if mark == _SECRET else b""
    if len(found) < 16:
        raise ValueError(f"is not {_SECRET}:secret, with at least 16 bytes in base64")
    return found


def _parsed(line: str) -> tuple[tuple[str, str], _Credential]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("is not name:mechanism:iterations:salt:stored key:server key")
    name, mechanism, iterations = match[1], match[2], int(match[3])
    if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise ValueError(f"must have {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} iterations")
    salt, stored_key, server_key = map(_bytes, match.group(4, 5, 6))
    if not 12 <= len(salt) <= _LONGEST_SALT or {len(stored_key), len(server_key)} != {_DIGEST_BYTES[mechanism]}:
        raise ValueError("has a salt or a key of a wrong length")
    return (mechanism, name), _Credential(iterations, salt, stored_key, server_key)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("has a value that is not base64") from None


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
