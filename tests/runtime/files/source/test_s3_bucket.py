"""A bucket at a real S3 server: keys as they are, objects by their ETags, and errors in one sentence."""

import traceback
import uuid
from collections.abc import Callable

import pytest

from runtime.contract.spec.files import LinesSpec
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.bucket import BucketObject, BucketSource, StoredObject
from runtime.files.source.s3_bucket import S3Bucket
from runtime.files.source.sources import source_of
from tests.s3 import ADMIN, KEY, SECRET, S3Server

pytestmark = pytest.mark.slow

ODD = ["a b+c.log", "é%25.log", "%41", "back\\slash", "#~*'()!$&,:;=@?.log", "eu/a.log"]


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.create_bucket(f"b-{uuid.uuid4().hex}")


def source_in(
    server: S3Server, bucket: str, environ: dict[str, str] = ADMIN, **settings: str
) -> BucketSource:
    store = S3Bucket(f"s3a://{bucket}/in", {**server.settings, **settings}, environ)
    return BucketSource(store, recursive=True)


def test_keys_are_listed_and_read_as_they_are(server: S3Server, bucket: str) -> None:
    for name in [*ODD, "eu//b.log", "tab\t.log", "../up.log", "_tmp/c.log", "eu/", ""]:
        server.put(bucket, f"in/{name}", name.encode())
    server.put(bucket, "inner/other.log", b"of another prefix")
    source = source_in(server, bucket)
    found = source.look()
    assert sorted(found.files) == sorted(ODD)
    assert sum(found.ignored.values()) == 2
    for name, state in found.files.items():
        for file in (source.open(name, state.version), source.open(name)):
            assert (file.read(0, 99), file.identity()) == (name.encode(), state.identity)


def test_a_source_of_a_flow_reads_the_bucket_with_its_client(
    server: S3Server, bucket: str, credentials: None
) -> None:
    server.put(bucket, "in/a.log", b"one\n")
    server.put(bucket, "in/eu/b.log", b"two\n")
    lines = LinesSpec(
        endpoint="inbox", folder=f"s3a://{bucket}/in", client=server.settings, format="text", topic="t"
    )
    assert list(source_of(lines).look().files) == ["a.log"]


def test_pages_are_listed_one_behind_the_other(server: S3Server, bucket: str) -> None:
    names = [f"{number:04}.log" for number in range(server.page + 3)]
    for name in names:
        server.put(bucket, f"in/{name}", b"x")
    store = S3Bucket(f"s3a://{bucket}/in", server.settings, ADMIN)
    first = store.page("", recursive=False)
    assert ([one.name for one in first.objects], first.more) == (names[: server.page], True)
    rest = store.page(first.last, recursive=False)
    assert ([one.name for one in rest.objects], rest.more) == (names[server.page :], False)


def test_an_object_that_was_overwritten_or_deleted_is_not_read(server: S3Server, bucket: str) -> None:
    server.put(bucket, "in/a.log", b"first")
    source = source_in(server, bucket)
    file = source.open("a.log")
    server.put(bucket, "in/a.log", b"other")
    with pytest.raises(FileNotFoundError, match="overwritten"):
        file.read(0, 5)
    server.delete(bucket, "in/a.log")
    with pytest.raises(FileNotFoundError):
        file.read(0, 5)
    with pytest.raises(FileNotFoundError):
        source.open("a.log")


RIGHTS = "the credentials need s3:ListBucket and s3:GetObject"


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        (lambda server: server.create_user(f"u-{uuid.uuid4().hex}"), RIGHTS),
        (
            lambda _: {KEY: "nobody", SECRET: "a-secret-that-is-not-right"},
            "the store refuses the credentials",
        ),
        (lambda _: {}, f"the environment variable {KEY} is not set"),
    ],
    ids=["no rights", "wrong credentials", "no credentials"],
)
def test_what_the_store_refuses_is_said_without_a_secret(
    server: S3Server, bucket: str, environ: Callable[[S3Server], dict[str, str]], why: str
) -> None:
    given = environ(server)
    source = source_in(server, bucket, given)
    some = BucketObject("a.log", 5, '"etag"')
    file = StoredObject(S3Bucket(f"s3a://{bucket}/in", server.settings, given), some)
    with server.rights_checked():
        for refused in (source.look, lambda: file.read(0, 5)):
            with pytest.raises(EndpointUnavailable, match=why) as caught:
                refused()
            shown = "".join(traceback.format_exception(caught.value))
            assert given.get(SECRET, "no secret") not in shown
            assert "X-Amz-Signature" not in shown


def test_credentials_that_were_exchanged_are_used_after_a_refusal(server: S3Server, bucket: str) -> None:
    given = {KEY: "nobody", SECRET: "a-secret-that-is-not-right"}
    server.put(bucket, "in/a.log", b"line\n")
    (some,) = S3Bucket(f"s3a://{bucket}/in", server.settings, ADMIN).page("", recursive=True).objects
    file = StoredObject(S3Bucket(f"s3a://{bucket}/in", server.settings, given), some)
    user = f"u-{uuid.uuid4().hex}"
    allowed = server.create_user(user)
    server.allow(user, bucket)
    with server.rights_checked():
        with pytest.raises(EndpointUnavailable, match="refuses the credentials"):
            file.read(0, 5)
        given |= allowed
        assert file.read(0, 5) == b"line\n"


def test_a_bucket_that_is_not_there_and_a_store_that_does_not_answer(server: S3Server) -> None:
    name = f"b-{uuid.uuid4().hex}"
    with pytest.raises(EndpointUnavailable, match=f"the bucket {name} is not there: create it"):
        source_in(server, name).look()
    with pytest.raises(EndpointUnavailable, match="can't be reached: the connection is refused"):
        source_in(server, name, endpoint="http://127.0.0.1:1").look()
