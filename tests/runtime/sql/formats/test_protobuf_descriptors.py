"""What a job gets of a descriptor set: the message, and what its fields need."""

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from runtime.sql.formats.protobuf_descriptors import needed_descriptors
from runtime.sql.formats.protobuf_schema import ProtobufSchema, ddl_of
from tests.protobuf import HERE, INT64, MESSAGE, declared, number, sized

ENUM = 14


def message(name: str, *content: bytes) -> bytes:
    return sized(1, name) + b"".join(content)


def file(package: str, *content: bytes) -> bytes:
    return sized(
        1, sized(1, f"{package}.proto") + sized(2, package) + b"".join(content) + sized(12, "proto3")
    )


def declared_fields(data: bytes, name: str) -> list[tuple[object, ...]]:
    root = ProtobufSchema(f"{name} {base64.b64encode(data).decode()}").root
    return [(field.name, field.number, field.type, field.has_presence) for field in root.fields]


SHOP = file(
    "shop",
    sized(
        4,
        message(
            "Order",
            declared(1, "item", MESSAGE, ".shop.Item.Kind"),
            declared(2, "state", ENUM, ".common.State"),
            sized(3, message("Line", declared(1, "money", MESSAGE, ".common.Money"))),
        ),
    ),
    sized(4, message("Item", sized(3, message("Kind", declared(1, "next", MESSAGE, ".shop.Next"))))),
    sized(4, message("Next", declared(1, "order", MESSAGE, ".shop.Order"))),
    sized(4, message("Unused", declared(1, "a", INT64))),
    sized(5, sized(1, "UnusedEnum") + sized(2, sized(1, "NONE") + number(2, 0))),
    sized(6, sized(1, "Service")),
    sized(9, sized(1, sized(3, b"a comment" * 1_000))),
)
COMMON = file(
    "common",
    sized(5, sized(1, "State") + sized(2, sized(1, "OPEN"))),
    sized(4, message("Money", declared(1, "cents", INT64))),
    sized(4, message("Unused", declared(1, "a", INT64))),
)
OTHER = file("other", sized(4, message("Order", declared(1, "a", INT64))))


def test_only_what_the_message_needs_is_kept() -> None:
    """Types of its fields, of messages that are declared in it, and of those that declare a type."""
    found = needed_descriptors(OTHER + COMMON + SHOP, "shop.Order")
    files = FileDescriptorSet.FromString(found).file
    assert [(file.package, [message.name for message in file.message_type]) for file in files] == [
        ("common", ["Money"]),
        ("shop", ["Order", "Item", "Next"]),
    ]
    assert [[enum.name for enum in file.enum_type] for file in files] == [["State"], []]
    assert declared_fields(found, "shop.Order") == declared_fields(OTHER + COMMON + SHOP, "shop.Order")
    assert len(found) < 500


def test_it_is_the_same_whatever_else_is_in_the_set() -> None:
    assert needed_descriptors(OTHER + COMMON + SHOP, "common.Money") == needed_descriptors(
        COMMON, "common.Money"
    )
    assert needed_descriptors(COMMON, ".common.Money") == needed_descriptors(COMMON, "common.Money")


@pytest.mark.parametrize(
    ("name", "message"),
    [("customer.desc", "shop.Customer"), ("order.desc", "shop.Order"), ("order.desc", "shop.Tree")],
)
def test_the_fields_of_the_files_of_protoc_stay(name: str, message: str) -> None:
    data = (HERE / name).read_bytes()
    kept = needed_descriptors(data, message)
    assert declared_fields(kept, message) == declared_fields(data, message)
    assert len(kept) < len(data)
    if message != "shop.Tree":  # which contains itself
        texts = [f"{message} {base64.b64encode(one).decode()}" for one in (kept, data)]
        assert ddl_of(texts[0]) == ddl_of(texts[1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no descriptors",
        SHOP,  # without the message
        SHOP[:-1],
        sized(2, b"x"),
        sized(1, sized(4, sized(1, b"\xff"))),
        file("a", sized(4, message("B", sized(3, b"\x0a")))),
    ],
)
def test_what_is_no_descriptor_set_with_the_message_stays_as_it_is(data: bytes) -> None:
    assert needed_descriptors(data, "a.B") == data


def test_a_message_that_declares_very_many_within_one_another_stays_as_it_is() -> None:
    inner = message("N", declared(1, "a", INT64))
    for _ in range(3_000):
        inner = message("N", sized(3, inner))
    data = file("a", sized(4, inner))
    assert needed_descriptors(data, "a.N") == data
