"""Which objects of a bucket are files, how they are listed and read, and what becomes of changed ones."""

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.contract.records.job_status import PartitionState
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.bucket import FEW, FULL_LOOKS, FULL_S, BucketSource, ObjectPage, StoredObject
from runtime.files.source.known_files import NO_FINGERPRINT, KnownFile, reconcile
from runtime.files.source.lines import LineReader
from runtime.files.source.parquet_rows import RowReader
from tests.fakes.buckets import DENIED, MISSING, FakeBucket
from tests.runtime.files.source.rows import read_all, unpacked

LONGEST = 100


def bucket_of(*names: str, **options: int) -> FakeBucket:
    bucket = FakeBucket(**options)  # type: ignore[arg-type]
    for name in names:
        bucket.put(name)
    return bucket


def read_lines_of(bucket: FakeBucket, name: str, position: int = 0, form: str = "text") -> list[bytes]:
    """The values of the records behind a position."""
    reader = LineReader(StoredObject(bucket, bucket.newest(name)), form)  # type: ignore[arg-type]
    found = reader.read(position, LONGEST)
    return [one.value for one in unpacked(found) if one.value is not None]


NAMES = [
    "a.log",
    "a b+c%20é.log",
    ".hidden",
    "_temporary/part.log",
    "eu/_SUCCESS",
    "eu/a.log",
    "eu/west/b.log",
    "eu/",
    "",
    "eu/a.gz",
    "z.gz",
    "eu//a.log",
    "/a.log",
    "../a.log",
    "line\nfeed",
    "del\x7f",
]


@pytest.mark.parametrize(
    ("recursive", "files", "ignored"),
    [
        (False, {"a.log", "a b+c%20é.log"}, {"compressed files": 1, "control characters": 2}),
        (
            True,
            {"a.log", "a b+c%20é.log", "eu/a.log", "eu/west/b.log"},
            {"compressed files": 2, "control characters": 2, "empty part (//)": 2},
        ),
    ],
)
def test_objects_with_odd_keys_are_passed_over_and_counted(
    *, recursive: bool, files: set[str], ignored: dict[str, int]
) -> None:
    bucket = bucket_of(*NAMES, page_size=2)
    found = BucketSource(bucket, recursive=recursive).look()
    assert found.files.keys() == files
    counted = {
        why.removeprefix("objects whose keys have ").removeprefix("an "): n
        for why, n in found.ignored.items()
    }
    assert counted == ignored


def test_an_object_without_an_etag_is_not_read() -> None:
    bucket = FakeBucket()
    bucket.put("a.log", etag="")
    found = BucketSource(bucket).look()
    assert (found.files, found.ignored) == ({}, {"objects without an ETag": 1})


def test_a_few_objects_are_listed_each_time() -> None:
    bucket = bucket_of("b.log")
    source = BucketSource(bucket)
    assert source.look().files.keys() == {"b.log"}
    bucket.put("a.log")
    bucket.delete("b.log")
    assert source.look().files.keys() == {"a.log"}
    assert bucket.listed == ["", ""]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("cause", ["looks", "time", "recheck"])
def test_of_many_objects_those_behind_the_last_name_are_listed_and_all_of_them_now_and_then(
    cause: str, *, recursive: bool
) -> None:
    many = [f"{number:05}.log" for number in range(FEW + 1)]
    bucket, clock = bucket_of(*many, "zz/a.log"), Clock()
    source = BucketSource(bucket, recursive=recursive, clock=clock)
    files = len(source.look().files)
    assert bucket.listed[0] == ""
    bucket.put("00000-before.log")
    bucket.put("zzz-behind.log")
    bucket.delete(many[0])
    bucket.listed.clear()
    found = source.look()
    assert len(found.files) == files + 1
    assert "zzz-behind.log" in found.files
    assert len(bucket.listed) == 1
    assert bucket.listed[0].startswith("zz/")
    if cause == "looks":
        for _ in range(FULL_LOOKS):
            source.look()
    elif cause == "time":
        clock.now += FULL_S
    else:
        source.recheck(many[0])
    found = source.look()
    assert "00000-before.log" in found.files
    assert many[0] not in found.files


def test_a_store_that_lists_the_same_page_again_is_named() -> None:
    class Repeating(FakeBucket):
        def page(self, after: str, *, recursive: bool) -> ObjectPage:
            return super().page(after[:0], recursive=recursive)

    bucket = Repeating(page_size=1)
    bucket.put("a")
    bucket.put("b")
    with pytest.raises(EndpointUnavailable, match="lists the same objects again and again"):
        BucketSource(bucket).look()


def test_a_bucket_that_is_not_there_is_named_and_found_later() -> None:
    bucket = bucket_of("a.log")
    source = BucketSource(bucket)
    bucket.fails = MISSING
    with pytest.raises(EndpointUnavailable, match="s3a://bucket/in: the bucket is not there: create it"):
        source.look()
    with pytest.raises(EndpointUnavailable, match="the bucket is not there"):
        StoredObject(bucket, bucket_of("a.log").newest("a.log")).read(0, 1)
    bucket.fails = None
    assert source.look().files.keys() == {"a.log"}


def test_an_object_is_read_as_it_was_when_it_was_opened() -> None:
    bucket = bucket_of("a.log")
    source = BucketSource(bucket)
    version = source.look().files["a.log"].version
    file = source.open("a.log", version)
    assert (file.size(), file.identity()) == (5, source.look().files["a.log"].identity)
    bucket.put("a.log", b"line\nmore\n")
    with pytest.raises(FileNotFoundError, match="overwritten"):
        file.read(0, 5)
    assert source.open("a.log").read(0, 99) == b"line\nmore\n"
    bucket.delete("a.log")
    with pytest.raises(FileNotFoundError):
        source.open("a.log").read(0, 5)


def test_an_object_that_alone_can_not_be_read_does_not_stop_the_others() -> None:
    bucket = bucket_of("a.log", "b.log")
    bucket.unreadable.add("a.log")
    source = BucketSource(bucket)
    with pytest.raises(PermissionError, match="access denied"):
        source.open("a.log").read(0, 5)
    assert source.open("b.log").read(0, 5) == b"line\n"
    bucket.fails = DENIED
    with pytest.raises(EndpointUnavailable, match="access denied"):
        StoredObject(bucket, bucket_of("a.log").newest("a.log")).read(0, 5)


def test_ranges_are_those_of_the_object_and_what_fingerprints_need_is_requested_once() -> None:
    bucket, content = FakeBucket(), os.urandom(300_000)
    bucket.put("a", content)
    file = StoredObject(bucket, bucket.newest("a"))
    assert file.read(0, 200_000) == content[:200_000]
    assert file.read(0, 1_024) == content[:1_024]
    assert file.read(198_000, 2_000) == content[198_000:200_000]
    assert bucket.ranges == [(0, 200_000)]
    assert file.read(299_990, 99) == content[299_990:]
    assert file.read(250_000, 1_024) == content[250_000:251_024]
    assert bucket.ranges[1:] == [(300_000 - (64 << 10), 64 << 10)]
    assert (file.read(300_000, 1), file.read(400_000, 1)) == (b"", b"")
    stream = file.stream()
    stream.seek(-3, io.SEEK_END)
    assert stream.read() == content[-3:]


def test_a_small_object_is_read_with_one_request() -> None:
    bucket = bucket_of("a.log")
    source = BucketSource(bucket)
    reader = LineReader(source.open("a.log", source.look().files["a.log"].version), "text")
    assert reader.fingerprint(0) == NO_FINGERPRINT
    assert reader.fingerprint(reader.read(0, LONGEST).position) is not None
    assert len(bucket.ranges) == 1


@pytest.mark.parametrize(
    ("content", "form", "records"),
    [
        (b"", "text", []),
        (b"one\ntwo", "text", [b"one", b"two"]),
        (b"one\ntwo\r", "text", [b"one", b"two"]),
        (b"one\ntwo\n", "text", [b"one", b"two"]),
        (b"one\n\n", "text", [b"one", b""]),
        (b'{"a": 1}', "json", [b'{"a": 1}']),
        (b'{"a": 1}\n  ', "json", [b'{"a": 1}']),
    ],
)
def test_the_end_of_an_object_ends_its_last_line(content: bytes, form: str, records: list[bytes]) -> None:
    bucket = FakeBucket()
    bucket.put("a", content)
    reader = LineReader(StoredObject(bucket, bucket.newest("a")), form)  # type: ignore[arg-type]
    found = reader.read(0, LONGEST)
    assert [one.value for one in unpacked(found)] == records
    assert (found.position, found.more) == (len(content), False)


@pytest.mark.parametrize(
    ("before", "after", "records"),
    [
        (b"one\ntwo", b"one\ntwo\nthree", [b"three"]),
        (b"one\ntwo\r", b"one\ntwo\r\nthree\n", [b"three"]),
        (b"one\ntwo", b"one\ntwo more\n", None),
        (b"one\ntwo", b"one\ntwo\rmore\n", None),
    ],
)
def test_an_overwritten_object_is_read_on_where_it_begins_with_what_was_read(
    before: bytes, after: bytes, records: list[bytes] | None
) -> None:
    """None: it is another file. A record of which more was written is never parted in two.

    `WrittenObjects` tries all others, without a carriage return in the middle.
    """
    bucket = FakeBucket()
    source = BucketSource(bucket)
    bucket.put("a", before)
    known = read_to_its_end(source, bucket, "a")
    bucket.put("a", after)
    found = source.look().files
    assert source.holds(found, "a", known) == (records is not None)
    if records is not None:
        assert read_lines_of(bucket, "a", known.position) == records


def read_to_its_end(source: BucketSource, bucket: FakeBucket, name: str, position: int = 0) -> KnownFile:
    """What the ledger has of an object that was read."""
    file = source.open(name)
    reader = LineReader(file, "text")
    position = reader.read(position, LONGEST).position
    mark = reader.fingerprint(position)
    assert mark is not None
    return KnownFile(name, position, mark, file.identity())


def test_an_object_that_is_as_it_was_read_is_not_read_again() -> None:
    bucket = bucket_of("a")
    source = BucketSource(bucket)
    known = read_to_its_end(source, bucket, "a")
    bucket.ranges.clear()
    again = BucketSource(bucket)  # another driver
    assert again.holds(again.look().files, "a", known)
    assert bucket.ranges == []
    bucket.put("a")  # the same bytes with another ETag are compared once
    files = again.look().files
    assert again.holds(files, "a", known)
    requests = len(bucket.ranges)
    assert requests > 0
    assert again.holds(files, "a", known)
    assert len(bucket.ranges) == requests


@pytest.mark.parametrize("in_rows", [False, True])
def test_an_object_that_is_overwritten_behind_a_look_is_judged_at_the_next_one(*, in_rows: bool) -> None:
    """Also where the next look would list only what is behind the last name."""
    bucket = bucket_of(*(f"{number:05}.log" for number in range(FEW + 1)))
    source = BucketSource(bucket)
    known = read_to_its_end(source, bucket, "00000.log")
    if in_rows:
        source = BucketSource(bucket, in_rows=True)
    bucket.put("00000.log", b"line\nand more of it\n")
    files = source.listing().files
    bucket.put("00000.log", b"other\n")
    if in_rows:
        assert source.footers is not None
        assert "00000.log" not in source.footers.look(source.listing()).files
    else:
        assert source.holds(files, "00000.log", known)
    assert source.listing().files["00000.log"].size == 6
    assert bucket.listed[-2:] == ["", "00999.log"]


class WrittenObjects(RuleBasedStateMachine):
    """Objects are put, grow, are exchanged and deleted; all that is there is read now and then.

    The model has of each name the content now, and the content that was read. Its lines must have become
    records, each once and whole.
    """

    names = st.sampled_from(["a", "b", "c/d"])
    lines = st.lists(st.sampled_from([b"1", b"22", b""]), min_size=1, max_size=3)

    def __init__(self) -> None:
        super().__init__()
        self.bucket = FakeBucket(page_size=2)
        self.source = BucketSource(self.bucket, recursive=True)
        self.now: dict[str, bytes] = {}
        self.read: dict[str, bytes] = {}
        self.known: dict[str, KnownFile] = {}
        self.records: dict[str, list[bytes]] = {}

    @rule(name=names, lines=lines)
    def put(self, name: str, lines: list[bytes]) -> None:
        self._put(name, b"\n".join(lines))

    @rule(name=names, lines=lines, ending=st.sampled_from([b"\n", b"\r\n", b""]))
    def grow(self, name: str, lines: list[bytes], ending: bytes) -> None:
        self._put(name, self.now.get(name, b"") + ending + b"\n".join(lines))

    def _put(self, name: str, content: bytes) -> None:
        self.bucket.put(name, content)
        self.now[name] = content

    @rule(name=names)
    def delete(self, name: str) -> None:
        if self.now.pop(name, None) is not None:
            self.bucket.delete(name)

    @rule()
    def read_all(self) -> None:
        """Reads what may be read, as a task does: new objects, and those that hold what was read."""
        found = self._reconciled()
        lost = {one.name for one in (*found.replaced, *found.vanished)}
        for name in [*found.new, *(name for name in self.known if name not in lost)]:
            before = self.known.get(name, KnownFile(name, 0, NO_FINGERPRINT, -1))
            new = read_lines_of(self.bucket, name, before.position)
            self.records.setdefault(name, []).extend(new)
            self.known[name] = read_to_its_end(self.source, self.bucket, name, before.position)
            self.read[name] = self.now[name]
            assert self.known[name].position == len(self.now[name])

    def _reconciled(self):
        files = self.source.look().files
        assert {name: state.size for name, state in files.items()} == {
            name: len(content) for name, content in self.now.items()
        }
        return reconcile(files, self.known, lambda name, one: self.source.holds(files, name, one))

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        for name, content in self.read.items():
            lines = content.replace(b"\r\n", b"\n").split(b"\n")
            assert self.records[name] == (lines if lines[-1] else lines[:-1])
        found = self._reconciled()
        assert found.moved == []
        assert found.new == sorted(self.now.keys() - self.known.keys())
        assert [one.name for one in found.vanished] == sorted(self.known.keys() - self.now.keys())
        other = [name for name in self.known if name in self.now and not self._goes_on(name)]
        assert [one.name for one in found.replaced] == sorted(other)

    def _goes_on(self, name: str) -> bool:
        """Whether the object begins with the lines that were read, whole."""
        read, now = self.read[name], self.now[name]
        if not now.startswith(read):
            return False
        rest = now[len(read) :]
        return not read or read.endswith(b"\n") or not rest or rest.startswith((b"\n", b"\r\n"))


TestWrittenObjects = WrittenObjects.TestCase
TestWrittenObjects.settings = settings(max_examples=100, stateful_step_count=12, deadline=None)


@pytest.fixture
def rows() -> FakeBucket:
    bucket, text = FakeBucket(), io.BytesIO()
    pq.write_table(pa.table({"id": list(range(20_000)), "x": [f"{one}" * 9 for one in range(20_000)]}), text)
    bucket.put("a.parquet", text.getvalue())
    bucket.put("part", b"PAR1")
    return bucket


def test_rows_of_an_object_are_read_from_any_row_on(rows: FakeBucket) -> None:
    source = BucketSource(rows, in_rows=True)
    found = source.look()
    assert {name: state.size for name, state in found.files.items()} == {"a.parquet": 20_000, "part": 0}
    assert [name for name, one in found.problems.items() if one.state is PartitionState.CAUGHT_UP] == ["part"]
    asked = len(rows.ranges)
    source.look()
    assert len(rows.ranges) == asked  # footers are read once
    file = source.open("a.parquet", found.files["a.parquet"].version)
    reader = RowReader(file)
    values = [one.value for one in unpacked(read_all(reader, 19_998))]
    assert values == [b'{"id":%d,"x":"%s"}' % (one, b"%d" % one * 9) for one in (19_998, 19_999)]
    mark = reader.fingerprint(20_000)
    assert mark is not None
    known = KnownFile("a.parquet", 20_000, mark, file.identity())
    text = file.read(0, file.size())
    rows.put("a.parquet", text)
    assert source.holds(source.look().files, "a.parquet", known)
    pq.write_table(pa.table({"id": [1]}), other := io.BytesIO())
    rows.put("a.parquet", other.getvalue())
    assert not source.holds(source.look().files, "a.parquet", known)


@pytest.mark.parametrize("fails", ["overwritten", "unavailable"])
def test_an_object_that_changes_while_its_rows_are_read_is_no_corrupt_file(
    rows: FakeBucket, fails: str
) -> None:
    source = BucketSource(rows, in_rows=True)
    reader = RowReader(source.open("a.parquet"))
    assert reader.problem() is None
    if fails == "overwritten":
        rows.put("a.parquet", b"other")
    else:
        rows.fails = MISSING
    expected = FileNotFoundError if fails == "overwritten" else EndpointUnavailable
    with pytest.raises(expected):
        reader.read(0, LONGEST * 1_000)
