"""The channel to an append service: who has no key learns nothing, and nobody can change a frame."""

from __future__ import annotations

import pytest

from eoslog.storage.append_channel import HEADER_BYTES, SERVICE, WRITER, Channel, ChannelError, service_name

KEY, ID = b"k" * 64, "a" * 32
HERE = "s3://bucket/store"
NONCES = b"w" * 32, b"s" * 32


def service(
    key: bytes = KEY, service_id: str = ID, location: str = HERE, nonces: tuple[bytes, bytes] = NONCES
) -> Channel:
    return Channel(KEY, service_name(ID, HERE), *NONCES, own=SERVICE)


def writer(
    key: bytes = KEY, service_id: str = ID, location: str = HERE, nonces: tuple[bytes, bytes] = NONCES
) -> Channel:
    return Channel(key, service_name(service_id, location), *nonces, own=WRITER)


def received(channel: Channel, frame: bytes) -> bytes:
    header, body = frame[:HEADER_BYTES], frame[HEADER_BYTES:]
    assert channel.length(header, 1_000) == len(body)
    return channel.check(header, body)


def test_both_sides_prove_that_they_have_the_key() -> None:
    one, other = service(), writer()

    one.check_proof(other.proof)
    other.check_proof(one.proof)


@pytest.mark.parametrize(
    "stranger",
    [
        writer(key=b"x" * 64),
        writer(service_id="b" * 32),
        writer(location="s3://bucket/copy"),
        writer(nonces=(NONCES[0], b"x" * 32)),
        writer(nonces=(b"x" * 32, NONCES[1])),
    ],
)
def test_a_proof_with_another_key_service_store_or_nonce_is_refused(stranger: Channel) -> None:
    with pytest.raises(ChannelError):
        service().check_proof(stranger.proof)
    with pytest.raises(ChannelError):
        stranger.check_proof(service().proof)


def test_the_proof_of_a_service_is_no_proof_of_a_writer() -> None:
    """A stranger could send it back."""
    with pytest.raises(ChannelError):
        service().check_proof(service().proof)


def test_frames_arrive_in_both_directions() -> None:
    one, other = service(), writer()

    assert [received(one, other.frame(body)) for body in (b"first", b"", b"third")] == [b"first", b"", b"third"]
    assert received(other, one.frame(b"answer")) == b"answer"


def test_a_changed_frame_is_refused() -> None:
    frame = writer().frame(b"body")

    for place in range(4, len(frame)):
        changed = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
        with pytest.raises(ChannelError):
            received(service(), changed)


def test_a_repeated_or_dropped_frame_is_refused() -> None:
    one, other = service(), writer()
    first, second = other.frame(b"first"), other.frame(b"second")

    with pytest.raises(ChannelError):
        received(service(), second)
    received(one, first)
    with pytest.raises(ChannelError):
        received(one, first)


def test_a_frame_of_the_other_direction_is_refused() -> None:
    with pytest.raises(ChannelError):
        received(writer(), writer().frame(b"body"))


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    frame = writer().frame(b"x" * 101)

    with pytest.raises(ChannelError, match="101 bytes"):
        service().length(frame[:HEADER_BYTES], 100)
