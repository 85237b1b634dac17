"""A real S3 server with more accounts than one, each of which may do what its policy grants."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.s3.servers import S3Server, server_of, started_by_script


@dataclass(frozen=True, slots=True)
class S3Accounts:
    """The accounts of a server."""

    owner: S3Server
    """With the credentials of who may do everything."""
    iam_url: str

    def new_account(self, policy: Mapping[str, Any]) -> S3Server:
        """Make an account with a policy, and return the server with its credentials."""
        import boto3

        client = boto3.client(
            "iam",
            endpoint_url=self.iam_url,
            region_name=self.owner.options()["region"],
            aws_access_key_id=self.owner.key,
            aws_secret_access_key=self.owner.secret,
        )
        name = f"test-{uuid.uuid4().hex}"
        client.create_user(UserName=name)
        client.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=json.dumps(policy))
        access = client.create_access_key(UserName=name)["AccessKey"]
        client.close()
        return replace(self.owner, key=access["AccessKeyId"], secret=access["SecretAccessKey"])


@contextmanager
def s3_server_with_accounts() -> Iterator[S3Accounts]:
    """A real server that asks an IAM service about each request; see ``real_s3_server``."""
    with started_by_script("run-with-iam") as variables:
        yield S3Accounts(server_of(variables), variables["AWS_ENDPOINT_URL_IAM"])
