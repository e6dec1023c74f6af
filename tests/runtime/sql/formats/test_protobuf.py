"""Protobuf: what Spark reads of a message, and how fields of it are changed."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.dispatch import change_problem
from runtime.sql.formats.encoded import BadSchema, Changes, UndecodableValue, UneditableValue
from runtime.sql.formats.protobuf import ProtobufValues
from runtime.sql.formats.protobuf_descriptors import needed_descriptors
from runtime.sql.formats.protobuf_schema import ddl_of
from tests.protobuf import LEVELS, customer, declared, number, schema, single, sized, varint

CUSTOMER, ORDER = schema("shop.Customer"), schema("shop.Order", "order.desc")
UNKNOWN = number(1_000, 7) + varint(99 * 8 + 3) + sized(1, "in a group") + varint(99 * 8 + 4)


def values_of(text: str, paths: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> ProtobufValues:
    return ProtobufValues(FormatSpec(format="protobuf", schema=text), Changes.of(paths, drop))


def read(data: bytes, text: str = CUSTOMER) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(values_of(text).json(data))
    return found


addresses = st.fixed_dictionaries({"street": st.text(), "city": st.text()})
customers = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "email": st.text(),
        "phone": st.none() | st.text(),
        "level": st.sampled_from([*LEVELS]),
        "home": st.none() | addresses,
        "tags": st.lists(st.text(), max_size=3),
        "scores": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "amounts": st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "pager": st.none() | st.integers(0, 2**32 - 1),
        "photo": st.binary(),
        "spent": st.integers(0, 2**64 - 1),
        "flag": st.booleans(),
    }
)


@given(customers)
def test_spark_reads_every_field_as_json(value: dict[str, Any]) -> None:
    found = read(customer(value) + UNKNOWN)
    photo = base64.b64encode(value["photo"]).decode()
    absent: dict[str, Any] = {"cards": {}, "fax": None, "paid_by": None, "at": None, "weight": 0.0}
    assert found == {**value, "photo": photo, **absent}


@given(customers, st.none() | st.text(), st.none() | st.integers(0, 2**32 - 1), st.sampled_from([*LEVELS]))
def test_only_the_named_fields_change(
    value: dict[str, Any], text: str | None, pager: int | None, level: str
) -> None:
    paths = ("value.phone", "value.email", "value.level", "value.pager", "value.home.city")
    new = {"value.phone": text, "value.email": text, "value.level": level, "value.pager": pager}
    new["value.home.city"] = text
    values = [json.dumps(new[path]).encode() for path in sorted(paths)]
    edited = values_of(CUSTOMER, paths, ("value.photo", "value.home.street", "value.amounts")).edited(
        customer(value) + UNKNOWN, values
    )
    home = None if value["home"] is None else {"street": "", "city": text or ""}
    expected = {**value, "phone": text, "email": text or "", "level": level, "pager": pager, "home": home}
    assert edited == customer({**expected, "photo": b"", "amounts": {}}) + UNKNOWN


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_told_apart(data: bytes) -> None:
    values = values_of(CUSTOMER, ("value.email",), ("value.home.city", "value.fax"))
    try:
        values.json(data)
    except UndecodableValue:
        return
    assert values.edited(data, [b'"x"']).count(b"\x12\x01x") >= 1


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (number(1, 1) + number(1, 2), {"id": 2}),
        (sized(5, sized(1, "a")) + sized(5, sized(2, "b")), {"home": {"street": "a", "city": "b"}}),
        (sized(10, "fax") + number(11, 5), {"fax": None, "pager": 5}),
        (sized(12, sized(1, "1")) + sized(12, number(2, 0)), {"paid_by": {"number": "1", "active": False}}),
        (
            sized(12, sized(1, "1")) + number(11, 5) + sized(12, b""),
            {"paid_by": {"number": "", "active": None}},
        ),
        (number(7, 1) + sized(7, b"\x02\x04") + number(7, 6), {"scores": [-1, 1, 2, 3]}),
        (sized(9, number(1, -1)) + sized(9, sized(2, sized(1, "x"))), {"cards": {"-1": None, "0": "x"}}),
        (number(2, 5) + sized(1, "another wire type"), {"email": "", "id": 0}),
        (number(4, 9), {"level": "9"}),
        (number(15, 2**64 - 1), {"spent": 2**64 - 1}),
        (single(16, 0.5), {"weight": 0.5}),
        (single(16, float("nan")), {"weight": None}),
        (sized(13, number(1, 5) + number(2, 1_999)), {"at": "1970-01-01T00:00:05.000001Z"}),
        (sized(13, number(1, -1)) + sized(13, number(2, 5_000)), {"at": "1969-12-31T23:59:59.000005Z"}),
        (
            b"",
            {
                "id": 0,
                "email": "",
                "phone": None,
                "level": "UNKNOWN",
                "home": None,
                "tags": [],
                "flag": False,
            },
        ),
    ],
)
def test_a_message_is_read_as_parsers_of_protobuf_read_it(data: bytes, found: dict[str, Any]) -> None:
    value = read(data)
    if "cards" in found:
        value["cards"] = {key: card["number"] or None for key, card in value["cards"].items()}
    assert {name: value[name] for name in found} == found


CORRUPT = "no message of the schema: Wire format was corrupt"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00\x07\x00", "it begins as the wire format of a schema registry does: add registry"),
        (sized(2, "abc")[:-1], CORRUPT),
        (sized(5, b"\x0a\x02a") + sized(5, b"b"), CORRUPT),  # each part is a message
        (sized(9, sized(2, b"\x0a\x02a") + sized(2, b"b")), CORRUPT),
        (sized(2, b"\xff"), "no message of the schema: String field had bad UTF-8"),
        (b"\x0b" * 200, CORRUPT),
        (sized(13, number(2, -1)), "a Timestamp is out of its range"),
        (b"\x02\x00", CORRUPT),
    ],
)
def test_what_is_no_message_is_told_apart(data: bytes, why: str) -> None:
    with pytest.raises(UndecodableValue, match=why):
        values_of(CUSTOMER).json(data)


def test_proto2_has_presence_required_fields_and_closed_enums() -> None:
    assert read(number(1, 1), ORDER) == {"id": 1, "note": None, "state": None, "states": [], "sizes": []}
    data = (
        number(1, 1) + number(3, 1) + number(3, 9) + number(4, 2) + number(4, 9) + number(5, 1) + number(5, 2)
    )
    assert read(data, ORDER) == {"id": 1, "note": None, "state": "OPEN", "states": ["PAID"], "sizes": [1, 2]}
    with pytest.raises(UndecodableValue, match="the required field id is missing"):
        read(b"", ORDER)


@pytest.mark.parametrize(
    ("path", "new", "why"),
    [
        ("value.state", "'CLOSED'", "the new value of value.state does not fit its type"),
        ("value.id", "9223372036854775808", "the new value of value.id does not fit its type"),
        ("value.id", "1.5", "the new value of value.id does not fit its type"),
        ("value.id", "null", "the new value of value.id is null, which its message does not allow"),
    ],
)
def test_a_new_value_that_does_not_fit_is_refused(path: str, new: str, why: str) -> None:
    with pytest.raises(UneditableValue, match=why):
        values_of(ORDER, (path,)).edited(number(1, 1), [new.replace("'", '"').encode()])


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        (sized(10, "fax"), "5", number(11, 5)),
        (sized(10, "fax") + number(11, 4), "null", b""),  # the fax was overwritten: it does not return
        (number(11, 4) + sized(10, "fax"), "null", sized(10, "fax")),
        (sized(12, b"") + number(17, 1), "0", number(11, 0) + number(17, 1)),
        (sized(10, "fax") + sized(11, "no pager"), "null", sized(10, "fax")),  # another wire type
        (number(10, 1) + sized(11, "no pager"), "5", number(11, 5) + number(10, 1)),
    ],
)
def test_one_member_of_a_oneof_is_left(before: bytes, new: str, after: bytes) -> None:
    assert values_of(CUSTOMER, ("value.pager",)).edited(before, [new.encode()]) == after


def test_new_values_of_two_members_of_a_oneof_are_refused() -> None:
    values = values_of(CUSTOMER, ("value.fax", "value.pager"))
    with pytest.raises(UneditableValue, match="new values of several members of a oneof of value"):
        values.edited(b"", [b'"fax"', b"5"])
    assert values.edited(sized(10, "before"), [b"null", b"5"]) == number(11, 5)
    assert values.edited(number(11, 7), [b'"fax"', b"null"]) == sized(10, "fax")
    assert values.edited(number(11, 7), [b"null", b"null"]) == b""


def closed_enum() -> str:
    """A message with a oneof, of which one member is a closed enum."""
    state = sized(1, "pager") + number(3, 2) + number(4, 1) + number(5, 14) + sized(6, ".E") + number(9, 0)
    fax = sized(1, "fax") + number(3, 1) + number(4, 1) + number(5, 9) + number(9, 0)
    file = sized(4, sized(1, "M") + sized(2, fax) + sized(2, state) + sized(8, sized(1, "contact")))
    file += sized(5, sized(1, "E") + sized(2, sized(1, "OPEN") + number(2, 1)))
    return f"M {base64.b64encode(sized(1, file)).decode()}"


CLOSED = closed_enum()


def test_an_unknown_number_of_a_closed_enum_leaves_the_other_members_of_its_oneof() -> None:
    data = sized(1, "fax") + number(2, 9)
    assert read(data, CLOSED) == {"fax": "fax", "pager": None}
    assert read(sized(1, "fax") + number(2, 1), CLOSED) == {"fax": None, "pager": "OPEN"}
    assert values_of(CLOSED, (), ("value.pager",)).edited(data, []) == sized(1, "fax")
    assert values_of(CLOSED, (), ("value.pager",)).edited(sized(1, "fax") + number(2, 1), []) == b""


@pytest.mark.parametrize("text", ["1_0", " 7", "٣", "+7", "07"])
def test_the_number_of_an_enum_is_written_as_it_is_read(text: str) -> None:
    values = values_of(CUSTOMER, ("value.level",))
    assert values.edited(b"", [b'"-7"']) == number(4, -7)
    with pytest.raises(UneditableValue, match=r"the new value of value\.level does not fit its type"):
        values.edited(b"", [json.dumps(text).encode()])


def test_several_occurrences_of_a_field_become_one() -> None:
    """No occurrence of a hidden value travels, not in another wire type either; other unknown fields do."""
    data = (
        sized(2, "one") + sized(5, sized(2, "x") + sized(1, "s")) + sized(2, "two") + sized(5, sized(1, "a"))
    )
    edited = values_of(CUSTOMER, ("value.email", "value.home.city")).edited(data, [b'"m"', b'"c"'])
    assert edited == sized(2, "m") + sized(5, sized(1, "a") + sized(2, "c"))
    home = sized(5, sized(1, "a") + sized(2, "x"))
    assert (
        values_of(CUSTOMER, (), ("value.email",)).edited(data + number(2, 7) + UNKNOWN, []) == home + UNKNOWN
    )
    hidden = sized(5, number(2, 7) + sized(1, "a") + UNKNOWN)
    assert values_of(CUSTOMER, (), ("value.home.city",)).edited(hidden, []) == sized(
        5, sized(1, "a") + UNKNOWN
    )


def test_the_message_is_shown_to_spark_in_its_own_types() -> None:
    assert ddl_of(CUSTOMER) == (
        "`id` BIGINT, `email` STRING, `phone` STRING, `level` STRING,"
        " `home` STRUCT<`street`: STRING, `city`: STRING>, `tags` ARRAY<STRING>, `scores` ARRAY<INT>,"
        " `amounts` MAP<STRING, DOUBLE>, `cards` MAP<STRING, STRUCT<`number`: STRING, `active`: BOOLEAN>>,"
        " `fax` STRING, `pager` BIGINT, `paid_by` STRUCT<`number`: STRING, `active`: BOOLEAN>,"
        " `at` TIMESTAMP, `photo` BINARY, `spent` DECIMAL(20, 0), `weight` FLOAT, `flag` BOOLEAN"
    )


def edition(features: bytes) -> str:
    """A file of the edition 2023, made by hand: its message has one field."""
    file = sized(1, "e.proto") + sized(4, sized(1, "E") + declared(1, "a", 9)) + sized(12, "editions")
    descriptors = sized(1, file + number(14, 1_000) + sized(8, sized(50, features)))
    return f"E {base64.b64encode(needed_descriptors(descriptors, 'E')).decode()}"


def test_the_features_of_an_edition_decide_about_presence() -> None:
    explicit, implicit = number(1, 1), number(1, 2)
    assert [read(b"", edition(features)) for features in (explicit, implicit)] == [{"a": None}, {"a": ""}]
    assert ddl_of(edition(implicit)) == "`a` STRING"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (schema("Customer"), "has no message Customer: it has shop.Customer"),
        (schema("shop.Custmer"), "has no message shop.Custmer: it has shop.Customer"),
        (
            schema("shop.Customer", "alone.desc"),
            "lacks shop.common.Address, the type of shop.Customer.home: write it with",
        ),
        (schema("shop.Tree", "order.desc"), "value.left contains itself"),
        (schema("shop.Grouped", "order.desc"), "value.line is a group"),
        (schema("shop.Empty", "order.desc"), "shop.Empty has no fields"),
        (schema("shop.Customer", "customer.proto"), "is no FileDescriptorSet: write it with protoc"),
        ("shop.Customer", "has no message shop.Customer: it has no messages"),
        ("shop.Customer no base64", "no name of a message and a descriptor set"),
    ],
)
def test_a_schema_that_expressions_cannot_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        ddl_of(text)


@pytest.mark.parametrize(
    ("text", "path", "drop", "why"),
    [
        (CUSTOMER, "value.email", True, None),
        (CUSTOMER, "value.home", True, None),
        (CUSTOMER, "value.tags", True, None),
        (CUSTOMER, "value.home.city", False, None),
        (CUSTOMER, "value.level", False, None),
        (CUSTOMER, "value.tags", False, "value.tags is of a type that can't be set in Protobuf"),
        (CUSTOMER, "value.home", False, "value.home is of a type that can't be set in Protobuf"),
        (CUSTOMER, "value.at.seconds", True, "value.at is no single message"),
        (CUSTOMER, "value.cards.number", True, "value.cards is no single message"),
        (CUSTOMER, "value.none", False, "value has no field none"),
        (ORDER, "value.id", True, "value.id is required"),
        (ORDER, "value.id", False, None),
    ],
)
def test_a_change_that_would_break_the_message_is_known_before(
    text: str, path: str, drop: bool, why: str | None
) -> None:
    found = change_problem(FormatSpec(format="protobuf", schema=text), path, drop=drop)
    assert found is None if why is None else found is not None and found.startswith(why)
