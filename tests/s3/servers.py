"""S3 servers on this machine: how to reach one, and a real one that ends with whoever started it."""

from __future__ import annotations

import io
import shlex
import subprocess
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from botocore.session import get_session

REPOSITORY = Path(__file__).resolve().parents[2]
S3_SCRIPT = REPOSITORY / "conf/s3_server.sh"
_REGION = "us-east-1"


class ServerMissing(Exception):
    """There is no program of a server on this machine; the message says how to get one."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a server listens, and credentials that it accepts."""

    endpoint_url: str
    key: str
    secret: str = field(repr=False)

    def options(self) -> dict[str, str]:
        """Options of ``eoslog.connect``."""
        return {"endpoint_url": self.endpoint_url, "key": self.key, "secret": self.secret, "region": _REGION}

    def variables(self) -> dict[str, str]:
        """Environment variables with which every client of S3 uses this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": _REGION,
            "AWS_DEFAULT_REGION": _REGION,
        }

    def url(self, bucket: str) -> str:
        return f"s3://{bucket}"

    def behind(self, proxy_url: str) -> S3Server:
        """The same server, reached through a proxy."""
        return replace(self, endpoint_url=proxy_url)

    def new_bucket(self) -> str:
        """Make a bucket and return its name."""
        name = f"test-{uuid.uuid4().hex}"
        _client_of(self).create_bucket(Bucket=name)
        return name


@cache
def _client_of(server: S3Server) -> Any:
    """A client of a server. It is kept, because to make one takes as long as many requests."""
    return get_session().create_client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=_REGION,
        aws_access_key_id=server.key,
        aws_secret_access_key=server.secret,
    )


@contextmanager
def pretended_s3_server() -> Iterator[S3Server]:
    """Moto's server, in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    server._server.app = _OnePutAtATime(server._server.app)
    host, port = server.get_host_and_port()
    yield S3Server(f"http://{host}:{port}", "test-key", "test-secret")
    server.stop()


class _OnePutAtATime:
    """Moto looks whether an object is there and then stores it; threads that come in between would all be first."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH")
        if environ["REQUEST_METHOD"] != "PUT" or not length:
            return self._application(environ, start_response)  # type: ignore[no-any-return]
        # A body that is slow to come keeps nobody waiting.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self._turn:
            return list(self._application(environ, start_response))


@contextmanager
def real_s3_server() -> Iterator[S3Server]:
    """A real server with an empty directory of its own. It ends with the block, and also if this process is killed.

    Raises ``ServerMissing`` where there is none; it is not built here, as that takes minutes.
    """
    with started_by_script(S3_SCRIPT, "run") as variables:
        yield server_of(variables)


@contextmanager
def started_by_script(script: Path, action: str) -> Iterator[Mapping[str, str]]:
    """The environment variables that lead to what a script of ``conf/`` runs; see ``real_s3_server``."""
    found = subprocess.run([script, "find"], capture_output=True, text=True)
    if found.returncode != 0:
        raise ServerMissing(found.stderr.strip())
    with subprocess.Popen([script, action], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        # The server's life hangs on this pipe, whose end no death of this process can prevent.
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            directory = keeper.stdout.readline().strip()
            if not directory:
                raise RuntimeError("The server did not start; see above.")
            words = shlex.split((Path(directory) / "environment").read_text())
            yield dict(word.split("=", 1) for word in words if "=" in word)
        finally:
            keeper.stdin.close()
            keeper.wait(600)


def server_of(variables: Mapping[str, str]) -> S3Server:
    """The server to which environment variables lead."""
    return S3Server(variables["AWS_ENDPOINT_URL"], variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
