"""The channel between a writer and an append service: a greeting, then frames in both directions over TCP or TLS.

Both sides have the store's append key, an object that only writers may read. In the greeting each side proves by an
HMAC-SHA256 over fresh random bytes of both that it has the key. Each frame carries an HMAC, too, with a key that only
this connection has, and with the frame's number. So nobody between the two can change, repeat or drop a frame. Without
TLS, somebody between them can read the frames.
"""

from __future__ import annotations

import hmac
import struct

GREETING = b"eoslog append 1\n"
"""The first bytes of a writer, before its nonce."""
NONCE_BYTES = 32
"""The size of a nonce: a random name as ``Environment.new_id`` returns it."""
PROOF_BYTES = 32
_HEADER = struct.Struct(f">I{PROOF_BYTES}s")
HEADER_BYTES = _HEADER.size
"""The size of a frame's header (bytes): the length of the body, and its HMAC."""
SERVICE, WRITER = _SIDES = b"service", b"writer"


class ChannelError(Exception):
    """The other side does not have the key, or does not speak this protocol, or bytes were changed on the way."""


def service_name(service_id: str, location: str) -> str:
    """Return the name that the proofs bind: the service's id and the location of its store.

    Args:
        service_id: the id that the service has announced.
        location: the location of the store. A copy of the store has the same announcement and the same key, and its
            writers must not send their requests to the service of the original.
    """
    return f"{service_id} {location}"


class Channel:
    """One side of a connection, without its socket."""

    def __init__(self, key: bytes, service: str, writer_nonce: bytes, service_nonce: bytes, *, own: bytes) -> None:
        """
        Args:
            key: the store's append key.
            service: the result of ``service_name``.
            own: this side: ``SERVICE`` or ``WRITER``.
        """
        self._own, self._other = own, WRITER if own == SERVICE else SERVICE
        # A proof of one side is not a proof of the other side, and neither is a frame's HMAC.
        context = service.encode() + writer_nonce + service_nonce
        self._proofs = {side: hmac.digest(key, b"proof of the " + side + context, "sha256") for side in _SIDES}
        self._keys = {side: hmac.digest(key, b"frames of the " + side + context, "sha256") for side in _SIDES}
        self._numbers = dict.fromkeys(_SIDES, 0)

    @property
    def proof(self) -> bytes:
        """The proof for the other side that this side has the key."""
        return self._proofs[self._own]

    def check_proof(self, proof: bytes) -> None:
        """Raises: ChannelError: the other side does not have the key, or the service has another id."""
        if not hmac.compare_digest(proof, self._proofs[self._other]):
            raise ChannelError("the other side does not have the store's append key, or is another service")

    def frame(self, body: bytes) -> bytes:
        """Return the next frame of this side."""
        return _HEADER.pack(len(body), self._hmac(self._own, body)) + body

    def length(self, header: bytes, most_bytes: int) -> int:
        """Return the length of the body that follows a header of the other side (bytes).

        Raises:
            ChannelError: it is longer than ``most_bytes``.
        """
        length: int = _HEADER.unpack(header)[0]
        if length > most_bytes:
            raise ChannelError(f"a frame has {length} bytes; the largest may have {most_bytes}")
        return length

    def check(self, header: bytes, body: bytes) -> bytes:
        """Return the body of the other side's next frame.

        Raises:
            ChannelError: it is not the frame that the other side sent next.
        """
        if not hmac.compare_digest(_HEADER.unpack(header)[1], self._hmac(self._other, body)):
            raise ChannelError("a frame was changed on the way")
        return body

    def _hmac(self, side: bytes, body: bytes) -> bytes:
        number = self._numbers[side]
        self._numbers[side] += 1
        return hmac.digest(self._keys[side], struct.pack(">Q", number) + body, "sha256")
