"""A bucket of Google's or Azure's store that is read: names, pages, and objects by their ETags."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from runtime.contract.spec.files import LinesSpec
from runtime.files.open_store import opened
from runtime.files.source.sources import source_of
from tests import azure, gcs
from tests.runtime.files.backups import Place


@pytest.fixture(params=["google", pytest.param("azure", marks=pytest.mark.long)])
def inbox(request: pytest.FixtureRequest, credentials: None) -> Iterator[Place]:
    name = f"b-{uuid.uuid4().hex}"
    if request.param == "google":
        google: gcs.GoogleServer = request.getfixturevalue("google")
        yield f"gs://{google.server.create_bucket(name)}/in", google.settings
    elif url := os.environ.get(azure.SERVER):
        yield f"{azure.address(azure.create_container(url, name))}/in", azure.settings(url)
    else:
        pytest.skip(f"{azure.SERVER} names no emulator")


@pytest.mark.parametrize("recursive", [False, True])
def test_objects_are_listed_and_read_in_the_version_that_was_listed(inbox: Place, *, recursive: bool) -> None:
    folder, client = inbox
    store = opened(folder, client)
    for name in ("a.log", "eu/b.log", "_tmp/c.log", "z.log"):
        store.add(name, name.encode())
    lines = LinesSpec(
        endpoint="inbox", folder=folder, client=client, format="text", topic="t", recursive=recursive
    )
    source = source_of(lines)
    listing = source.look()
    assert sorted(listing.files) == (["a.log", "eu/b.log", "z.log"] if recursive else ["a.log", "z.log"])
    with source.open("a.log", listing.files["a.log"].version) as file:
        assert file.read(0, 99) == b"a.log"
    store.remove(["a.log"])
    store.add("a.log", b"another")
    with source.open("a.log", listing.files["a.log"].version) as file, pytest.raises(FileNotFoundError):
        file.read(0, 99)
    assert source.look().files["a.log"] != listing.files["a.log"]
