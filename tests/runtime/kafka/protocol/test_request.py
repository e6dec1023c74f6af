"""The primitive types, and answers that are decoded once for the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.protocol.configs import TOPIC, DescribeConfigsRequest
from runtime.kafka.protocol.groups import DecodedOffsets, OffsetFetchRequest
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import (
    REPEATED,
    Int16,
    Int32,
    Int64,
    Layout,
    Truncated,
    Uuid,
    read_uvarint,
    since,
    tag,
    uvarint,
)
from runtime.kafka.protocol.metadata import DecodedTopics, MetadataRequest
from tests.runtime.kafka.protocol.golden import read


class More(Struct):
    low: Int32
    high: Int32


class Row(Struct, frozen=True):
    key: str
    id: Annotated[Uuid, since(1)] = bytes(16)
    values: Annotated[tuple[Int16, ...], since(1)] = ()


class Entries(Struct, frozen=True):
    entries: Annotated[Sequence[tuple[str, str]], REPEATED]


class Everything(Struct, frozen=True):
    flag: bool
    number: Int32
    text: str | None
    _constant: ClassVar[Int16] = 7
    plain: str
    data: bytes
    numbers: tuple[Int64, ...]
    words: Sequence[str]
    rows: Sequence[Row]
    offsets: Mapping[TopicPartition, Int64]
    partitions: Sequence[TopicPartition]
    more: Annotated[More | None, tag(0)] = None


PARTITIONS = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 99))
VALUES = st.builds(
    Everything,
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=300),
    st.text(max_size=20),
    st.binary(max_size=300),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(tuple),
    st.lists(st.text(max_size=5), max_size=5),
    st.lists(
        st.builds(
            Row,
            st.text(max_size=5),
            st.binary(min_size=16, max_size=16),
            st.lists(st.integers(-9, 9), max_size=9).map(tuple),
        )
    ),
    st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=9),
    st.lists(PARTITIONS, max_size=9, unique=True).map(lambda listed: sorted(listed)),
    st.none(),
)


@given(VALUES, st.integers(0, 1), st.sampled_from([0, 2]))
def test_what_is_written_is_read(value: Everything, version: int, flexible: int) -> None:
    layout = Layout(Everything, flexible)
    encoded = b"".join(layout.encode(version, value))

    decoded, end = layout.decode(version, memoryview(encoded))

    rows = value.rows if version else [Row(row.key) for row in value.rows]
    assert decoded == replace(value, rows=rows)
    assert end == len(encoded)


@given(st.integers(0, 2**28 - 1))
def test_unsigned_varints(value: int) -> None:
    encoded = uvarint(value)

    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01"], ids=["none", "cut", "endless"])
def test_a_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(Truncated):
        Layout(str, 0).decode(0, memoryview(data))


class Leader(Struct, frozen=True):
    node: Int32


class Tagged(Struct, frozen=True):
    leader: Annotated[Leader | None, tag(7)] = None
    other: Annotated[Leader | None, tag(1001)] = None


class Nothing(Struct, frozen=True):
    pass


@given(st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=40)), max_size=5))
def test_tagged_fields_are_found_or_skipped(tags: list[tuple[int, bytes]]) -> None:
    tags = [(tag, data) for tag, data in tags if tag != 7] + [(7, bytes((0, 0, 0, 9, 0)))]
    encoded = uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)

    found, end = Layout(Tagged, 0).decode(0, memoryview(encoded))
    assert (found, end) == (Tagged(Leader(9)), len(encoded))
    assert Layout(Nothing, 0).decode(0, memoryview(encoded)) == (Nothing(), len(encoded))


def test_a_tag_shorter_than_its_structure_is_refused() -> None:
    with pytest.raises(Truncated, match="longer than it says"):
        Layout(Tagged, 0).decode(0, memoryview(b"\1\7\4\0\0\0\1\0\0"))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Sequence[tuple[str]], "an array of 134217727 items in 0 bytes"),
        (Mapping[TopicPartition, str], "an array of 134217727 items in 0 bytes"),
        (str, "134217727 bytes wanted"),
    ],
)
def test_a_length_beyond_the_bytes_is_refused_before_it_is_read(kind: Any, says: str) -> None:
    with pytest.raises(Truncated, match=says):
        Layout(kind, 0).decode(0, memoryview(uvarint(1 << 27)))


def test_items_that_repeat_are_the_same_objects() -> None:
    layout = Layout(Sequence[Entries], 0)
    topics = [[("a", "1"), ("b", "2")], [("a", "1"), ("b", "3")], [("a", "1"), ("b", "3")]]
    encoded = layout.encode(0, [Entries(entries) for entries in topics])

    first, second, third = (topic.entries for topic in layout.decode(0, memoryview(b"".join(encoded)))[0])

    assert (first, second, third) == ([("a", "1"), ("b", "2")], [("a", "1"), ("b", "3")], second)
    assert first[0] is second[0] is third[0]
    assert second[1] is third[1]


def test_equal_configs_are_the_same_objects() -> None:
    first, second = (read(DescribeConfigsRequest(TOPIC, []), "DescribeConfigsResponse", 4) for _ in range(2))

    assert first == second
    assert all(one is other for one, other in zip(first[0].entries, second[0].entries, strict=True))


# What was decoded last is used again for the same bytes, within a limit

RESPONSES = st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=12)), max_size=30)


@given(RESPONSES, st.integers(0, 30), st.booleans())
def test_the_value_is_that_of_the_bytes_and_the_limit_holds(responses, most_bytes, digests):
    kept: LastDecoded[str] = LastDecoded(most_bytes, digests=digests)
    for request, data in responses:
        expected = f"{request}{data!r}"
        assert kept.value(request, memoryview(data), partial(str, expected)) == expected
        held = [size for _, size, _ in kept._last.values()]
        assert sum(held) == kept._bytes <= most_bytes


def test_equal_bytes_are_decoded_once():
    kept: LastDecoded[str] = LastDecoded()
    decoded = []

    def decode() -> str:
        decoded.append(1)
        return "value"

    assert [kept.value("a", memoryview(b"same"), decode) for _ in range(3)] == ["value"] * 3
    assert len(decoded) == 1
    kept.value("b", memoryview(b"same"), decode)
    kept.value("a", memoryview(b"other"), decode)
    assert len(decoded) == 3


def test_topics_that_a_broker_repeats_are_the_same_objects():
    kept: LastDecoded[DecodedTopics] = LastDecoded()
    request = MetadataRequest(["orders"], decoded=kept)
    first, second = (read(request, "MetadataResponse", 12) for _ in range(2))
    assert first == second == read(MetadataRequest(["orders"]), "MetadataResponse", 12)
    assert first.topics is second.topics
    assert read(MetadataRequest(["other"], decoded=kept), "MetadataResponse", 12).topics is not first.topics


def test_offsets_that_a_coordinator_repeats_are_the_same_objects():
    kept = DecodedOffsets()
    request = OffsetFetchRequest(["g", "h"], decoded=kept)
    first, second = (read(request, "FetchManyResponse", 8) for _ in range(2))
    assert first is second
    assert first == read(OffsetFetchRequest(["g", "h"]), "FetchManyResponse", 8)
    assert read(OffsetFetchRequest(["h", "g"], decoded=kept), "FetchManyResponse", 8) is not first
