"""A console for a team: logins by a password file or a proxy, roles, and several stores."""

from __future__ import annotations

import re
import uuid
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

import eoslog
from eoslog.errors import InvalidOption
from eoslog.ui import passwords
from eoslog.ui.access import Access, PasswordAccess, ProxyAccess
from eoslog.ui.application import ADMIN_ACTIONS, VIEWS, Console
from eoslog.ui.command import ui
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.passwords import PasswordFile, Role, password_line
from tests.pages import REPOSITORY
from tests.unit.support.transactions import open_transaction
from tests.unit.ui.conftest import COOKIE
from tests.unit.ui.forms import csrf_token, problem, rows, words

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_LOG_N", 10)


@pytest.fixture
def users(store: eoslog.Store, tmp_path: Path) -> Path:
    """A password file with the viewer ``vic`` and the admin ``ada``."""
    path = tmp_path / "users"
    lines = (
        password_line(name, role, PASSWORD, environment=store.environment)
        for name, role in [("vic", Role.VIEWER), ("ada", Role.ADMIN)]
    )
    path.write_text("# users of the console\n" + "\n".join(lines) + "\n")
    return path


def browser_of(
    stores: dict[str, eoslog.Store], access: Access, *, client: str = "127.0.0.1", is_secure: bool = False
) -> TestClient:
    opened = {name: ConsoleStore(store, allow_admin=True) for name, store in stores.items()}
    application = Console(opened, access, COOKIE, is_secure=is_secure).application({"localhost"})
    scheme = "https" if is_secure else "http"
    return TestClient(application, base_url=f"{scheme}://localhost:1", follow_redirects=False, client=(client, 1))


def with_passwords(store: eoslog.Store, users: Path) -> TestClient:
    return browser_of({"": store}, PasswordAccess(store.environment, PasswordFile(users, store.environment)))


def login(browser: TestClient, name: str, password: str = PASSWORD, **fields: str) -> int:
    return browser.post("/login", data={"name": name, "password": password, **fields}).status_code


def test_a_page_leads_to_the_login_and_the_login_leads_back_to_it(store: eoslog.Store, users: Path) -> None:
    browser = with_passwords(store, users)

    asked = browser.get("/topics", params={"q": "pay"})
    form = browser.get(asked.headers["location"])
    (to,) = re.findall(r'name="to" value="([^"]*)"', form.text)
    answer = browser.post("/login", data={"name": "vic", "password": PASSWORD, "to": to})

    assert (asked.status_code, form.status_code, answer.status_code) == (303, 200, 303)
    assert answer.headers["location"] == "/topics?q=pay"
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert "vic" in browser.get("/topics").text


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x=1", ""]
)
def test_a_login_leads_to_no_other_site(store: eoslog.Store, users: Path, to: str) -> None:
    answer = with_passwords(store, users).post("/login", data={"name": "vic", "password": PASSWORD, "to": to})

    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(("name", "password"), [("vic", "wrong"), ("nobody", PASSWORD), ("", ""), ("vic", "x" * 2_000)])
def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(
    store: eoslog.Store, users: Path, name: str, password: str
) -> None:
    answer = with_passwords(store, users).post("/login", data={"name": name, "password": password})

    assert (answer.status_code, problem(answer)) == (403, "The name or the password is wrong.")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", ["vic", "nobody"])
def test_after_ten_failed_logins_a_name_is_refused_even_with_its_password(
    store: eoslog.Store, users: Path, name: str
) -> None:
    """An unknown name gets the same answers, so that they do not show which names are known."""
    browser = with_passwords(store, users)

    assert [login(browser, name, "wrong") for _ in range(10)] == [403] * 10
    assert login(browser, name) == 429
    assert login(browser, "ada") == 303


def test_a_login_from_another_site_is_refused(store: eoslog.Store, users: Path) -> None:
    fields = {"name": "vic", "password": PASSWORD}

    answer = with_passwords(store, users).post("/login", data=fields, headers={"Origin": "http://evil.example"})

    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize("path", [path for path in VIEWS if "{" not in path])
def test_without_a_login_no_page_and_no_stream_shows_anything(store: eoslog.Store, users: Path, path: str) -> None:
    browser = with_passwords(store, users)

    assert (browser.get(path).status_code, browser.get(f"/live{path}").status_code) == (303, 403)


def test_a_session_ends_with_the_logout_and_with_a_change_of_its_user(store: eoslog.Store, users: Path) -> None:
    browser = with_passwords(store, users)
    lines = users.read_text()

    login(browser, "vic")
    assert browser.post("/logout", data={"csrf_token": csrf_token(browser, "/verify")}).status_code == 303
    after_logout = browser.get("/topics").status_code
    login(browser, "vic")
    users.write_text(lines.replace("vic:viewer", "vic:admin"))
    after_change = browser.get("/topics").status_code
    login(browser, "vic")
    still_open = browser.get("/topics").status_code
    users.write_text(lines.replace("vic:", "#vic:"))
    after_removal = browser.get("/topics").status_code

    assert (after_logout, after_change, still_open, after_removal) == (303, 303, 200, 303)


@pytest.mark.parametrize("path", ADMIN_ACTIONS)
def test_only_the_role_admin_may_change_the_store(store: eoslog.Store, users: Path, path: str) -> None:
    store.producer("etl-1").init_transactions()
    page, fields = "/verify", {"id": "etl-1", "confirmed": "etl-1"}
    answers = {}
    for name in ("vic", "ada"):
        browser = with_passwords(store, users)
        login(browser, name)
        answers[name] = browser.post(path, data={**fields, "csrf_token": csrf_token(browser, page)})

    assert (answers["vic"].status_code, "Your role is viewer" in problem(answers["vic"])) == (403, True)
    assert answers["ada"].status_code != 403


@pytest.mark.parametrize(
    "line",
    [
        "vic:viewer:plain text",
        "vic:owner:{hash}",
        "vic:{hash}",
        ":viewer:{hash}",
        "vic:viewer:{hash}\nvic:admin:{hash}",
        "vic:viewer:$scrypt$ln=10,r=8,p=1$AAAAAAAAAAAAA$" + "A" * 43,
        "vic:viewer:$scrypt$ln=30,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$" + "A" * 43,
        "vic:viewer:$scrypt$ln=20,r=32,p=16$AAAAAAAAAAAAAAAAAAAAAA$" + "A" * 43,
    ],
)
def test_a_wrong_line_of_the_file_is_named_but_not_shown(store: eoslog.Store, users: Path, line: str) -> None:
    hashed = password_line("x", Role.ADMIN, PASSWORD, environment=store.environment).rpartition(":")[2]
    users.write_text(f"# users\n{line.format(hash=hashed)}\n")

    with pytest.raises(InvalidOption, match=r"line [23]") as refused:
        PasswordFile(users, store.environment)

    assert "$A" not in str(refused.value)
    assert hashed not in str(refused.value)


def test_the_cookie_of_a_console_behind_https_is_sent_by_https_alone(store: eoslog.Store, users: Path) -> None:
    access = PasswordAccess(store.environment, PasswordFile(users, store.environment))
    browser = browser_of({"": store}, access, is_secure=True)

    answer = browser.post("/login", data={"name": "vic", "password": PASSWORD})

    assert "Secure" in answer.headers["set-cookie"].split("; ")


def with_proxy(store: eoslog.Store, client: str = "10.0.0.7") -> TestClient:
    access = ProxyAccess(store.environment, "X-Forwarded-User", proxies=[ip_network("10.0.0.0/24")], admins=["ada"])
    return browser_of({"": store}, access, client=client)


def test_a_proxy_names_the_user_of_each_request_and_its_admins_may_change_the_store(store: eoslog.Store) -> None:
    browser, user = with_proxy(store), {"X-Forwarded-User": "ada"}
    store.producer("etl-1").init_transactions()
    page = browser.get("/transactions/one", params={"id": "etl-1"}, headers=user)
    (token,) = set(re.findall(r'name="csrf_token" value="([^"]+)"', browser.get("/verify", headers=user).text))

    def reset(name: str) -> int:
        return browser.post("/groups/reset", data={"csrf_token": token}, headers={"X-Forwarded-User": name}).status_code

    assert "ada" in page.text
    assert "set-cookie" not in page.headers
    assert (reset("ada") != 403, reset("vic")) == (True, 403)


@pytest.mark.parametrize(
    ("client", "users"),
    [("10.0.1.7", ["ada"]), ("10.0.0.7", []), ("10.0.0.7", [""]), ("10.0.0.7", ["vic", "ada"]), ("nowhere", ["ada"])],
    ids=["another-address", "no-user", "an-empty-user", "two-users", "no-address"],
)
def test_a_request_that_no_proxy_vouches_for_is_refused(store: eoslog.Store, client: str, users: list[str]) -> None:
    answer = with_proxy(store, client).get("/topics", headers=[("X-Forwarded-User", each) for each in users])

    assert answer.status_code == 403
    assert "did not come through the proxy" in words(answer)


def test_several_stores_have_a_list_and_pages_of_their_own(store: eoslog.Store, users: Path) -> None:
    other = eoslog.connect(f"memory://{uuid.uuid4().hex}")
    other.admin.create_topic("orders")
    access = PasswordAccess(store.environment, PasswordFile(users, store.environment))
    browser = browser_of({"live": store, "test": other}, access)
    login(browser, "ada")

    listed = rows(browser.get("/"), "Stores")
    live, test = (browser.get(f"/stores/{name}/topics").text for name in ("live", "test"))
    token = csrf_token(browser, "/stores/test/verify")
    moved = browser.post("/stores/test/verify", data={"csrf_token": token})

    assert [(row[0], row[1], row[3]) for row in listed] == [("live", store.url, "2"), ("test", other.url, "1")]
    assert ("payments" in live, "orders" in live, "orders" in test) == (True, False, True)
    assert moved.headers["location"] == "/stores/test/verify"
    assert browser.get("/topics").status_code == browser.get("/stores/nothing/topics").status_code == 404


@pytest.mark.parametrize("path", [path for path in VIEWS if path not in ("/topics/{topic}/rows/{partition}/{offset}",)])
def test_each_link_of_a_page_stays_in_its_store(store: eoslog.Store, users: Path, path: str) -> None:
    with open_transaction(store, "etl-1") as producer:
        producer.send("payments", b"v", partition=0)
        producer.commit_transaction()
    store.admin.alter_consumer_group_offsets("one", {eoslog.TopicPartition("payments", 0): 0})
    access = PasswordAccess(store.environment, PasswordFile(users, store.environment))
    browser = browser_of({"live": store}, access)
    login(browser, "ada")
    named = path.format(topic="payments", partition=0, slot=0)
    wanted = {"/transactions/one": "?id=etl-1", "/groups/one": "?id=one"}.get(path, "")

    text = browser.get(f"/stores/live{named}{wanted}").text

    found = re.findall(r'(?:href|action|hx-sse:connect)="([^"]*)"', text)
    outside = {each for each in found if not each.startswith(("/stores/live/", "/assets/", "#"))}
    assert len(found) > 10
    assert outside <= {"/", "/logout"}


def test_the_manifest_of_the_console_starts_one(tmp_path: Path, store: eoslog.Store, users: Path) -> None:
    text = (REPOSITORY / "conf/deploy/console.yaml").read_text(encoding="utf-8")
    deployment = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
    name, *options = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    given = [each.replace("/etc/eoslog/users", str(users)) for each in options]

    parsed = ui.make_context(name, given).params

    assert (name, parsed["password_file"], parsed["public_url"]) == ("ui", users, "https://console.example.com")
    assert [each for each, _ in parsed["stores"]] == ["live", "test"]
