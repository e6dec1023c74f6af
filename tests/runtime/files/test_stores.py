"""Folders and object stores behave alike: one body of tests for a real folder and a real S3 server."""

import errno
import http.server
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.client.secrets import redacted
from runtime.contract.client.stores import store_address
from runtime.files.backup import check_file, flows_in
from runtime.files.manifest import (
    EndpointUnavailable,
    ManifestFolder,
    ManifestProblem,
    ManifestTaken,
)
from runtime.files.object_store import ObjectStore, explained
from runtime.files.open_store import opened
from runtime.files.store import FileStore, LocalFolder, NameTaken, NotExclusive
from tests.runtime.files.backups import Place, commit_of
from tests.runtime.files.lake import NOON, Lake
from tests.runtime.kafka.auth.test_tls import Authority
from tests.s3 import ADMIN, KEY, SECRET, S3Server, s3_server_with_tls
from tests.serving import serving

pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture
def store(place: Place) -> FileStore:
    return opened(*place)


def upload(store: FileStore, name: str, *texts: bytes) -> None:
    file = store.upload(name)
    for text in texts:
        file.write(text)
    file.close()


def test_a_name_is_given_once_and_the_first_content_stays(store: FileStore) -> None:
    store.check_exclusive("_repl/f/staging/probe")
    store.add("_repl/f/log/1.json", b"mine")
    with pytest.raises(NameTaken):
        store.add("_repl/f/log/1.json", b"theirs")
    assert store.read("_repl/f/log/1.json") == b"mine"
    assert store.names("_repl/f/log") == ["1.json"]
    assert store.names("_repl/f") == ["log"]  # the probe left nothing
    assert store.names("_repl/none") == []


def test_of_many_that_add_one_name_at_once_one_succeeds(store: FileStore) -> None:
    won: list[int] = []

    def add(number: int) -> None:
        try:
            store.add("log/1.json", str(number).encode())
        except NameTaken:
            return
        won.append(number)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    (winner,) = won
    assert store.read("log/1.json") == str(winner).encode()


def test_a_file_is_uploaded_in_parts_and_read_from_any_place(store: FileStore) -> None:
    parts = [bytes([number]) * (3 << 20) for number in range(4)]  # more than one part of an upload
    upload(store, "staging/x.part", *parts)
    assert store.sizes(["staging/x.part", "staging/y.part", "staging"]) == [12 << 20, None, None]
    with store.open("staging/x.part") as file:
        assert file.seek(-2, 2) == (12 << 20) - 2
        assert file.read() == b"\x03\x03"
        file.seek((3 << 20) - 1)
        assert file.read(2) == b"\x00\x01"
        file.seek(0)
        assert b"".join(iter(lambda: file.read(5_000_000), b"")) == b"".join(parts)


def test_a_file_that_is_not_closed_is_not_there(store: FileStore) -> None:
    for text in (b"small", bytes(11 << 20)):
        file = store.upload("orders/x.log")
        file.write(text)
        file.discard()
        assert store.names("orders") == []


def test_a_move_may_be_repeated_and_names_what_was_not_there(store: FileStore) -> None:
    upload(store, "staging/a", b"a")
    upload(store, "staging/b", b"b")
    moves = [("staging/a", "orders/date=2026-01-31/a"), ("staging/b", "orders/b"), ("staging/c", "orders/c")]
    assert store.move(moves) == ["orders/c"]
    assert store.move(moves) == [new for _, new in moves]
    assert store.sizes([new for _, new in moves]) == [1, 1, None]
    assert store.sizes([old for old, _ in moves]) == [None, None, None]
    assert sorted(store.names("orders")) == ["b", "date=2026-01-31"]


def test_old_files_are_removed_by_the_clock_of_the_store(store: FileStore) -> None:
    assert store.remove_older("replaced", 0) == 0
    upload(store, "replaced/orders/a", b"a")
    upload(store, "replaced/b", b"b")
    assert store.remove_older("replaced", 3_600) == 0
    assert store.remove_older("replaced", 0) == 2
    assert store.remove_older("replaced", 0) == 0
    store.add("c", b"c")
    store.remove(["c", "not-there"])
    assert store.sizes(["c"]) == [None]
    upload(store, "staging/1/d", b"d")
    store.remove_folder("staging")
    assert store.names("staging") == []
    store.remove_folder("staging")


def test_what_is_not_there_is_named(store: FileStore) -> None:
    for read in (store.read, store.open):
        with pytest.raises(FileNotFoundError) as missing:
            read("orders/none")
        assert missing.value.filename == store.path("orders/none")


def test_rounds_and_a_merge(place: Place) -> None:
    lake = Lake(place)
    for _ in range(3):
        lake.round(NOON, NOON)
    assert len(lake.folder.store.names("orders")) == 3
    lake.merge()
    (merged,) = lake.folder.store.names("orders")
    assert ".m4." in merged
    assert flows_in(lake.folder.store) == ["f"]
    assert lake.folder.remove_replaced(3_600) == 0
    assert lake.folder.remove_replaced(0) == 3
    assert lake.seen_by_the_manifest() == list(range(6))


def test_a_commit_is_finished_by_the_next_start_and_readable_before(place: Place) -> None:
    lake = Lake(place)
    lake.round(NOON, NOON)
    lake.commit(NOON, NOON)
    assert len(lake.folder.store.names("orders")) == 1  # not visible yet
    assert lake.seen_by_the_manifest() == [0, 1, 2, 3]
    again = ManifestFolder(lake.spec.folder, "f", lake.spec.client)
    last = again.read().last
    assert last is not None
    for _ in range(2):
        again.publish(last.files)
    again.clear_staging(1)
    assert len(again.store.names("orders")) == 2
    assert again.store.names("_repl/f/staging") == []
    assert lake.seen_by_the_manifest() == [0, 1, 2, 3]


def test_of_two_drivers_one_gets_the_number(place: Place) -> None:
    ours, theirs = (ManifestFolder(place[0], "f", place[1]) for _ in range(2))
    mine, other = ours.read(), theirs.read()
    ours.add(mine, commit_of(1))
    with pytest.raises(ManifestTaken):
        theirs.add(other, replace(commit_of(1), generation=2))
    ours.add(mine, commit_of(2))
    assert theirs.read().last == mine.last
    theirs.check(mine)


def test_a_file_or_a_commit_that_is_gone_is_named(place: Place) -> None:
    lake = Lake(place)
    lake.round(NOON, NOON)
    (name,) = lake.folder.store.names("orders")
    lake.folder.store.remove([f"orders/{name}"])
    last = lake.state.last
    assert last is not None
    with pytest.raises(ManifestProblem, match="is missing, and so is its staged file"):
        lake.folder.publish(last.files)
    with pytest.raises(EndpointUnavailable, match="is not there for the driver"):
        lake.folder.check_staged(last.files)
    lake.round(NOON, NOON)
    lake.folder.store.remove([f"_repl/f/log/{2:020d}.json"])
    with pytest.raises(EndpointUnavailable, match="is gone: is"):
        lake.folder.check(lake.state)


def test_a_folder_and_an_address_of_a_store(tmp_path: Path) -> None:
    assert isinstance(opened(str(tmp_path)), LocalFolder)
    assert isinstance(opened("s3a://bucket"), ObjectStore)
    assert opened("s3://bucket/a/").path("x") == "s3a://bucket/a/x"


def failing(store: FileStore, *words: str) -> str:
    with pytest.raises(OSError, match=store.address) as failed:
        store.check()
    why = failed.value.strerror
    assert why is not None
    assert all(word in why for word in words), why
    return why


@pytest.mark.slow
def test_a_key_that_obstore_does_not_show_refuses_no_endpoint(server: S3Server) -> None:
    bucket = server.create_bucket(f"b-{uuid.uuid4().hex}")
    server.put(bucket, "lake/a//b", b"not ours")
    opened(f"s3a://{bucket}/lake", server.settings).check()


@pytest.mark.slow
def test_credentials_that_were_exchanged_are_used_after_a_check_that_was_refused(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, user = server.create_bucket(f"b-{uuid.uuid4().hex}"), f"u-{uuid.uuid4().hex}"
    allowed = server.create_user(user)
    server.allow(user, bucket)
    monkeypatch.setenv(KEY, "nobody")
    store = opened(f"s3a://{bucket}/lake", server.settings)
    with server.rights_checked():
        failing(store, "the store refuses the credentials")
        for name, value in allowed.items():
            monkeypatch.setenv(name, value)
        store.check()


@pytest.mark.slow
def test_a_store_that_does_not_answer_as_it_should_is_named_in_one_sentence(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = server.settings
    failing(opened("s3a://not-there", settings), "the bucket not-there is not there: create it")
    refusing = {**settings, "endpoint": "http://127.0.0.1:9"}
    failing(opened("s3a://b", refusing), "127.0.0.1:9 can't be reached: the connection is refused")
    unknown = {**settings, "endpoint": "http://host.invalid"}
    failing(opened("s3a://b", unknown), "host.invalid:80 can't be reached: its name is not known")
    plain = {**settings, "endpoint": server.url.replace("http:", "https:")}
    failing(opened("s3a://b", plain), "it does not speak TLS")
    guarded = f"s3a://{server.create_bucket(f'b-{uuid.uuid4().hex}')}"
    monkeypatch.setenv(KEY, "nobody")
    with server.rights_checked():
        failing(opened(guarded, settings), "the store refuses the credentials (InvalidAccessKeyId)")
    monkeypatch.delenv(SECRET)
    failing(opened(guarded, settings), f"secret.key: the environment variable {SECRET} is not set")
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "elsewhere.example.org")
    failing(opened(guarded, settings), "is not among the addresses that this machine allows")


@pytest.mark.parametrize(
    ("answer", "number", "words"),
    [
        ("status code: 403 Forbidden: <Code>AccessDenied</Code>", errno.EACCES, "access denied"),
        ("status code: 403 Forbidden: ", errno.EACCES, "access denied (403)"),
        ("status code: 503: <Code>SlowDown</Code>", errno.EBUSY, "no capacity for more requests now"),
        ("status code: 507: <Code>XMinioStorageFull</Code>", errno.ENOSPC, "no space left in the store"),
        ("status code: 301: <Code>PermanentRedirect</Code>", errno.EINVAL, "is in another region"),
        ("status code: 500: <Code>InternalError</Code>", errno.EIO, "the error InternalError"),
        ("status code: 404 Not Found", errno.ENOENT, "the file is not there"),
        ("error sending request: operation timed out", errno.EHOSTUNREACH, "does not answer in time"),
        ("invalid peer certificate: UnknownIssuer", errno.EHOSTUNREACH, "name the authority with client.ssl"),
        ("Error performing PUT http://169.254.169.254/latest", errno.EACCES, "no credentials for the store"),
    ],
)
def test_what_an_answer_means(answer: str, number: int, words: str) -> None:
    found, text = explained(answer, store_address("s3a://bucket"), "host:443", "rights")
    assert found == number
    assert words in text


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers as a store that ignores If-None-Match."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("ETag", '"x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_DELETE = do_POST = answer  # noqa: N815 - the names of the base class

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def careless() -> Iterator[str]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)) as url:
        yield url


@pytest.mark.slow
def test_a_store_that_ignores_the_condition_is_refused(server: S3Server, careless: str) -> None:
    store = opened("s3a://bucket", {**server.settings, "endpoint": careless})
    with pytest.raises(NotExclusive) as refused:
        store.check_exclusive("_repl/f/staging/probe")
    assert "does not honour conditional puts" in str(refused.value.strerror)
    folder = ManifestFolder("s3a://bucket", "f", {**server.settings, "endpoint": careless})
    with pytest.raises(EndpointUnavailable, match="use a store that does"):
        folder.check_exclusive()


@pytest.mark.slow
def test_a_put_whose_answer_got_lost_is_found_again(server: S3Server) -> None:
    """The client repeats the put, finds the name taken, and reads back what it has written itself."""
    bucket = server.create_bucket(f"b-{uuid.uuid4().hex}")
    store = opened(f"s3a://{bucket}", server.settings)
    server.put(bucket, "log/1.json", b"mine")
    store.add("log/1.json", b"mine")
    with pytest.raises(NameTaken):
        store.add("log/1.json", b"theirs")


@pytest.mark.slow
def test_a_token_of_the_environment_is_not_mixed_with_declared_keys(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is its endpoint: credentials go to the declared address alone."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    user = server.create_user("declared")
    for name, value in user.items():
        monkeypatch.setenv(name, value)
    bucket = server.create_bucket("declared-keys")
    store = opened(f"s3a://{bucket}", server.settings)
    with server.rights_checked():
        failing(store, "access denied (AccessDenied)")
    server.allow("declared", bucket)
    with server.rights_checked():
        store.check()
        store.add("a", b"a")
        upload(store, "staging/b", bytes(11 << 20))
        assert store.move([("staging/b", "b")]) == []
        store.remove(["a", "b"])
        assert store.sizes(["a", "b"]) == [None, None]


@pytest.mark.slow
def test_the_authority_of_a_store_is_named_by_its_file(server: S3Server, tmp_path: Path) -> None:
    ours, other = (Authority(name, tmp_path, "localhost") for name in ("ours", "other"))
    with s3_server_with_tls(tmp_path, ours.broker) as url:
        settings = {**server.settings, "endpoint": url}
        for unknown in ({}, {"ssl.ca.location": str(other.ca)}):
            store = opened("s3a://bucket", {**settings, **unknown})
            failing(store, "its certificate is not trusted: name the authority with client.ssl.ca.location")
        trusted = {**settings, "ssl.ca.location": str(ours.ca)}
        failing(opened("s3a://not-there", trusted), "the bucket not-there is not there: create it")
        lost = {**settings, "ssl.ca.location": str(tmp_path / "lost.pem")}
        with pytest.raises(FileNotFoundError, match=r"lost\.pem"):
            opened("s3a://not-there", lost).check()
        other_name = {**trusted, "endpoint": url.replace("localhost", "127.0.0.1")}
        failing(opened("s3a://not-there", other_name), "its certificate is for another name")


@pytest.mark.slow
def test_a_store_that_is_away_damages_no_file(server: S3Server) -> None:
    """A merge is tried again later, and a restore says that the store can't be reached."""
    bucket = server.create_bucket(f"b-{uuid.uuid4().hex}")
    lake = Lake((f"s3a://{bucket}/a", server.settings))
    lake.round(NOON, NOON)
    last = lake.state.last
    assert last is not None
    away = ManifestFolder(lake.spec.folder, "f", {**server.settings, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(OSError, match="the connection is refused"):
        check_file(away, last.files[0])
    away.clear_staging(1)


@pytest.mark.slow
def test_a_wrong_secret_is_named(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (server.create_user("wrong") if server.has_users else ADMIN).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SECRET, "another-secret-of-this-user")
    store = opened(f"s3a://{server.create_bucket(f'b-{uuid.uuid4().hex}')}", server.settings)
    with server.rights_checked():
        failing(store, "the store refuses the credentials (SignatureDoesNotMatch)")


@pytest.mark.slow
def test_secrets_are_in_no_text(server: S3Server) -> None:
    store = opened("s3a://not-there", server.settings)
    why = failing(store)
    assert ADMIN[SECRET] not in why + repr(store)
    assert ADMIN[SECRET] not in redacted(f"x {ADMIN[SECRET]} y")
