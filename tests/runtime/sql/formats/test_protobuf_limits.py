"""Protobuf from a stranger: neither a descriptor set nor a record takes more than its limit."""

import base64
import time
from collections.abc import Sequence

import pytest

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats import protobuf
from runtime.sql.formats.encoded import BadSchema, Changes, UndecodableValue, UneditableValue
from runtime.sql.formats.protobuf import ProtobufValues
from runtime.sql.formats.protobuf_schema import ddl_of, read_schema
from tests.protobuf import INT64, MESSAGE, declared, number, schema, sized

STRING = 9
SECONDS, NANOS = (1, "seconds", INT64, ""), (2, "nanos", 5, "")
LINEAR_S = 15.0  # what is quadratic takes a minute and more


def message(name: str, *content: bytes) -> bytes:
    return sized(4, sized(1, name) + b"".join(content))


def descriptors(root: str, *messages: bytes, package: str = "") -> str:
    """Returns the schema of a file with the syntax proto3."""
    file = sized(1, "a.proto") + sized(2, package) + b"".join(messages) + sized(12, "proto3")
    return f"{root} {base64.b64encode(sized(1, file)).decode()}"


def chain(length: int, width: int) -> str:
    """Each message has so many fields of the next one."""
    found = [
        message(f"M{at}", *(declared(one, f"f{one}", MESSAGE, f".M{at + 1}") for one in range(1, width + 1)))
        for at in range(length)
    ]
    return descriptors("M0", *found, message(f"M{length}", declared(1, "a", INT64)))


def nested(depth: int) -> str:
    inner = sized(1, "N") + declared(1, "a", INT64)
    for _ in range(depth):
        inner = sized(1, "N") + sized(3, inner)
    return descriptors("N", sized(4, inner))


def timed(*fields: tuple[int, str, int, str]) -> str:
    """Returns a message with a google.protobuf.Timestamp, which is declared with these fields."""
    stamp = descriptors(
        "X", message("Timestamp", *(declared(*one) for one in fields)), package="google.protobuf"
    )
    root = descriptors("T", message("T", declared(1, "at", MESSAGE, ".google.protobuf.Timestamp")))
    files = [base64.b64decode(one.split()[1]) for one in ([root, stamp] if fields else [root])]
    return f"T {base64.b64encode(b''.join(files)).decode()}"


def one_field(name: str, at: int = 1) -> str:
    return descriptors("T", message("T", declared(at, name, INT64)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (timed(), "lacks google.protobuf.Timestamp, the type of T.at: write it with"),
        (timed(SECONDS, NANOS, (3, "more", INT64, "")), "Timestamp has other fields than int64 seconds"),
        (timed((1, "seconds", STRING, ""), NANOS), "Timestamp has other fields than int64 seconds"),
        (chain(11, 2), "value has more than 5,000 fields"),
        (chain(22, 2), "value has more than 5,000 fields"),
        (chain(280, 1), "value has more than 50 messages within one another"),
        (nested(3_000), "is no FileDescriptorSet"),
        (
            descriptors("T", message("T", sized(9, b"x" * (1 << 20)))),
            "or the message needs more than 512 KiB of it",
        ),
        (one_field("a` INT, `b"), "T declares 'a` INT, `b', which is no name"),
        (one_field("größe"), "T declares 'größe', which is no name"),
        (one_field("a" * 256), "which is no name"),
        (one_field(""), "which is no name"),
        (one_field("a", 0), "invalid field number"),
        (one_field("a", 1 << 29), "invalid field number"),
        (one_field("a", 1 << 40), "invalid field number"),
        (descriptors("T", message("T", declared(1, "a", 3), declared(2, "a", 3))), "duplicate field name"),
        (descriptors("T", message("T", declared(1, "a", 3), declared(1, "b", 3))), "duplicate field number"),
        (descriptors("a", message("a"), message("a b")), "declares 'a b', which is no name"),
    ],
)
def test_a_schema_beyond_the_limits_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        ddl_of(text)


def test_what_is_within_the_limits_is_read() -> None:
    assert ddl_of(timed(SECONDS, NANOS)) == "`at` TIMESTAMP"
    assert ddl_of(chain(10, 2)).count("`a`: BIGINT") == 2**10
    assert ddl_of(chain(49, 1)).count("STRUCT") == 49
    assert ddl_of(one_field("_a9", (1 << 29) - 1)) == "`_a9` BIGINT"


def test_a_schema_is_read_once() -> None:
    text = schema("shop.Customer")
    assert read_schema(text) is read_schema(text)


def test_a_wrong_name_among_very_many_messages_is_refused_at_once() -> None:
    names = (f"{'Message' * 6}{at:05}{'Of' * 4}" for at in range(8_000))
    text = descriptors("Massage" * 8, *(message(one) for one in names))
    begin = time.process_time()
    with pytest.raises(BadSchema, match="has no message"):
        read_schema(text)
    parsed = time.process_time()
    with pytest.raises(BadSchema, match="has no fields"):
        ddl_of(f"{'Message' * 6}00000{'Of' * 4} {text.split()[1]}")
    assert parsed - begin < 3 * (time.process_time() - parsed) + 0.5  # as long as to read it


def values_of(text: str, paths: Sequence[str] = (), drop: Sequence[str] = ()) -> ProtobufValues:
    return ProtobufValues(FormatSpec(format="protobuf", schema=text), Changes.of(paths, drop))


WIDE = descriptors(
    "W",
    message("W", declared(1, "items", MESSAGE, ".I", label=3)),
    message("I", *(declared(at, f"a_field_{at}", INT64) for at in range(1, 101))),
)


@pytest.mark.parametrize(
    ("limit", "mib", "why"),
    [
        ("_MOST_NAMES", 2, "the names of its fields take more than 2 MiB as JSON"),
        ("_MOST_MEMORY", 1, "its messages take more than 1 MiB of memory"),
    ],
)
def test_a_small_record_that_decodes_to_very_much_is_a_bad_record(
    limit: str, mib: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf, limit, mib << 20)
    values = values_of(WIDE)
    with pytest.raises(UndecodableValue, match=why):
        values.json(sized(1, b"") * 3_000)
    assert values.json(sized(1, b"") * 100)  # the next record has the whole limit again
    if limit == "_MOST_MEMORY":
        with pytest.raises(UneditableValue, match=why):
            values_of(WIDE, drop=["value.items"]).edited(sized(1, b"") * 3_000, [])


def test_very_many_occurrences_of_a_message_are_read_and_edited_in_linear_time() -> None:
    pieces = (sized(5, sized(1, "s")) if at % 2 else number(5, at) for at in range(100_000))
    data = b"".join(pieces)
    values = values_of(schema("shop.Customer"), ["value.home.city"], ["value.email"])
    begin = time.process_time()
    assert values.json(data)
    assert values.edited(data + number(2, 7), [b'"c"']).startswith(sized(5, sized(1, "s") + sized(2, "c")))
    assert time.process_time() - begin < LINEAR_S
