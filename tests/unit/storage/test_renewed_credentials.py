"""Credentials that are renewed while requests use them."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from eoslog.errors import InvalidOption, StoreAccessDenied, StoreUnavailable
from eoslog.storage.renewed_credentials import Clocks, Credentials, RenewedCredentials, call_named, mapped

LIFE_MS = 3_600_000
START_MS = 1_800_000_000_000


class World:
    """A source of credentials, and the clocks."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.monotonic_ms = 0
        self.given = 0
        self.error: Exception | None = None
        self.credentials = RenewedCredentials(self.give, Clocks(lambda: self.now_ms, lambda: self.monotonic_ms))

    def give(self) -> Credentials:
        if self.error is not None:
            raise self.error
        self.given += 1
        return Credentials({"token": f"secret-{self.given}"}, self.now_ms + LIFE_MS)

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.monotonic_ms += duration_ms


@pytest.fixture
def world() -> World:
    return World()


def test_credentials_are_kept_until_five_minutes_before_they_expire(world: World) -> None:
    assert world.credentials.current() == {"token": "secret-1"}
    world.pass_ms(LIFE_MS - 300_001)
    assert world.credentials.current() == {"token": "secret-1"}

    world.pass_ms(1)

    assert world.credentials.current() == {"token": "secret-2"}
    assert world.given == 2


def test_credentials_without_an_expiry_are_kept() -> None:
    given = iter([Credentials({"token": "a"}), Credentials({"token": "b"})])
    now = iter(range(START_MS, START_MS * 2, LIFE_MS))
    kept = RenewedCredentials(lambda: next(given), Clocks(lambda: next(now), lambda: next(now)))

    assert [kept.current()["token"] for _ in range(50)] == ["a"] * 50


def test_an_early_renewal_that_fails_leaves_the_valid_ones_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.credentials.current()
    world.pass_ms(LIFE_MS - 100_000)
    world.error = StoreUnavailable("the service is away")

    with caplog.at_level(logging.WARNING):
        assert world.credentials.current() == {"token": "secret-1"}
    assert "expire in 100 s" in caplog.text
    assert "secret" not in caplog.text

    world.pass_ms(100_000)
    with pytest.raises(StoreUnavailable, match="the service is away"):
        world.credentials.current()
    world.error = None
    world.pass_ms(10_000)
    assert world.credentials.current() == {"token": "secret-2"}


def test_credentials_that_are_always_early_are_not_renewed_for_each_request(world: World) -> None:
    world.credentials.current()
    world.pass_ms(LIFE_MS - 1)
    world.credentials.current()
    world.now_ms += LIFE_MS - 1

    for _ in range(100):
        world.credentials.current()

    assert world.given == 2


def test_one_thread_renews_and_the_others_go_on_with_the_valid_ones(world: World) -> None:
    world.credentials.current()
    world.pass_ms(LIFE_MS - 100_000)
    asked, answer = threading.Event(), threading.Event()
    give = world.give

    def slowly() -> Credentials:
        asked.set()
        assert answer.wait(30)
        return give()

    world.credentials._source = slowly
    with ThreadPoolExecutor(1) as threads:
        renewing = threads.submit(world.credentials.current)
        assert asked.wait(30)
        world.pass_ms(10_000)
        assert world.credentials.current() == {"token": "secret-1"}
        answer.set()
        assert renewing.result() == {"token": "secret-2"}


def test_after_a_refusal_only_other_credentials_count(world: World) -> None:
    world.credentials.current()
    assert world.credentials.renew() is True
    assert world.credentials.current() == {"token": "secret-2"}

    world.credentials._source = lambda: Credentials({"token": "secret-2"})
    assert world.credentials.renew() is False

    world.credentials._source = world.give
    world.error = StoreUnavailable("the service is away")
    assert world.credentials.renew() is False
    assert world.credentials.current() == {"token": "secret-2"}


VALID = ("token", "sas_token")


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "hush",
        {},
        {"token": 7},
        {"hush": "hush"},
        {"token": "hush", "expires_at_ms": "soon"},
        {"token": "hush", "expires_at_ms": True},
        {"expires_at_ms": 1},
        ["hush"],
    ],
)
def test_an_answer_of_another_form_is_refused_and_not_repeated(wrong: object) -> None:
    with pytest.raises(StoreAccessDenied, match=r"m:f returned no credentials.*token, sas_token") as caught:
        mapped(wrong, "m:f", "gs://b", optional=VALID)

    assert "hush" not in str(caught.value)


def test_a_mapping_gives_texts_and_the_end_of_their_life() -> None:
    found = mapped({"token": "hush", "sas_token": None, "expires_at_ms": START_MS}, "m:f", "gs://b", optional=VALID)

    assert (dict(found.values), found.expires_at_ms) == ({"token": "hush"}, START_MS)
    assert "hush" not in repr(found)


def credentials_of(url: str) -> object:
    """The function that the option names."""
    return {"token": url}


def test_the_function_gets_the_url_and_its_errors_hide_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}:credentials_of"
    assert call_named(name, "gs://b/p") == {"token": "gs://b/p"}

    for error, kind in (
        (ConnectionError("hush"), StoreUnavailable),
        (ValueError("hush"), StoreAccessDenied),
    ):

        def function(url: str, error: Exception = error) -> object:
            raise error

        monkeypatch.setattr(f"{__name__}.credentials_of", function)
        with pytest.raises(kind, match=type(error).__name__) as caught:
            call_named(name, "gs://b/p")
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_function_that_this_process_lacks_is_named(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"credentials={name} cannot be imported in this process"):
        call_named(name, "gs://b")
