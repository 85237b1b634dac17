"""The policies of the page on security, evaluated as S3 does, as far as they go: actions, resources, two conditions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.pages import REPOSITORY

PAGE = REPOSITORY / "docs/security.md"
BUCKET, PREFIX = "BUCKET", "PREFIX"
_OF_THE_BUCKET = ("s3:ListBucket", "s3:ListBucketMultipartUploads")


class Request(NamedTuple):
    """What a policy is asked about."""

    action: str
    path: str
    """From the store's root; of a list, the prefix that is asked for."""
    create_only: bool = False
    """Whether it is sent with If-None-Match."""

    @property
    def resource(self) -> str:
        return f"arn:aws:s3:::{BUCKET}" + ("" if self.action in _OF_THE_BUCKET else f"/{PREFIX}/{self.path}")

    @property
    def context(self) -> Mapping[str, str]:
        context = {"s3:if-none-match": "*"} if self.create_only else {}
        return context | ({"s3:prefix": f"{PREFIX}/{self.path}"} if self.action == "s3:ListBucket" else {})


def policy(title: str) -> dict[str, Any]:
    """The JSON below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(title)}\n.*?^```json\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"the page has no policy for {title}"
    document: dict[str, Any] = json.loads(found[1])
    return document


def policy_for(title: str, bucket: str, prefix: str) -> dict[str, Any]:
    """The same for a place, as the page says to fill it in."""
    document: dict[str, Any] = json.loads(json.dumps(policy(title)).replace(BUCKET, bucket).replace(PREFIX, prefix))
    return document


def allows(document: Mapping[str, Any], request: Request) -> bool:
    """Whether the policy grants the request: something allows it, and nothing denies it."""
    effects = {each["Effect"] for each in document["Statement"] if _applies(each, request)}
    return effects == {"Allow"}


def denies(document: Mapping[str, Any], request: Request) -> bool:
    return any(each["Effect"] == "Deny" and _applies(each, request) for each in document["Statement"])


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    return (
        any(_like(pattern, request.action) for pattern in _several(statement["Action"]))
        and any(_like(pattern, request.resource) for pattern in _several(statement["Resource"]))
        and all(
            _holds(operator, key, values, request.context)
            for operator, condition in statement.get("Condition", {}).items()
            for key, values in condition.items()
        )
    )


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str]) -> bool:
    match operator:
        case "Null":
            return (key not in context) is (str(values).lower() == "true")
        case "StringLikeIfExists":
            return key not in context or any(_like(pattern, context[key]) for pattern in _several(values))
        case "Bool" if key == "aws:SecureTransport":
            return str(values).lower() == "true"
        case "ArnNotLike" if key == "aws:PrincipalArn":
            return True
    raise AssertionError(f"the page uses {operator} of {key}, which this test cannot evaluate")


def _several(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _like(pattern: str, text: str) -> bool:
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern), text) is not None
