"""Protobuf in Confluent's wire format: a value of another message is told apart, and the frame stays."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec
from runtime.schemas.client import RegistryUnavailable
from runtime.sql.formats.encoded import Changes, UndecodableValue
from runtime.sql.formats.protobuf import ProtobufValues, message_names
from tests.fakes.registry import RegistryServer, registry_server
from tests.protobuf import HERE, number, schema, sized, varint

TEXT = """\
syntax = "proto2"; // message Comment {
package shop.common; /* message Other { } */
option (a.b) = { message { x: "}" } };
message First {
  extend Other { optional group Ext = 5 { } }
  message Inner { oneof one { string message = 1; } message Deep {} }
  optional group Result = 2 { required string text = 1 [default = "message X {"]; }
  enum E { A = 0; }
  message Last { map<string, Inner> m = 1; }
}
service S { rpc Do (First) returns (Second) { option x = 1; } }
message Second { }
"""
CUSTOMER = sized(2, "a@b") + sized(14, "photo")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as found:
        text = (HERE / "customer.proto").read_text()
        imports = [{"name": "address.proto", "subject": "address", "version": 1}]
        found.schemas[7] = {"schema": text, "schemaType": "PROTOBUF", "references": imports}
        found.schemas[8] = {"schema": f"package shop; message Order {{}} {text}", "schemaType": "PROTOBUF"}
        found.add(9, "string")
        yield found


def framed(number: int, indexes: bytes, content: bytes = CUSTOMER) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + content


def prepared(registry: RegistryServer, *records: bytes) -> ProtobufValues:
    form = FormatSpec(
        format="protobuf", schema=schema("shop.Customer"), registry=RegistrySpec(url=registry.url)
    )
    values = ProtobufValues(form, Changes.of(["value.email"], ["value.photo"]))
    asyncio.run(values.prepare(records))
    return values


@pytest.mark.parametrize(("number", "indexes"), [(7, b"\0"), (7, b"\x02\0"), (8, b"\x02\x02")])
def test_a_value_keeps_its_frame(registry: RegistryServer, number: int, indexes: bytes) -> None:
    """Its place in its schema is written in two ways where the message is the first one."""
    data = framed(number, indexes)
    values = prepared(registry, data, data)
    assert json.loads(values.json(data))["email"] == "a@b"
    assert values.edited(data, [b'"masked"']) == framed(number, indexes, sized(2, "masked"))
    assert registry.asked == [f"/schemas/ids/{number}"]  # imports are in the declared descriptors


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (framed(8, b"\0"), "it is shop.Order of schema id 8, not shop.Customer"),
        (framed(7, b"\x04\0\0"), r"it is shop.Customer.Card of schema id 7, not shop.Customer"),
        (framed(7, b"\x02\x08"), "it is no message of schema id 7, not shop.Customer"),
        (framed(7, b""), "it does not say which message of its schema it is"),  # a negative index
        (framed(7, b"\x02", b""), "it does not say which message of its schema it is"),
        (framed(7, b"\x01"), "it does not say which message of its schema it is"),
        (framed(9, b"\0"), "schema id 9 is AVRO, not Protobuf"),
        (framed(1, b"\0"), "the registry has no schema id 1"),
        (CUSTOMER, "it has no schema id of a registry"),
        (framed(7, b"\0", number(2, 1)[:-1] + varint(1 << 40)[:-1]), "no message of the schema"),
    ],
)
def test_what_is_no_value_of_the_message_is_a_bad_record(
    registry: RegistryServer, data: bytes, why: str
) -> None:
    with pytest.raises(UndecodableValue, match=why):
        prepared(registry, data).json(data)


def test_a_registry_that_does_not_answer_is_no_bad_record(registry: RegistryServer) -> None:
    registry.down = True
    with pytest.raises(RegistryUnavailable, match="HTTP status 503"):
        prepared(registry, framed(7, b"\0"))


def test_messages_are_counted_as_confluent_counts_them() -> None:
    first = "shop.common.First"
    assert message_names(TEXT) == {
        (0,): first,
        (0, 0): f"{first}.Inner",
        (0, 0, 0): f"{first}.Inner.Deep",
        (0, 1): f"{first}.Result",
        (0, 2): f"{first}.Last",
        (1,): "shop.common.Second",
    }
