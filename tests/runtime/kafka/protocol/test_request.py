"""The primitive types: what is written is read; what can't be is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.protocol.request import Reader, Truncated, Writer

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
