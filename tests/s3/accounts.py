"""A real S3 server with more accounts than one, each of which may do what its policy grants."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.s3.servers import S3_SCRIPT, S3Server, server_of, started_by_script


@dataclass(frozen=True, slots=True)
class S3Accounts:
    owner: S3Server
    """With the credentials of who may do everything."""
    iam: Any
    """Boto's client of the IAM service."""

    def new_account(self, policy: Mapping[str, Any]) -> S3Server:
        """Make an account with a policy, and return the server with its credentials."""
        name = f"test-{uuid.uuid4().hex}"
        self.iam.create_user(UserName=name)
        self.iam.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=json.dumps(policy))
        access = self.iam.create_access_key(UserName=name)["AccessKey"]
        return replace(self.owner, key=access["AccessKeyId"], secret=access["SecretAccessKey"])


@contextmanager
def s3_server_with_accounts() -> Iterator[S3Accounts]:
    """A real server that asks an IAM service about each request; see ``real_s3_server``."""
    import boto3

    with started_by_script(S3_SCRIPT, "run-with-iam") as variables:
        client = boto3.client(
            "iam",
            endpoint_url=variables["AWS_ENDPOINT_URL_IAM"],
            region_name=variables["AWS_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        yield S3Accounts(server_of(variables), client)
        client.close()
