"""The places of an endpoint's files: a folder, and prefixes of buckets in each kind of store."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import azure, gcs
from tests.runtime.files.backups import Place
from tests.s3 import ADMIN, S3Server, s3_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (ADMIN | gcs.CREDENTIALS | azure.CREDENTIALS).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def google(server: S3Server) -> Iterator[gcs.GoogleServer]:
    with gcs.google_server(server) as google:
        yield google


@pytest.fixture(
    params=[
        "folder",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("google", marks=pytest.mark.slow),
        pytest.param("azure", marks=pytest.mark.long),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, credentials: None) -> Place:
    name = f"b-{uuid.uuid4().hex}"
    match request.param:
        case "folder":
            return str(tmp_path), {}
        case "s3":
            server: S3Server = request.getfixturevalue("server")
            return f"s3://{server.create_bucket(name)}/some/prefix", server.settings
        case "google":
            google: gcs.GoogleServer = request.getfixturevalue("google")
            return f"gs://{google.server.create_bucket(name)}/some/prefix", google.settings
    if not (url := os.environ.get(azure.SERVER)):
        pytest.skip(f"{azure.SERVER} names no emulator")
    return f"{azure.address(azure.create_container(url, name))}/some/prefix", azure.settings(url)
