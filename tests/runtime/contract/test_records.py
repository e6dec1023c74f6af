"""Records of the internal topics: what is written is read, and what is not understood is no guess."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records import control, group_records, heartbeat, job_status, ledger, provenance
from runtime.contract.records.advance import Advance, advance, seal
from runtime.contract.records.control import (
    AcceptLoss,
    Assign,
    Assignment,
    Reconfigure,
    StopJobCommand,
    StopSlot,
)
from runtime.contract.records.group_records import (
    Checkpoint,
    CheckpointState,
    ConsumerTimes,
    GroupPartition,
    OffsetTimestamp,
    decode_checkpoint_key,
    decode_times_key,
    encode_checkpoint_key,
    encode_times_key,
)
from runtime.contract.records.heartbeat import Heartbeat
from runtime.contract.records.job_status import (
    JobStatus,
    PartitionState,
    PartitionStatus,
    SlotHeartbeat,
    SlotReport,
    SourceEnds,
    StatusKey,
)
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    ProgressKey,
    Replayed,
    ReplayedKey,
    SegmentKey,
)
from runtime.contract.records.offset_map import Run
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic, FlowProducer, Origin
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest
from runtime.contract.spec.jobspec import FlowSpec, JobExit, JobSpec, Route
from runtime.contract.spec.rename import Match, Rename, Table, Template
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import TransformSpec
from tests.fakes.progress import progress

Read = Callable[[Any], object]

OF = PartitionKey("dc1-to-dc2", "orders", 3)
FLOW = FlowSpec(
    name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=("orders",)), rpo_ms=5
)
SPEC = JobSpec(
    job="j",
    topology="t",
    destination="dc2",
    clusters={
        "dc1": ClusterSpec(bootstrap="a:1", client={"sasl.password": {"env": "DC1_PASSWORD"}}),
        "dc2": ClusterSpec(bootstrap="b:1", id="pinned"),
    },
    flows=[FLOW],
)
BORN = Origin("4L6g3nShT-eMCtK--X86sw", "orders", 3, 1 << 40, 1_700_000_000_123)
HOPPED = Origin("dc2-id", "orders", 0, 7, 1_700_000_000_999)
TIMES = ConsumerTimes((OffsetTimestamp(30, 300), OffsetTimestamp(10, 100), OffsetTimestamp(20, 250)), 5)
WROTE = Checkpoint(10, 8, 5, CheckpointState.REFUSED, "dc1.orders", True, "connected", 7, 9, 4, 6)
COPIED, _ = advance(progress(), Advance(5, 2, (Run(0, 0, 5),), 1, 5, 500, 1, 99), 1, 7)
SAME_NAME, PREFIXED = Template(text="{topic}"), Template(text="{source}.{topic}")


@pytest.mark.parametrize(
    ("encode", "decode", "value"),
    [
        (control.encode, control.decode_command, StopJobCommand("1")),
        (control.encode, control.decode_command, Reconfigure("2", SPEC)),
        (control.encode, control.decode_command, AcceptLoss("3", "f1", [("orders", 7)])),
        (control.encode, control.decode_slot_message, Assign("d", 1, Assignment(1))),
        (control.encode, control.decode_slot_message, StopSlot("d", 1)),
        (job_status.encode, job_status.decode_job, JobStatus("j", "t", "d", "running", 1, 1)),
        (job_status.encode, job_status.decode_slot, SlotReport(0, 1, 1, "d", 1)),
        (job_status.encode, job_status.decode_spec, SPEC),
        (job_status.encode, job_status.decode_ends, SourceEnds(1, {"orders": {0: 1}})),
        (job_status.encode_key, job_status.decode_key, StatusKey("job", "j")),
        (job_status.encode_key, job_status.decode_key, StatusKey("spec", "j")),
        (job_status.encode_key, job_status.decode_key, StatusKey("slot", "j", 3)),
        (job_status.encode_key, job_status.decode_key, StatusKey("slot_heartbeat", "j", 3)),
        (job_status.encode, job_status.decode_slot_heartbeat, SlotHeartbeat("d", 2)),
        (heartbeat.encode, heartbeat.decode, Heartbeat("f", "j", "id", 7)),
        (ledger.encode_value, ledger.decode_progress, COPIED),
        (ledger.encode_value, ledger.decode_segment, seal(COPIED)[1]),
        (ledger.encode_value, ledger.decode_orphaned, Orphaned(50, b"s" * 16, 9, "failback")),
        (ledger.encode_value, ledger.decode_replayed, Replayed(50, b"s" * 16, "orders", 8, 9)),
        (
            ledger.encode_value,
            ledger.decode_generation,
            Generation(4, "dc2", "active", "driver", ["a", "b"], "c1", "c2", 9),
        ),
        (group_records.encode_times, group_records.decode_times, TIMES),
        (group_records.encode_checkpoint, group_records.decode_checkpoint, WROTE),
        (provenance.encode, provenance.decode, BORN),
        (provenance.encode_producer_key, provenance.decode_producer_key, 4_711),
        (provenance.encode_producer, provenance.decode_producer, FlowProducer("f", "dc1", "id", PREFIXED)),
        (
            provenance.encode_producer,
            provenance.decode_producer,
            FlowProducer("f", "dc1", "id", SAME_NAME, undoes="dc1", only="orders"),
        ),
        (jobspec.encode, jobspec.decode, SPEC),
        (
            jobspec.encode,
            jobspec.decode,
            replace(
                SPEC,
                routes=[Route(name="r", source="dc1", destination="dc2", topics=FLOW.topics)],
                declared={"x": ["retention.ms"]},
            ),
        ),
        *(
            (jobspec.encode, jobspec.decode, replace(SPEC, flows=[replace(FLOW, start=start)]))
            for start in (
                Earliest(),
                Latest(),
                AtTimestamp(timestamp_ms=1_700_000_000_000),
                AtOffsets(offsets={"orders": {0: 42}}),
            )
        ),
    ],
)
def test_what_is_written_is_read(encode: Read, decode: Read, value: object | Rename) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    ("module", "key", "text"),
    [
        (ledger, ProgressKey(OF), b'["progress","dc1-to-dc2","orders",3]'),
        (ledger, GenerationKey("dc1-to-dc2"), b'["generation","dc1-to-dc2"]'),
        (ledger, SegmentKey(OF, 0, 7), b'["segment","dc1-to-dc2","orders",3,0,7]'),
        (ledger, OrphanedKey(OF, 42), b'["orphaned","dc1-to-dc2","orders",3,42]'),
        (ledger, ReplayedKey(OF, 42), b'["replayed","dc1-to-dc2","orders",3,42]'),
    ],
)
def test_keys_are_json_and_never_change(module: Any, key: Any, text: bytes) -> None:
    assert module.encode_key(key) == text
    assert module.decode_key(text) == key


@pytest.mark.parametrize(
    ("encode", "decode", "text"),
    [
        (encode_times_key, decode_times_key, b'["timestamp","f","billing","orders",3]'),
        (encode_checkpoint_key, decode_checkpoint_key, b'["checkpoint","f","billing","orders",3]'),
    ],
)
def test_keys_of_groups_are_json_and_never_change(
    encode: Callable[..., bytes], decode: Callable[..., object], text: bytes
) -> None:
    key = "f", GroupPartition("billing", "orders", 3)
    assert encode(*key) == text
    assert decode(text) == key


def _fields(value: object) -> list[Any]:
    fields: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    return fields


def test_fields_of_another_release_are_ignored_or_have_defaults() -> None:
    newer = b"\x01" + msgspec.msgpack.encode([*_fields(COPIED), "a field of a later version"])
    assert ledger.decode_progress(newer) == COPIED
    older = ledger.decode_progress(b"\x01" + msgspec.msgpack.encode(_fields(progress())[:-1]))
    moved, _ = advance(older, Advance(5, 2, (Run(0, 0, 5),), records=5, bytes=500, tombstones=2), 1, 7)
    moved, _ = advance(moved, Advance(7, 2, (Run(5, 5, 2),), records=2, bytes=50, tombstones=1), 1, 8)
    assert (moved.records, moved.bytes, moved.tombstones) == (7, 550, 3)
    old = b"\x01" + msgspec.msgpack.encode([10, 8, 5, "translated", "orders"])
    assert group_records.decode_checkpoint(old) == Checkpoint(10, 8, 5, CheckpointState.TRANSLATED, "orders")
    assert provenance.decode(b"\x02" + provenance.encode(BORN)[1:] + b"more") == BORN


def test_a_transform_of_an_older_release_skips_filtered_records() -> None:
    """And the default is not written, so that an older release reads the spec."""
    text = jobspec.encode(replace(SPEC, flows=[replace(FLOW, transform=TransformSpec(where="true"))]))
    assert b"on_filtered" not in text
    (read,) = jobspec.decode(text).flows
    assert read.transform is not None
    assert read.transform.on_filtered != "tombstone"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "not a job spec"),
        (b'{"job": 1}', "job"),
        (jobspec.encode(SPEC).replace(b'"job"', b'"jobb"', 1), "jobb"),
        (jobspec.encode(replace(SPEC, version=2)), "version 2"),
        (jobspec.encode(replace(SPEC, clusters={})), "cluster dc1 is not in clusters"),
        (jobspec.encode(replace(SPEC, clusters={}, flows=[])), "destination dc2 is not in clusters"),
        (jobspec.encode(replace(SPEC, destination="dc1")), "goes to dc2"),
    ],
)
def test_a_bad_spec_says_where_it_goes_wrong(text: bytes, why: str) -> None:
    with pytest.raises(jobspec.BadJobSpec, match=why):
        jobspec.decode(text)


@pytest.mark.parametrize("changes", [{"version": 2}, {"clusters": {"dc2": ClusterSpec(bootstrap="b:1")}}])
def test_a_job_takes_no_spec_that_no_job_could_start_with(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableValue, match=r"version 2|dc1 is not in clusters"):
        control.decode_command(control.encode(Reconfigure("2", replace(SPEC, **changes))))


def test_a_flow_has_one_partition_of_the_ledger_and_one_topic_of_heartbeats() -> None:
    flows = ("dc1-to-dc2", "dc2-to-dc1", "a")
    assert [ledger.partition_of(flow, 8) for flow in flows] == [2, 3, 3]
    assert len({heartbeat.topic_there(flow) for flow in flows}) == 3
    assert group_records.partition_of(encode_times_key("f", GroupPartition("g", "t", 3)), 8) < 8


def test_only_a_failed_job_is_started_again() -> None:
    assert [end for end in JobExit if not end.final] == [JobExit.FAILED]


@pytest.mark.parametrize(
    ("position", "source_end", "lag"), [(-1, 5, None), (0, -1, None), (0, 0, 0), (0, 5, 5), (7, 5, 0)]
)
def test_a_lag_is_known_once_position_and_end_are(position: int, source_end: int, lag: int | None) -> None:
    status = PartitionStatus("f", "t", 0, PartitionState.COPYING, 0, position=position, source_end=source_end)
    assert status.lag_records == lag


def test_a_checkpoint_knows_the_offsets_that_this_product_wrote() -> None:
    assert WROTE.ours == {7, 6}
    assert Checkpoint(1, 1, 1, CheckpointState.AHEAD, "t").ours == frozenset()


# The times of a group's commits


@pytest.mark.parametrize(("offset", "timestamp"), [(9, None), (10, 100), (19, 100), (25, 250), (99, 300)])
def test_a_group_goes_by_the_nearest_commit_that_is_not_later(offset: int, timestamp: int | None) -> None:
    assert TIMES.time_of(offset) == timestamp


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 5))
def test_the_newest_commits_are_kept_each_once(commits: list[tuple[int, int]], most: int) -> None:
    times = ConsumerTimes((), 0)
    for offset, timestamp in commits:
        times = times.later(OffsetTimestamp(offset, timestamp), most, 7)
        assert times.has(offset)
        assert times.time_of(offset) == timestamp
    offsets = [moment.offset for moment in times.moments]
    assert len(offsets) == len(set(offsets)) <= most


# The header of provenance, and whose a producer id is (R5)

names, int64s = st.text(max_size=60), st.integers(-(2**63), 2**63 - 1)


@given(st.builds(Origin, names, names, st.integers(0, 2**31 - 1), int64s, int64s))
def test_every_origin_is_read_as_it_was_written(origin: Origin) -> None:
    assert provenance.decode(provenance.encode(origin)) == origin


@given(st.binary(max_size=80))
def test_any_bytes_are_read_without_harm(value: bytes) -> None:
    origin = provenance.decode(value)
    assert origin is None or provenance.encode(origin)[1:] == value[1 : len(provenance.encode(origin))]


def test_all_of_the_header_but_the_offset_is_the_same_for_a_batch() -> None:
    constant = partial(provenance.constant_part, ClusterPartition(BORN.cluster, BORN.topic, BORN.partition))
    assert provenance.encode(BORN) == constant(BORN.copied_at) + provenance.offset_part(BORN.offset)
    assert len(provenance.encode(BORN)) == 1 + 1 + 22 + 1 + 6 + 4 + 8 + 8


@pytest.mark.parametrize(
    ("headers", "hops"),
    [
        (None, ()),
        ([], ()),
        ([("other", provenance.encode(BORN))], ()),
        (
            [
                ("trace", b"1"),
                *((provenance.HEADER, provenance.encode(hop)) for hop in (BORN, HOPPED)),
                ("x", None),
            ],
            (BORN, HOPPED),
        ),
        *(
            ([(provenance.HEADER, foreign)], ())
            for foreign in (
                None,
                b"",
                b"\x01",
                b"\x01\x05abc",
                b"true",
                b'{"from": "far away"}',
                b"\x00" * 99,
            )
        ),
    ],
)
def test_the_hops_of_a_record_are_in_order_and_foreign_values_are_none(
    headers: list[tuple[str, bytes | None]] | None, hops: tuple[Origin, ...]
) -> None:
    assert provenance.origins(headers) == hops


def test_a_name_too_long_for_the_header_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 255 bytes"):
        provenance.encode(BORN._replace(cluster="ü" * 200))


@pytest.mark.parametrize(
    ("rule", "more", "written", "home"),
    [
        (SAME_NAME, {}, "orders", "orders"),
        (PREFIXED, {}, "dc1.orders", "orders"),
        (PREFIXED, {}, "orders", None),
        (Match(match="a-(.*)", to="b-\\1"), {}, "b-x", "a-x"),
        (PREFIXED, {"undoes": "dc1"}, "orders", "dc1.orders"),  # a failback undoes the rule of its flow
        (Table(names={"orders": "dc1.orders"}), {"only": "dc1.orders"}, "dc1.orders", "orders"),
        (Table(names={"orders": "dc1.orders"}), {"only": "dc1.orders"}, "aside", None),
    ],
)
def test_a_written_topic_leads_back_to_the_topic_that_was_read(
    rule: Rename, more: dict[str, str], written: str, home: str | None
) -> None:
    producer = FlowProducer("f", "dc1", "id-1", rule, **more)
    assert producer.home(written) == (home and ClusterTopic("id-1", home))
    assert BORN.home == ClusterTopic(BORN.cluster, "orders")
