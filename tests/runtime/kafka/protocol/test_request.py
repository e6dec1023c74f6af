"""The primitive types, and answers that are decoded once for the same bytes."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import MetadataRequest, TopicMetadata
from runtime.kafka.protocol.request import Reader, Truncated, Writer
from tests.runtime.kafka.protocol.golden import read

INT32 = st.integers(-(2**31), 2**31 - 1)


def reading(writer: Writer) -> Reader:
    return Reader(memoryview(writer.buffer))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints(value: int) -> None:
    writer = Writer()
    writer.uvarint(value)

    assert len(writer.buffer) == max(1, -(-value.bit_length() // 7))
    assert reading(writer).uvarint() == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01"], ids=["none", "cut", "endless"])
def test_a_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(Truncated):
        Reader(memoryview(data)).uvarint()


@given(st.none() | st.text(max_size=300), st.lists(INT32), st.booleans(), st.binary(max_size=300))
def test_what_is_written_is_read(text: str | None, numbers: list[int], flag: bool, data: bytes) -> None:
    writer = Writer()
    writer.string(text)
    writer.compact_string(text)
    writer.int32s(numbers)
    writer.boolean(flag)
    writer.compact_bytes(data)
    writer.old_bytes(data)

    reader = reading(writer)

    assert (reader.string(), reader.nullable_string()) == (text, text)
    assert (list(reader.int32s()), reader.boolean()) == (numbers, flag)
    assert (reader.compact_bytes(), reader.old_bytes()) == (data, data)
    assert reader.position == len(writer.buffer)


@given(st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=40)), max_size=5))
def test_tagged_fields_are_found_or_skipped(tags: list[tuple[int, bytes]]) -> None:
    writer = Writer()
    writer.uvarint(len(tags))
    for tag, data in tags:
        writer.uvarint(tag)
        writer.uvarint(len(data))
        writer.raw(data)
    reader, skipping = reading(writer), reading(writer)

    found = reader.tags()
    skipping.skip_tags()

    assert {tag: bytes(part.buffer) for tag, part in found.items()} == dict(tags)
    assert reader.position == skipping.position == len(writer.buffer)


def test_an_array_longer_than_its_bytes_is_refused_before_it_is_read() -> None:
    writer = Writer()
    writer.count(1 << 27)

    with pytest.raises(Truncated, match="an array of 134217728 items in 0 bytes"):
        reading(writer).count()


# What was decoded last is used again for the same bytes, within a limit

RESPONSES = st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=12)), max_size=30)


@given(RESPONSES, st.integers(0, 30))
def test_the_value_is_that_of_the_bytes_and_the_limit_holds(responses, most_bytes):
    kept: LastDecoded[str] = LastDecoded(most_bytes)
    for request, data in responses:
        expected = f"{request}{data!r}"
        assert kept.value(request, memoryview(data), partial(str, expected)) == expected
        held = [len(one) for one, _ in kept._last.values()]
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
    kept: LastDecoded[tuple[TopicMetadata, ...]] = LastDecoded()
    request = MetadataRequest(["orders"], decoded=kept)
    first, second = (read(request, "MetadataResponse", 12) for _ in range(2))
    assert first == second == read(MetadataRequest(["orders"]), "MetadataResponse", 12)
    assert first.topics is second.topics
    assert read(MetadataRequest(["other"], decoded=kept), "MetadataResponse", 12).topics is not first.topics
