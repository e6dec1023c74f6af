"""The places of an endpoint's files: a folder, and a prefix of a bucket at a real S3 server."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.files.backups import Place
from tests.s3 import ADMIN, S3Server, s3_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, credentials: None) -> Place:
    if request.param == "folder":
        return str(tmp_path), {}
    server: S3Server = request.getfixturevalue("server")
    bucket = server.create_bucket(f"b-{uuid.uuid4().hex}")
    return f"s3://{bucket}/some/prefix", server.settings
