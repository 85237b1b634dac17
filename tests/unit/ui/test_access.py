"""The access to the console, and the headers of all its answers."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from eoslog.ui import application
from eoslog.ui.access import LARGEST_FORM_BYTES, host_name
from eoslog.ui.application import ACTIONS, ADMIN_ACTIONS, VIEWS
from tests.unit.ui.conftest import COOKIE, ServedConsole
from tests.unit.ui.forms import csrf_token, problem, words

PATHS = [path.format(topic="payments", partition=0, offset=0, slot=0) for path in VIEWS]


def test_the_link_gives_a_cookie_and_leaves_the_address(read_only: ServedConsole) -> None:
    browser = read_only.browser()

    answer = browser.get("/", params={"token": read_only.access.token})

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert read_only.access.token not in cookie
    assert browser.get("/").status_code == 200


def test_a_link_works_once(read_only: ServedConsole) -> None:
    first = read_only.opened()

    second = read_only.browser().get("/", params={"token": read_only.access.token})

    assert second.status_code == 403
    assert "set-cookie" not in second.headers
    assert "used before" in words(second)
    assert first.get("/").status_code == 200


def test_a_wrong_token_opens_nothing_and_uses_no_link_up(read_only: ServedConsole) -> None:
    wrong = read_only.browser().get("/", params={"token": "0" * 64})

    assert (wrong.status_code, "set-cookie" in wrong.headers) == (403, False)
    assert read_only.opened().get("/").status_code == 200


def test_a_look_at_the_link_without_opening_it_does_not_use_it_up(read_only: ServedConsole) -> None:
    assert read_only.browser().head("/", params={"token": read_only.access.token}).status_code == 403

    assert read_only.opened().get("/").status_code == 200


@pytest.mark.parametrize("path", [*PATHS, *(f"/live{path}" for path in PATHS), "/nowhere"])
def test_without_a_session_every_page_says_what_to_do(read_only: ServedConsole, path: str) -> None:
    answer = read_only.browser().get(path)

    assert answer.status_code == 403
    assert "Open the link with the token that eoslog ui printed" in words(answer)
    assert "payments" not in words(answer)


@pytest.mark.parametrize("cookie", ["", "0" * 64, "\x80", 'a"b', "x" * 10_000])
def test_a_cookie_of_another_console_opens_nothing(read_only: ServedConsole, cookie: str) -> None:
    header = f"{COOKIE}={cookie}".encode("latin-1")

    assert read_only.browser().get("/", headers={"Cookie": header}).status_code == 403


@pytest.mark.parametrize("path", [*ACTIONS, *ADMIN_ACTIONS])
def test_without_a_session_no_form_is_taken(read_only: ServedConsole, path: str) -> None:
    assert read_only.browser().post(path, data={"id": "etl-1"}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:1", "127.0.0.1.evil.example", "", "[::2]:1"])
def test_another_host_name_is_refused_even_with_a_session(browser: TestClient, host: str) -> None:
    answer = browser.get("/", headers={"Host": host})

    assert answer.status_code == 403
    assert "does not answer under this name" in words(answer)


def test_an_allowed_name_may_have_another_port(browser: TestClient) -> None:
    """A tunnel may have another port at its beginning."""
    assert browser.get("/", headers={"Host": "127.0.0.1:9000"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "name"), [("localhost:80", "localhost"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("LOCALHOST", "localhost")]
)
def test_the_name_in_a_host_header_has_no_port(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize("path", [*PATHS, "/nowhere", "/assets/console.css", "/assets/nothing"])
def test_every_answer_has_the_security_headers(browser: TestClient, path: str) -> None:
    headers = browser.get(path).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert path.startswith("/assets/") or headers["cache-control"] == "no-store"


def test_a_refused_answer_has_the_security_headers(read_only: ServedConsole) -> None:
    headers = read_only.browser().get("/").headers

    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PATHS)
def test_no_page_has_a_script_or_a_style_of_its_own(browser: TestClient, path: str) -> None:
    page = browser.get(path).text

    assert "<style" not in page
    assert " style=" not in page
    assert " onclick=" not in page
    assert page.count("<script") == page.count("<script src=")


@pytest.mark.parametrize("name", ["../access.py", "%2e%2e/access.py", "..%2faccess.py", "htmx.LICENSE"])
def test_only_the_listed_assets_are_served(browser: TestClient, name: str) -> None:
    assert browser.get(f"/assets/{name}").status_code in (404, 400)


@pytest.mark.parametrize("token", ["", "0" * 64, None])
def test_a_form_without_the_token_of_its_session_changes_nothing(admin_browser: TestClient, token: str | None) -> None:
    answer = admin_browser.post("/verify", data={} if token is None else {"csrf_token": token})

    assert answer.status_code == 403
    assert "Load the page again" in problem(answer)


def test_a_form_of_another_session_is_refused(admin_browser: TestClient, browser: TestClient) -> None:
    token = csrf_token(browser, "/verify")

    assert admin_browser.post("/verify", data={"csrf_token": token}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:2", "null", "http://["])
def test_a_form_from_another_origin_is_refused(admin_browser: TestClient, origin: str) -> None:
    token = csrf_token(admin_browser, "/verify")

    answer = admin_browser.post("/verify", data={"csrf_token": token}, headers={"Origin": origin})

    assert answer.status_code == 403
    assert "came from another site" in words(answer)


@pytest.mark.parametrize("origin", ["http://localhost:1", "https://console.example.com"])
def test_a_form_from_the_console_itself_or_its_public_url_is_taken(admin_browser: TestClient, origin: str) -> None:
    token = csrf_token(admin_browser, "/verify")

    answer = admin_browser.post("/verify", data={"csrf_token": token}, headers={"Origin": origin})

    assert answer.status_code == 303


def test_a_form_that_is_too_large_is_refused(admin_browser: TestClient) -> None:
    assert admin_browser.post("/verify", data={"csrf_token": "x" * LARGEST_FORM_BYTES}).status_code == 413


@pytest.mark.parametrize("path", ADMIN_ACTIONS)
def test_a_console_without_allow_admin_changes_nothing(browser: TestClient, path: str) -> None:
    token = csrf_token(browser, "/verify")

    answer = browser.post(path, data={"csrf_token": token, "id": "etl-1", "confirmed": "etl-1"})

    assert answer.status_code == 403
    assert "--allow-admin" in problem(answer)


@pytest.mark.parametrize("path", ADMIN_ACTIONS)
def test_a_change_is_never_made_by_following_a_link(admin_browser: TestClient, path: str) -> None:
    assert admin_browser.get(path, params={"id": "etl-1", "confirmed": "etl-1"}).status_code == 405


def test_the_scripts_of_others_are_those_that_were_published() -> None:
    assets = Path(application.__file__).parent / "assets"
    listed = re.findall(r"^\| `([\w.-]+)` \| `(\w{64})` \|$", (assets / "README.md").read_text(), re.MULTILINE)

    assert len(listed) == 2
    assert [(name, sha256((assets / name).read_bytes()).hexdigest()) for name, _ in listed] == listed


def test_a_page_loads_nothing_from_other_hosts(browser: TestClient) -> None:
    page = browser.get("/").text

    assert re.findall(r'(?:src|href|action)="(?!/)(?!#main")([^"]*)', page) == []
    for name in re.findall(r'(?:src|href)="(/assets/[^"]*)"', page):
        assert browser.get(name).status_code == 200
