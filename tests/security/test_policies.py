"""The policies of the page on security grant each role what its requests need, and no more than it says."""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree

import pytest

import eoslog
from eoslog.storage import http_store, probe
from eoslog.storage.environment import Environment
from eoslog.storage.s3_store import S3Store
from eoslog.store import Store
from tests.conftest import s3_store_at
from tests.s3.servers import S3Server
from tests.security.policies import Request, allows, denies, policy
from tests.security.roles import ROLES

pytestmark = pytest.mark.s3

ACTIONS = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObject": "s3:DeleteObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
KEY_PREFIX = "some/prefix/"


@pytest.fixture(scope="module")
def requests(s3_server: S3Server) -> dict[str, set[Request]]:
    """The requests of each role, as a policy sees them. The roles act one after the other on one store."""
    bucket = s3_server.new_bucket()
    found: dict[str, set[Request]] = {}
    with pytest.MonkeyPatch.context() as patch:
        # One of the servers of these tests looks and then writes, so that two who race may both be told that they won.
        patch.setattr(probe, "_RACERS", 1)
        for role, act in ROLES.items():
            found[role] = set()
            act(partial(recorded_process, s3_server, bucket, found[role]))
    return found


def recorded_process(server: S3Server, bucket: str, requests: set[Request]) -> Store:
    """The store as another process opens it, whose requests are written down."""
    environment = Environment()
    store = s3_store_at(server, bucket, environment)
    send = store._send

    def recording(request: http_store.Request, path: str) -> http_store.Answer:
        if request.operation == "DeleteObjects":
            keys = [each.text or "" for each in ElementTree.fromstring(request.body).iterfind(".//{*}Key")]
            requests.update(Request("s3:DeleteObject", key.removeprefix(KEY_PREFIX)) for key in keys)
        else:
            path = (request.key or request.query["prefix"]).removeprefix(KEY_PREFIX)
            requests.add(Request(ACTIONS[request.operation], path, "If-None-Match" in request.headers))
        return send(request, path)

    store._send = recording  # type: ignore[method-assign]
    return Store(store, environment)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_all_that_it_does(role: str, requests: dict[str, set[Request]]) -> None:
    granted = policy(role)
    assert sorted(each for each in requests[role] if not allows(granted, each)) == []
    unused = {
        action
        for statement in granted["Statement"]
        if statement["Effect"] == "Allow"
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    } - {each.action for each in requests[role]}
    assert unused == set()


def test_nothing_that_may_not_be_replaced_is_put_without_the_condition(requests: dict[str, set[Request]]) -> None:
    create_only = policy("Create-only")
    puts = {each for role in requests for each in requests[role] if each.action == "s3:PutObject"}

    assert sorted(each for each in puts if denies(create_only, each)) == []
    replaceable = {each.path.split("/")[0] for each in puts if not each.create_only}
    assert replaceable == {"__consumer_groups", "__gateways"}
    unconditional = {each._replace(create_only=False) for each in puts if each.create_only}
    assert (
        sorted(each for each in unconditional if not denies(create_only, each) and not each.path.startswith(".probe/"))
        == []
    )


@pytest.mark.parametrize("role", ["A reader", "A producer", "A member of a consumer group"])
@pytest.mark.parametrize(
    "path", ["eoslog.json", "__transaction_state/slot/9999999999/00000000000000000000.json", "payments/x/0/0/y.parquet"]
)
def test_only_the_coordinator_and_the_administrator_may_delete_a_stores_objects(role: str, path: str) -> None:
    assert not allows(policy(role), Request("s3:DeleteObject", path))


@pytest.mark.parametrize("role", ["A reader", "A producer", "A member of a consumer group", "The coordinator"])
def test_only_the_administrator_may_write_a_stores_description(role: str) -> None:
    assert not allows(policy(role), Request("s3:PutObject", "eoslog.json", create_only=True))


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_ends_at_its_store(role: str) -> None:
    for statement in policy(role)["Statement"]:
        resources = statement["Resource"]
        for resource in [resources] if isinstance(resources, str) else resources:
            assert resource == "arn:aws:s3:::BUCKET" or resource.startswith("arn:aws:s3:::BUCKET/PREFIX/")


def test_a_put_of_a_new_object_does_not_overwrite_an_existing_one(s3_store: S3Store) -> None:
    s3_store.put_new([("t/a.parquet", b"rows")])
    s3_store.put_new([("t/a.parquet", b"rows")])

    with pytest.raises(eoslog.EosLogError, match="already exists with other bytes"):
        s3_store.put_new([("t/a.parquet", b"others")])
    assert s3_store.get("t/a.parquet").body == b"rows"
