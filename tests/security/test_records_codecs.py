"""Hostile records of every internal topic are each codec's own error, in bounded time and memory."""

import contextlib
import copy
import functools
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records import (
    control,
    group_records,
    heartbeat,
    job_status,
    ledger,
    provenance,
    record_values,
)
from runtime.contract.records import offset_map as offsetmap
from runtime.contract.records.control import Assignment
from runtime.contract.records.group_records import Checkpoint, CheckpointState, ConsumerTimes, OffsetTimestamp
from runtime.contract.records.heartbeat import Heartbeat
from runtime.contract.records.job_status import JobStatus, SlotHeartbeat, SlotReport, SourceEnds
from runtime.contract.records.ledger import (
    Generation,
    Orphaned,
    Progress,
    Replayed,
    UnreadableRecord,
)
from runtime.contract.records.offset_map import Span
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec

_SECONDS, _BYTES = 5.0, 400 << 20
_DEEP = 100_000

SPEC = JobSpec(
    job="j",
    topology="t",
    destination="dc2",
    clusters={"dc1": ClusterSpec(bootstrap="a:1"), "dc2": ClusterSpec(bootstrap="b:1")},
    flows=[FlowSpec(name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=("x",)))],
)
PROGRESS = Progress(1, b"s" * 16, "x", b"d" * 16, 5, 0, 5, 0, 0, 0, 5)


@dataclass(frozen=True)
class Codec:
    """One kind of value: how it is read, a value that it reads, and the error that it answers with."""

    name: str
    read: Callable[[bytes], object]
    sample: bytes
    error: type[UnreadableValue] = UnreadableValue


def in_ledger(name: str, read: Callable[[bytes], object], value: Any) -> Codec:
    return Codec(name, read, ledger.encode_value(value), UnreadableRecord)


CHECKPOINT = group_records.encode_checkpoint(Checkpoint(1, 2, 3, CheckpointState.OURS, "x"))
TIMES = group_records.encode_times(ConsumerTimes((OffsetTimestamp(1, 2),), 3))
PRODUCER = provenance.encode_producer(FlowProducer("f", "dc1", "id", Template(text="{topic}")))
CODECS = [
    Codec("stop", control.decode_command, control.encode(control.StopJobCommand("1"))),
    Codec("edit", control.decode_command, control.encode(control.Reconfigure("1", SPEC))),
    Codec("word", control.decode_slot_message, control.encode(control.StopSlot("d", 1))),
    Codec("assignment", control.decode_slot_message, control.encode(control.Assign("d", 1, Assignment(1)))),
    Codec("job", job_status.decode_job, job_status.encode(JobStatus("j", "t", "d", "running", 1, 1))),
    Codec("slot", job_status.decode_slot, job_status.encode(SlotReport(0, 1, 1, "d", 1))),
    Codec("slot heartbeat", job_status.decode_slot_heartbeat, job_status.encode(SlotHeartbeat("d", 1))),
    Codec("ends", job_status.decode_ends, job_status.encode(SourceEnds(1, {"x": {0: 1}}))),
    Codec("spec", job_status.decode_spec, job_status.encode(SPEC)),
    Codec("heartbeat", heartbeat.decode, heartbeat.encode(Heartbeat("f", "j", "id", 7))),
    Codec("checkpoint", group_records.decode_checkpoint, CHECKPOINT),
    Codec("times", group_records.decode_times, TIMES),
    Codec("producer", provenance.decode_producer, PRODUCER, UnreadableRecord),
    in_ledger("progress", ledger.decode_progress, PROGRESS),
    in_ledger("segment", ledger.decode_segment, Span(0, 1, 0, 1, b"\0\0\1")),
    in_ledger("generation", ledger.decode_generation, Generation(1, "j", "active", "d", [], "a", "b", 1)),
    in_ledger("orphaned", ledger.decode_orphaned, Orphaned(1, b"s" * 16, 1, "why")),
    in_ledger("replayed", ledger.decode_replayed, Replayed(1, b"s" * 16, "x", 1, 1)),
]
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


@functools.cache
def bomb() -> bytes:
    """512 MB of spaces, compressed a thousandfold."""
    packer = zlib.compressobj(9)
    piece = b" " * (1 << 20)
    parts = [packer.compress(piece) for _ in range(512)]
    return b"".join((b"\x01", *parts, packer.flush()))


def unpacked(name: str) -> bytes:
    return b"\x01" + TEXTS[name]


@functools.cache
def packed(name: str) -> bytes:
    return b"\x01" + zlib.compress(TEXTS[name], 1)


TEXTS = {
    "nothing": b"",
    "an array": b"[]",
    "an object": b"{}",
    "null": b"null",
    "a number": b"1",
    "a text": b'"text"',
    "not JSON": b"junk",
    "not UTF-8": b'{"\xff": "\xff"}',
    "another tag": b'{"type": "dance"}',
    "a wrong type": b'{"type": "stop", "id": 7, "job": 7, "driver": [], "slot": "x", "number": "x"}',
    "a long number": b'{"type": "stop", "number": 1' + b"0" * 100_000 + b"}",
    "deep arrays": b"[" * _DEEP,
    "deep objects": b'{"spec":' * _DEEP,
    "deep arrays in a field not known": b'{"weather": ' + b"[" * _DEEP,
    "deep arrays in MessagePack": b"\x91" * _DEEP,
    "a huge array in MessagePack": b"\xdd\x7f\xff\xff\xff",
    "a huge text in MessagePack": b"\xdb\x7f\xff\xff\xff",
    "nil in MessagePack": b"\xc0",
    "a long command id": b'{"type": "stop", "id": "' + b"x" * 10_000 + b'"}',
    "a long name that is not known": b'{"type": "reconfigure", "' + b"\\u001b" * 100_000 + b'": 1}',
    "only spaces": b" " * (40 << 20),
}
# Built only by the tests that use them: every worker collects every test.
VALUES: dict[str, Callable[[], bytes]] = {
    **{f"{name}, as it is": functools.partial(unpacked, name) for name in TEXTS},
    **{f"{name}, packed": functools.partial(packed, name) for name in TEXTS},
    "no version": lambda: b"",
    "another version": lambda: b"\x02{}",
    "512 MB packed": bomb,
    "512 MB packed, cut off": lambda: bomb()[:-9],
    "no version, deep": lambda: b"[" * _DEEP,
}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=name, marks=[pytest.mark.slow] if "512 MB" in name else [])
        for name, value in VALUES.items()
    ],
)
def test_a_hostile_value_is_the_codecs_own_error(value: Callable[[], bytes]) -> None:
    made = value()
    for codec in CODECS:
        tracemalloc.start()
        began = time.process_time()
        try:
            with pytest.raises(codec.error) as raised:
                pytest.fail(f"{codec.name}: {codec.read(made)}")
            seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert seconds < _SECONDS, codec.name
        assert peak < _BYTES, codec.name
        assert len(str(raised.value)) < 500, codec.name
        assert str(raised.value).isprintable(), codec.name


@each_codec
def test_every_truncation_is_the_codecs_own_error(codec: Codec) -> None:
    for end in range(len(codec.sample)):
        with pytest.raises(codec.error):
            codec.read(codec.sample[:end])


def with_each_number(codec: Codec, number: int) -> Iterator[tuple[object, bytes]]:
    """The sample with one of its whole numbers replaced, and the path of that number."""
    form: Any = msgspec.msgpack
    try:
        tree = msgspec.json.decode(codec.sample[1:])
        form = msgspec.json
    except msgspec.DecodeError:
        try:
            tree, form = msgspec.json.decode(zlib.decompress(codec.sample[1:])), msgspec.json
        except zlib.error:
            tree = msgspec.msgpack.decode(codec.sample[1:])
    for path in numbers_of(tree):
        changed = copy.deepcopy(tree)
        around = functools.reduce(lambda part, key: part[key], path[:-1], changed)
        around[path[-1]] = number
        yield path, b"\x01" + form.encode(changed)


def numbers_of(tree: Any) -> Iterator[tuple[Any, ...]]:
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(part, dict | list):
            yield from ((key, *path) for path in numbers_of(part))
        elif isinstance(part, int) and not isinstance(part, bool):
            yield (key,)


@each_codec
def test_no_number_is_longer_than_those_of_kafka(codec: Codec) -> None:
    """The largest that a codec passes on can be sent to a broker, and written again."""
    for path, value in with_each_number(codec, (1 << 63) - 1):
        with contextlib.suppress(codec.error):  # smaller bounds of its own
            assert codec.read(value), path
    for path, value in with_each_number(codec, 1 << 63):
        with pytest.raises(codec.error):
            pytest.fail(f"{path}: {codec.read(value)}")


@pytest.mark.parametrize("name", ["9" * 40, "x" * 9 + "\xcf"])
def test_digits_of_a_name_are_no_number(name: str) -> None:
    status = JobStatus(name, "t", "d", "running", 1, 1)
    assert job_status.decode_job(job_status.encode(status)) == status


def test_records_with_usual_numbers_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger has very many of them: each offset and time of today is decoded as fast as msgspec does."""
    usual = replace(PROGRESS, position=1 << 40, last_timestamp=1_800_000_000_000, bytes=(1 << 63) - 1)
    status = JobStatus("j", "t", "d", "running", 1_800_000_000_000, (1 << 59) - 1)
    monkeypatch.setattr(record_values, "refuse_long_numbers", lambda _: pytest.fail("searched"))
    assert ledger.decode_progress(ledger.encode_value(usual)) == usual
    assert job_status.decode_job(job_status.encode(status)) == status


@given(value=st.binary(max_size=200), versioned=st.booleans())
@each_codec
def test_whatever_the_bytes_are_nothing_else_is_raised(codec: Codec, value: bytes, versioned: bool) -> None:
    with contextlib.suppress(codec.error):
        codec.read(b"\x01" + value if versioned else value)


KEYS: list[Callable[[bytes | None], object]] = [
    job_status.decode_key,
    group_records.decode_checkpoint_key,
    group_records.decode_times_key,
]
LEDGER_KEYS: list[Callable[[bytes | None], object]] = [ledger.decode_key, provenance.decode_producer_key]
HOSTILE_KEYS = [
    None,
    *(text for name, text in TEXTS.items() if name != "only spaces"),  # no key of Kafka is so long
    b'["job"]',
    b'["slot", "j", "1"]',
    # Of a newer release.
    b'["weather","j"]',
    b'["slot","j",3,"x"]',
    b'["job","j",1]',
    b'["standby","j","s",0]',
    b'["progress","f"]',
    b'["other","f","t",0]',
    b'["producer","x"]',
    b'["progress", "f", "t", "0"]',
    b'["progress", "f", "t", -1]',
    b'["progress", "f", "t", 2147483648]',
    b'["orphaned", "f", "t", 0, 9223372036854775808]',
    b'["producer", 9223372036854775808]',
]


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=range(len(HOSTILE_KEYS)))
def test_a_hostile_key_is_passed_over_or_the_codecs_own_error(key: bytes | None) -> None:
    assert [read(key) for read in KEYS] == [None] * len(KEYS)
    for read in LEDGER_KEYS:
        with pytest.raises(UnreadableRecord) as raised:
            read(key)
        assert len(str(raised.value)) < 500


def test_the_bound_is_exact() -> None:
    most = b" " * record_values.MAX_TEXT_BYTES
    assert record_values.decompress(zlib.compress(most, 1)) == most
    with pytest.raises(UnreadableValue, match="more than"):
        record_values.decompress(zlib.compress(most + b" ", 1))


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (b"\x80" * 1_000_000, "63 bits"),  # took time that grew with the square of its length
        (b"\x00\x00\x00", "0 records"),
        (b"\x00\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01", "63 bits"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x01" * 2, "63 bits"),
        *((cut, r"cut off|shorter|argument") for cut in (b"\x00", b"\x00\x00", b"\x00\x00\x01\x80")),
    ],
)
def test_runs_that_no_slot_writes_are_refused(runs: bytes, why: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=why):
        offsetmap.decode_runs(runs, 0, 0)
    assert time.process_time() - began < _SECONDS


def told(**changes: object) -> bytes:
    """An edit as JSON, with some values of the spec or of its flow changed, whatever their types."""
    spec = json.loads(msgspec.json.encode(SPEC))
    flow = spec["flows"][0]
    for path, value in changes.items():
        target, _, key = path.rpartition("__")
        (flow if target == "flow" else spec)[key] = value
    return b"\x01" + json.dumps({"type": "reconfigure", "id": "1", "spec": spec}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"flow__topics": {"include": ["("]}},
        {"flow__topics": {"include": ["x" * 70_000]}},
        {"flow__topics": {"include": [".*"], "exclude": ["[z-a]"]}},
        {"flow__groups": {"selection": {"include": ["*"]}}},
        {"flow__promoted": ["("]},
        {"flow__configs": {"exclude": ["("]}},
        {"flow__rename": {"type": "match", "match": "(a", "to": "b"}},
        {"flow__rename": {"type": "match", "match": "a-(.*)", "to": "same"}},
        {"flow__follow_every_ms": 0},
        {"flow__follow_every_ms": -1},
        {"flow__heartbeats_every_ms": 10**18},
        {"flow__rate_limit": -1},
        {"flow__rpo_ms": -5},
        {"flow__start": {"type": "offsets", "offsets": {"x": {"zero": 1}}}},
        {"flow__start": {"type": "offsets", "offsets": {"x": {"0": -1}}}},
        {"flow__start": {"type": "timestamp", "timestamp_ms": -1}},
        {"routes": [{"name": "r", "source": "a", "destination": "b", "topics": {"include": ["("]}}]},
        {"slots": -1},
        {"slots": 10**9},
        {"metrics": {"port": 70_000}},
        {"copy": {"lanes": 10**9}},
        {"copy": {"fetch_bytes": 1 << 40}},
        {"internal": {"timestamps": {"partitions": 0}}},
    ],
    ids=str,
)
def test_an_edit_is_held_to_all_that_a_spec_file_is(changes: dict[str, object]) -> None:
    value = told(**changes)
    with pytest.raises(UnreadableValue):
        control.decode_command(value)
    text = json.dumps(json.loads(value[1:])["spec"]).encode()
    with pytest.raises(jobspec.BadJobSpec):
        jobspec.decode(text)


def test_an_edit_that_is_right_is_read() -> None:
    assert control.decode_command(told()) == control.Reconfigure("1", SPEC)
