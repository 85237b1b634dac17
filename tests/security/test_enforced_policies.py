"""A server that enforces the policies of the page on security lets each role do what it does, and nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from eoslog.errors import StoreAccessDenied
from eoslog.gateway.live_gateways import GatewayDirectory, GatewayRecord
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from eoslog.store import Store
from tests.conftest import s3_store_at
from tests.s3.accounts import S3Accounts, s3_server_with_accounts
from tests.s3.servers import S3Server, ServerMissing
from tests.security.policies import Request, allows, policy, policy_for
from tests.security.roles import ROLES

pytestmark = pytest.mark.s3

PREFIX = "some/prefix"
UUID = "0123456789abcdef0123456789abcdef"
PATHS = [
    "eoslog.json",
    "__transaction_state/slot/9999999999/00000000000000000001.json",
    f"__transaction_state/checkpoint/00000000000000000001-{UUID}.json",
    f"payments/{UUID}/0/00000000000000000000/{UUID}.parquet",
    f"__consumer_groups/{UUID}/{UUID}",
    f"__gateways/{UUID}",
    f".probe/{UUID}/twice",
]
LISTED = ["", "__transaction_state/slot/", "__transaction_state/", "__consumer_groups/", "__gateways/", "payments/"]


class Place:
    """A bucket, and for each role an account that holds the page's policy and no other."""

    def __init__(self, accounts: S3Accounts) -> None:
        self.bucket = accounts.owner.new_bucket()
        self.owned = s3_store_at(accounts.owner, self.bucket, Environment())
        self._accounts = accounts
        self._servers: dict[str, S3Server] = {}
        self._objects: dict[str, S3Store] = {}

    def server(self, role: str) -> S3Server:
        """As the role's account reaches it."""
        if role not in self._servers:
            self._servers[role] = self._accounts.new_account(policy_for(role, self.bucket, PREFIX))
        return self._servers[role]

    def store(self, role: str) -> Store:
        """Knows nothing of what the role's others have read; the connection, which takes long to make, is the same."""
        if role not in self._objects:
            self._objects[role] = s3_store_at(self.server(role), self.bucket, Environment())
        return Store(self._objects[role], Environment())

    def act(self, *roles: str) -> None:
        for role in roles:
            ROLES[role](partial(self.store, role))


@pytest.fixture(scope="module")
def accounts() -> Iterator[S3Accounts]:
    try:
        with s3_server_with_accounts() as accounts:
            yield accounts
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def used(accounts: S3Accounts) -> Place:
    """Holds a store that has been written, and read by a group."""
    place = Place(accounts)
    place.act("The administrator", "A producer", "A member of a consumer group")
    return place


def test_each_role_does_all_that_it_does(used: Place) -> None:
    used.act("A reader", "A gateway", "The coordinator")

    # Whoever may not remove these goes on in silence.
    assert [*used.owned.list(".probe/"), *used.owned.list("__consumer_groups/"), *used.owned.list("__gateways/")] == []


@pytest.mark.parametrize("role", ROLES)
def test_the_server_decides_about_each_request_as_the_page_says(role: str, accounts: S3Accounts) -> None:
    place = Place(accounts)
    place.owned.put_many([(path, b"there") for path in PATHS])

    decided = {request: not is_refused(send) for request, send in all_requests(place.store(role).object_store).items()}

    granted = {request for request in decided if allows(policy(role), request)}
    assert {request for request, allowed in decided.items() if allowed} == granted
    left = {info.path for info in place.owned.list("")}
    assert left == {path for path in PATHS if Request("s3:DeleteObject", path) not in granted}


def all_requests(objects: ObjectStore) -> Mapping[Request, Callable[[], object]]:
    """Each kind of request about each kind of object; the last of each path deletes it."""
    requests: dict[Request, Callable[[], object]] = {
        Request("s3:ListBucketMultipartUploads", ""): lambda: list(objects.unfinished_uploads())
    }
    for prefix in LISTED:
        requests[Request("s3:ListBucket", prefix)] = partial(listed, objects, prefix)
    for path in PATHS:
        requests[Request("s3:GetObject", path)] = partial(objects.get, path)
        requests[Request("s3:PutObject", path)] = partial(objects.put, path, b"there")
        requests[Request("s3:PutObject", path, create_only=True)] = partial(objects.put_if_absent, path, b"there")
        requests[Request("s3:DeleteObject", path)] = partial(objects.delete, [path])
    return requests


def listed(objects: ObjectStore, prefix: str) -> list[str]:
    return [info.path for info in objects.list(prefix)]


def is_refused(send: Callable[[], object]) -> bool:
    try:
        send()
    except StoreAccessDenied:
        return True
    return False


@pytest.mark.parametrize("role", ROLES)
def test_a_role_ends_at_its_store_but_lists_its_bucket(role: str, accounts: S3Accounts, used: Place) -> None:
    options = S3Options.of(used.server(role).options())
    bucket = S3Store(used.bucket, "", Environment(), options)

    for path in ("other/eoslog.json", f"{PREFIX}-of-another/eoslog.json", "eoslog.json"):
        assert is_refused(partial(bucket.get, path))
        assert is_refused(partial(bucket.put, path, b""))
        assert is_refused(partial(bucket.delete, [path]))
        assert is_refused(partial(bucket.delete_many, [path]))
    assert is_refused(partial(listed, bucket, "other/"))
    assert f"{PREFIX}/eoslog.json" in listed(bucket, "")
    assert is_refused(partial(listed, S3Store(accounts.owner.new_bucket(), "", Environment(), options), ""))


def produce_in_a_transaction(store: Store) -> None:
    store.producer("another").init_transactions()


def produce(store: Store) -> None:
    with store.producer() as producer:
        producer.send("payments", b"value", partition=0)
        producer.flush()


def create_topic(store: Store) -> None:
    store.admin.create_topic("another")


def consume_in_a_group(store: Store) -> None:
    with store.consumer("readers") as consumer:
        consumer.subscribe(["payments"])
        consumer.poll(0.1)


def vacuum(store: Store) -> None:
    store.admin.vacuum(staged_max_age_ms=0, deleted_file_retention_ms=0)


def verify(store: Store) -> None:
    list(store.admin.verify())


def register_a_gateway(store: Store) -> None:
    record = GatewayRecord(address="127.0.0.1:9092", host="h", session_timeout_ms=15_000)
    GatewayDirectory(store.object_store, UUID).put(record)


def delete_description(store: Store) -> None:
    store.object_store.delete_many(["eoslog.json"])


def replace_description(store: Store) -> None:
    store.object_store.put("eoslog.json", b"{}")


@pytest.mark.parametrize(
    ("role", "act", "refused"),
    [
        ("A reader", produce_in_a_transaction, "PutObject of '__transaction_state/slot/"),
        ("A reader", produce, "PutObject of 'payments/"),
        ("A reader", create_topic, "PutObject of '__transaction_state/slot/"),
        ("A reader", consume_in_a_group, "PutObject of '__consumer_groups/"),
        ("A reader", vacuum, "PutObject of '__transaction_state/slot/"),
        ("A reader", verify, "ListObjectsV2 of 'payments/"),
        ("A reader", delete_description, "DeleteObjects of 'eoslog.json'"),
        ("A producer", consume_in_a_group, "PutObject of '__consumer_groups/"),
        ("A producer", vacuum, "ListObjectsV2 of ''"),
        ("A producer", delete_description, "DeleteObjects of 'eoslog.json'"),
        ("A producer", replace_description, "PutObject of 'eoslog.json'"),
        ("A member of a consumer group", vacuum, "ListObjectsV2 of ''"),
        ("A member of a consumer group", delete_description, "DeleteObjects of 'eoslog.json'"),
        ("A member of a consumer group", replace_description, "PutObject of 'eoslog.json'"),
        ("A member of a consumer group", register_a_gateway, "PutObject of '__gateways/"),
        ("A gateway", vacuum, "ListObjectsV2 of ''"),
        ("A gateway", replace_description, "PutObject of 'eoslog.json'"),
        ("The coordinator", verify, "ListMultipartUploads of ''"),
        ("The coordinator", delete_description, "DeleteObjects of 'eoslog.json'"),
        ("The coordinator", replace_description, "PutObject of 'eoslog.json'"),
    ],
)
def test_a_refusal_says_what_was_refused_and_no_credential(
    role: str, act: Callable[[Store], None], refused: str, used: Place
) -> None:
    with pytest.raises(StoreAccessDenied) as caught:
        act(used.store(role))

    message = str(caught.value)
    assert f"s3://{used.bucket}/{PREFIX}: {refused}" in message
    assert "AccessDenied" in message
    assert "check credentials, permissions and options" in message
    told = "".join(traceback.format_exception(caught.value))
    assert used.server(role).secret not in told
    assert used.server(role).key not in told


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        ("A reader", "ListObjectsV2 of ''"),
        ("A producer", "ListObjectsV2 of ''"),
        ("A member of a consumer group", "ListObjectsV2 of ''"),
        ("The coordinator", "PutObject of 'eoslog.json'"),
    ],
)
def test_only_the_administrator_makes_a_store(role: str, refused: str, accounts: S3Accounts) -> None:
    place = Place(accounts)

    with pytest.raises(StoreAccessDenied, match=refused):
        place.store(role).create()

    assert listed(place.owned, "") == []
