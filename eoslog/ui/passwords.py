"""The password file of the console: users, their roles, and scrypt hashes of their passwords.

A line is ``name:role:hash``. The hash has the form of the PHC string format,
``$scrypt$ln=15,r=8,p=3$<salt>$<digest>`` with base64 without padding. Empty lines and lines that begin with ``#`` do
not count.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from eoslog.errors import InvalidOption
from eoslog.storage.environment import Environment

LONGEST_USER = 200
"""The longest name of a user (characters)."""
LONGEST_PASSWORD = 1_000
_LOG_N, _R, _P = 15, 8, 3
"""The cost of a new hash: 32 MiB and about 0.2 s, as OWASP recommends."""
_MOST_MEMORY = 256 << 20
_DIGEST_BYTES = 32
_LINE = re.compile(
    r"(?P<name>[^:\s][^:]*):(?P<role>[a-z]+):"
    r"(?P<hash>\$scrypt\$ln=\d{1,2},r=\d{1,2},p=\d{1,2}\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{43})"
)


class Role(StrEnum):
    """The rights of a user of the console."""

    VIEWER = "viewer"
    """Read everything."""
    ADMIN = "admin"
    """Also change the store, if the console was started with ``--allow-admin``."""


class User(NamedTuple):
    """A user of the password file."""

    name: str
    role: Role
    hash: str
    since_ms: int = 0
    """The time of the monotonic clock at which the console first saw this line (ms); 0 for those of its start."""

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.role.value!r})"


def password_line(name: str, role: Role, password: str, *, environment: Environment) -> str:
    """Return the line of a password file for a user.

    Raises:
        InvalidOption: the name or the password cannot be used.
    """
    if not name.isprintable() or not 0 < len(name) <= LONGEST_USER or ":" in name or name != name.strip():
        raise InvalidOption(f"the name of a user has 1 to {LONGEST_USER} characters, without a colon")
    if name.startswith("#"):
        raise InvalidOption("the name of a user must not begin with #, which begins a comment")
    if not 8 <= len(password) <= LONGEST_PASSWORD:
        raise InvalidOption(f"a password has 8 to {LONGEST_PASSWORD} characters")
    salt = bytes.fromhex(environment.new_id())
    digest = _scrypt(password, salt, (_LOG_N, _R, _P))
    return f"{name}:{role.value}:$scrypt$ln={_LOG_N},r={_R},p={_P}${_text(salt)}${_text(digest)}"


class PasswordFile:
    """The users of a file. A change of the file counts from the next request on."""

    def __init__(self, path: Path, environment: Environment) -> None:
        """Read the file. Raises: InvalidOption"""
        self._path = path
        self._environment = environment
        self._version: object = None
        self._users: Mapping[str, User] = {}
        self._read()
        # An unknown name must take as long as a wrong password, so that nobody learns the names.
        self._decoy = password_line("nobody", Role.VIEWER, environment.new_id(), environment=environment).rpartition(
            ":"
        )[2]

    def named(self, name: str) -> User | None:
        """Return a user; None if the file has no such user, or cannot be read any more."""
        try:
            self._read()
        except InvalidOption:
            return None
        return self._users.get(name)

    def checked(self, name: str, password: str) -> User | None:
        """Return the user of a name; None if the name or the password is wrong."""
        user = self.named(name)
        is_right = _is_password(password, self._decoy if user is None else user.hash)
        return user if is_right else None

    def _read(self) -> None:
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_size, found.st_ino)
            if version == self._version:
                return
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(f"the password file {self._path} cannot be read: {type(error).__name__}") from None
        since_ms = 0 if self._version is None else self._environment.monotonic_ms()
        users: dict[str, User] = {}
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.startswith("#"):
                user = self._user(number, line.strip(), since_ms)
                if user.name in users:
                    raise self._wrong(number, "has the name of an earlier line")
                users[user.name] = user
        known = self._users
        self._users = {
            name: known[name] if name in known and known[name][:3] == user[:3] else user for name, user in users.items()
        }
        self._version = version

    def _user(self, number: int, line: str, since_ms: int) -> User:
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise self._wrong(number, "is not name:role:$scrypt$…")
        if parts["role"] not in list(Role):
            raise self._wrong(number, f"has no valid role; the roles are {', '.join(Role)}")
        log_n, r, p = _costs(parts["hash"])
        if not (10 <= log_n <= 20 and 1 <= r <= 32 and 1 <= p <= 16 and 128 * r << log_n <= _MOST_MEMORY):
            raise self._wrong(number, "has a hash whose cost is out of range")
        try:
            _salt_and_digest(parts["hash"])
        except ValueError:
            raise self._wrong(number, "has a salt that is not base64") from None
        return User(parts["name"], Role(parts["role"]), parts["hash"], since_ms)

    def _wrong(self, number: int, problem: str) -> InvalidOption:
        # The line itself stays out of the message.
        return InvalidOption(
            f"the password file {self._path}: line {number} {problem}. Make a line with eoslog ui --new-user NAME:ROLE"
        )


def _costs(hashed: str) -> tuple[int, int, int]:
    log_n, r, p = (int(each.partition("=")[2]) for each in hashed.split("$")[2].split(","))
    return log_n, r, p


def _salt_and_digest(hashed: str) -> tuple[bytes, bytes]:
    salt, digest = (base64.b64decode(each + "=" * (-len(each) % 4)) for each in hashed.split("$")[3:])
    return salt, digest


def _is_password(password: str, hashed: str) -> bool:
    salt, digest = _salt_and_digest(hashed)
    # A longer password is wrong, and would only take time.
    found = _scrypt(password[:LONGEST_PASSWORD], salt, _costs(hashed))
    return hmac.compare_digest(found, digest) and len(password) <= LONGEST_PASSWORD


def _scrypt(password: str, salt: bytes, costs: tuple[int, int, int]) -> bytes:
    log_n, r, p = costs
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << log_n,
        r=r,
        p=p,
        maxmem=2 * _MOST_MEMORY,
        dklen=_DIGEST_BYTES,
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")
