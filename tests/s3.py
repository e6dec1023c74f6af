"""A real S3 server on this machine, in a process of its own: moto's, which keeps objects in memory.

REPL_TEST_S3 names the address of another server in its place, such as MinIO or SeaweedFS, whose administrator
has the credentials of ADMIN: `REPL_TEST_S3=http://127.0.0.1:9000 pytest tests/spark/test_object_store.py`. It
checks credentials at all times, and tests that need its users are left out.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.config import Config

from runtime.contract.client.stores import Setting
from tests.ports import free_port
from tests.records import wait_for

OTHER_SERVER = "REPL_TEST_S3"
KEY, SECRET = "S3_TEST_KEY", "S3_TEST_SECRET"  # the variables with the credentials
ADMIN = {KEY: "admin", SECRET: "admin-secret-key"}
_PAGE = 50  # so that few objects are several pages
RIGHTS = (
    "s3:ListBucket",
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
)  # as docs/operations.md has them


class S3Server:
    """A server. moto's checks credentials only inside of `rights_checked`."""

    def __init__(self, url: str, *, has_users: bool = True) -> None:
        self.url = url
        self.has_users = has_users
        self.page = _PAGE if has_users else 1_000  # keys of a listing
        self._s3 = self._client("s3")
        self.gone = self._s3.exceptions.NoSuchKey

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            aws_access_key_id=ADMIN[KEY],
            aws_secret_access_key=ADMIN[SECRET],
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 0}),
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """The client settings of an endpoint; the variables are KEY and SECRET."""
        return {
            "endpoint": self.url,
            "region": "us-east-1",
            "access.key": {"env": KEY},
            "secret.key": {"env": SECRET},
        }

    def create_bucket(self, name: str) -> str:
        self._s3.create_bucket(Bucket=name)
        return name

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        names = [one["Key"] for page in pages for one in page.get("Contents", ())]
        return {name: self._s3.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}

    def put(self, bucket: str, name: str, text: bytes) -> None:
        self._s3.put_object(Bucket=bucket, Key=name, Body=text)

    def delete(self, bucket: str, name: str) -> None:
        self._s3.delete_object(Bucket=bucket, Key=name)

    def download(self, bucket: str, prefix: str, folder: Path) -> Path:
        """Writes what a reader of the bucket sees now into a new folder, and returns it.

        The folder of the prefix is there also if the bucket has no object in it.
        """
        for name, text in self.objects(bucket, prefix).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        (folder / prefix).mkdir(parents=True, exist_ok=True)
        return folder

    def create_user(self, name: str) -> dict[str, str]:
        """Creates a user without any right, and returns its credentials as variables."""
        if not self.has_users:
            pytest.skip(f"the users of the server that {OTHER_SERVER} names can't be created through IAM")
        iam = self._client("iam")
        iam.create_user(UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {KEY: key["AccessKeyId"], SECRET: key["SecretAccessKey"]}

    def allow(self, user: str, bucket: str) -> None:
        """Gives the user the rights on a bucket that docs/operations.md names."""
        both = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement = {"Effect": "Allow", "Action": list(RIGHTS), "Resource": both}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self._client("iam").put_user_policy(UserName=user, PolicyName="repl", PolicyDocument=document)

    @contextmanager
    def rights_checked(self) -> Iterator[None]:
        """Checks the rights of each request inside of the block."""
        if not self.has_users:
            yield
            return
        self._check_after("0")
        try:
            yield
        finally:
            self._check_after("inf")

    def _check_after(self, requests: str) -> None:
        url, headers = f"{self.url}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        with urlopen(Request(url, requests.encode(), headers, method="POST")) as answer:
            answer.read()


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/moto-api/", timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Starts a server that writes its log into the folder, or finds the one that REPL_TEST_S3 names."""
    if url := os.environ.get(OTHER_SERVER):
        yield S3Server(url, has_users=False)
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _running(folder, port, lambda: answers(url)):
        yield S3Server(url)


@contextmanager
def s3_server_with_tls(folder: Path, certificate: Path) -> Iterator[str]:
    """Starts a server with TLS, and yields its address. The file holds the key and the certificate."""
    port = free_port()

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    with _running(folder, port, listens, "--ssl", "-c", str(certificate), "-k", str(certificate)):
        yield f"https://localhost:{port}"


@contextmanager
def _running(folder: Path, port: int, ready: Callable[[], bool], *options: str) -> Iterator[None]:
    server = Path(__file__).with_name("moto_server.py")
    command = [sys.executable, "-P", str(server), "-H", "127.0.0.1", "-p", str(port), *options]
    environ = {**os.environ, **ADMIN, "MOTO_S3_DEFAULT_MAX_KEYS": f"{_PAGE}"}
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    try:
        wait_for(lambda: process.poll() is not None or ready(), 60)
        assert process.poll() is None, (folder / "s3.log").read_text()
        yield
    finally:
        process.kill()
        process.wait(60)
