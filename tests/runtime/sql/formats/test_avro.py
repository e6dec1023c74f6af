"""Avro: what Spark reads of a value, and how fields of it are changed."""

import io
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from runtime.batch.varint import encode
from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.avro import AvroValues
from runtime.sql.formats.avro_schema import ddl_of
from runtime.sql.formats.dispatch import change_problem
from runtime.sql.formats.encoded import BadSchema, Changes, UndecodableValue, UneditableValue

ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [
        {"name": "street", "type": ["null", "string"], "default": None},
        {"name": "city", "type": "string", "default": "nowhere"},
    ],
}
CUSTOMER: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "namespace": "org.example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "country", "type": "string"},
        {"name": "card", "type": "string", "default": "none"},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "home", "type": ["null", ADDRESS], "default": None},
        {"name": "work", "type": ["Address", "null"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "scores", "type": {"type": "map", "values": "double"}},
        {"name": "weight", "type": "float"},
        {"name": "photo", "type": "bytes"},
        {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 6}},
        {"name": "flag", "type": "boolean"},
    ],
}
TEXT = json.dumps(CUSTOMER)
PARSED = parse_schema(json.loads(TEXT))

addresses = st.fixed_dictionaries({"street": st.none() | st.text(), "city": st.text()})
customers = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "email": st.none() | st.text(),
        "country": st.text(),
        "card": st.text(),
        "level": st.sampled_from(["LOW", "HIGH"]),
        "home": st.none() | addresses,
        "work": st.none() | addresses,
        "tags": st.lists(st.text(), max_size=3),
        "scores": st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "weight": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "photo": st.binary(),
        "mac": st.binary(min_size=6, max_size=6),
        "flag": st.booleans(),
    }
)


def values_of(text: str, paths: Sequence[str] = (), drop: Sequence[str] = ()) -> AvroValues:
    return AvroValues(FormatSpec(format="avro", schema=text), Changes.of(paths, drop))


def encoded(value: Any, schema: Any = PARSED) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, schema, value)
    return stream.getvalue()


@given(customers, st.none() | st.text())
def test_only_the_named_fields_change(value: dict[str, Any], email: str | None) -> None:
    paths = ["value.email", "value.level", "value.home.street"]
    values = values_of(TEXT, paths, ["value.card", "value.work.city"])
    given_values = [json.dumps(one).encode() for one in (email, "x" * 9, "LOW")]
    edited = values.edited(encoded(value), given_values)
    expected = {**value, "email": email, "card": "none", "level": "LOW"}
    if value["home"] is not None:
        expected["home"] = {**value["home"], "street": "x" * 9}
    if value["work"] is not None:
        expected["work"] = {**value["work"], "city": "nowhere"}
    assert edited == encoded(expected)


@given(customers)
def test_spark_reads_every_field_as_json(value: dict[str, Any]) -> None:
    found = json.loads(values_of(TEXT).json(encoded(value)))
    assert {name: found[name] for name in ("id", "email", "country", "home", "tags")} == {
        name: value[name] for name in ("id", "email", "country", "home", "tags")
    }


UNIONS: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {
            "name": "named",
            "type": ["null", {"type": "enum", "name": "E", "symbols": ["A"]}, "string", ADDRESS],
        },
        {"name": "also", "type": [{"type": "map", "values": "string"}, "Address"]},
        {"name": "number", "type": ["null", "double", "float", "int", "long"]},
        {
            "name": "part",
            "type": {"type": "array", "items": [{"type": "fixed", "name": "F", "size": 1}, "bytes"]},
        },
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "gone", "type": "bytes", "default": "\u00ff"},
    ],
}


@pytest.mark.parametrize(
    "number", [None, ("int", 5), ("long", 5), ("long", 2**53 + 1), ("float", 0.5), ("double", 5.0)]
)
@pytest.mark.parametrize(
    "named", [None, ("E", "A"), ("string", "A"), ("Address", {"street": None, "city": "x"})]
)
def test_other_fields_keep_their_branch_of_a_union_and_their_bytes(named: Any, number: Any) -> None:
    """Also days that Python's dates don't have, and more digits than a decimal's precision."""
    raw = parse_schema(json.loads(json.dumps(UNIONS).replace("logicalType", "meaning")))
    value = {"named": named, "number": number, "price": b"\x7f" * 9, "day": 2**31 - 1, "gone": b"x"}
    value["part"] = [("F", b"1"), ("bytes", b"2")]
    for also in (("map", {"street": "s"}), ("Address", {"street": "s", "city": "c"})):
        edited = values_of(json.dumps(UNIONS), (), ["value.gone"]).edited(
            encoded({**value, "also": also}, raw), []
        )
        assert edited == encoded({**value, "also": also, "gone": b"\xff"}, raw)


LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LINE, ["null", "string", {"type": "array", "items": "Line"}]),
        (["null", "string", {"type": "array", "items": LINE}], "Line"),
    ],
)
def test_a_branch_of_a_union_names_types_of_the_namespace(first: Any, second: Any) -> None:
    fields = [{"name": "first", "type": first}, {"name": "second", "type": second}]
    fields.append({"name": "gone", "type": "string", "default": ""})
    schema = {"type": "record", "name": "R", "namespace": "org.example", "fields": fields}
    parsed = parse_schema(json.loads(json.dumps(schema)))
    line = {"sku": "a"}
    value: Any = {"first": line, "second": [line]} if first is LINE else {"first": [line], "second": line}
    edited = values_of(json.dumps(schema), (), ["value.gone"]).edited(
        encoded({**value, "gone": "x"}, parsed), []
    )
    assert edited == encoded({**value, "gone": ""}, parsed)


@pytest.mark.parametrize(
    ("union", "default", "expected"),
    [
        (["double", "long"], 1.5, ("double", 1.5)),
        (["long", "double"], 7, ("long", 7)),
        (["bytes", "string"], "\u00ff", ("bytes", b"\xff")),
        ([ADDRESS, "long"], {"street": None, "city": "x"}, ("Address", {"street": None, "city": "x"})),
        (["double", "null"], 1.5, None),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": ["long", "double"]}, {"a": 7}, {"a": ("long", 7)}),
    ],
)
def test_a_field_that_is_dropped_gets_its_default(union: Any, default: Any, expected: Any) -> None:
    fields = [{"name": "gone", "type": union, "default": default}, {"name": "kept", "type": ["float", "int"]}]
    schema = {"type": "record", "name": "R", "namespace": "org.example", "fields": fields}
    parsed = parse_schema(json.loads(json.dumps(schema)))
    named = isinstance(expected, tuple) and expected[0] == "Address"
    value = {"gone": ("org.example.Address", expected[1]) if named else expected}
    value["kept"] = ("int", 3)
    edited = values_of(json.dumps(schema), (), ["value.gone"]).edited(encoded(value, parsed), [])
    assert edited == encoded(value, parsed)


@pytest.mark.parametrize(("kind", "default"), [("int", 2**31), ({"type": "array", "items": "bytes"}, [1])])
def test_a_default_that_does_not_fit_is_known_before(kind: Any, default: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}
    form = FormatSpec(format="avro", schema=json.dumps(schema))
    why = change_problem(form, "value.a", drop=True)
    assert why == "the default of value.a does not fit its type"


@pytest.mark.parametrize(
    ("kind", "new", "why"),
    [
        ("int", "3000000000", "the new value of value.a does not fit its type"),
        ("int", "1.5", "the new value of value.a does not fit its type"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"B"', "the new value of value.a does not fit"),
        ("float", '"text"', "the new value of value.a does not fit its type"),
        ("bytes", '"no base64!"', "the new value of value.a does not fit its type"),
        ("string", "null", "the new value of value.a is null, which its schema does not allow"),
    ],
)
def test_a_new_value_that_does_not_fit_is_refused(kind: Any, new: str, why: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    zero: Any = {"int": 0, "float": 0.0, "bytes": b"", "string": ""}.get(str(kind), "A")
    with pytest.raises(UneditableValue, match=why):
        values_of(json.dumps(schema), ["value.a"]).edited(
            encoded({"a": zero}, parse_schema(schema)), [new.encode()]
        )


@given(customers, st.integers(1, 40))
def test_what_is_no_value_of_the_schema_is_told_apart(value: dict[str, Any], cut: int) -> None:
    whole = encoded(value)
    for data in (whole[:-cut], whole + b"x" * cut):
        with pytest.raises(UndecodableValue):
            values_of(TEXT).json(data)


def test_the_schema_is_shown_to_spark_in_its_own_types() -> None:
    logical = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
    assert ddl_of(json.dumps(logical)) == "`day` DATE, `at` TIMESTAMP, `price` DECIMAL(9, 2)"
    assert ddl_of(TEXT) == (
        "`id` BIGINT, `email` STRING, `country` STRING, `card` STRING, `level` STRING,"
        " `home` STRUCT<`street`: STRING, `city`: STRING>, `work` STRUCT<`street`: STRING, `city`: STRING>,"
        " `tags` ARRAY<STRING>, `scores` MAP<STRING, DOUBLE>, `weight` FLOAT, `photo` BINARY, `mac` BINARY,"
        " `flag` BOOLEAN"
    )


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "no JSON"),
        ("[" * 5_000, "more than 100 types within one another"),
        ('"string"', "the schema is no record"),
        ({"a": ["string", "long"]}, "value.a is a union of several types"),
        ({"a": "Unknown"}, "Unknown is no type of the schema"),
        ({"a": ["null", "R"]}, "value.a contains itself"),
    ],
)
def test_a_schema_that_expressions_cannot_read_is_refused(schema: Any, why: str) -> None:
    fields = schema.items() if isinstance(schema, dict) else ()
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields]}
    with pytest.raises(BadSchema, match=why):
        ddl_of(json.dumps(record) if isinstance(schema, dict) else schema)


def twice(levels: int, leaf: str = "int") -> dict[str, Any]:
    """A record that contains another one twice, which contains another one twice, and so on."""
    found: dict[str, Any] = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{level - 1}"}]
        found = {"type": "record", "name": f"R{level}", "fields": fields}
    return found


def within(levels: int) -> dict[str, Any]:
    """A field with arrays within one another."""
    found: Any = "int"
    for _ in range(levels):
        found = {"type": "array", "items": found}
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": found}]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [(twice(40), "more than 5,000 fields"), (within(101), "more than 100"), (within(300), "more than 100")],
)
def test_a_small_schema_that_becomes_large_is_refused_at_once(schema: Any, why: str) -> None:
    began = time.process_time()
    with pytest.raises(BadSchema, match=why):
        ddl_of(json.dumps(schema))
    assert time.process_time() - began < 2


def test_a_default_that_becomes_large_is_refused_at_once() -> None:
    found: dict[str, Any] = {
        "type": "record",
        "name": "D0",
        "fields": [{"name": "a", "type": "int", "default": 1}],
    }
    for level in range(1, 40):
        types = {"a": found, "b": f"D{level - 1}"}
        fields = [{"name": name, "type": of, "default": {}} for name, of in types.items()]
        found = {"type": "record", "name": f"D{level}", "fields": fields}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": found, "default": {}}]}
    form = FormatSpec(format="avro", schema=json.dumps(schema))
    assert "more than 5,000 values" in str(change_problem(form, "value.x", drop=True))


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "F", "size": 0}, EMPTY])
def test_an_array_of_items_without_bytes_is_not_read(items: Any) -> None:
    """A few bytes would stand for as many items as they say: the process would end."""
    fields = [{"name": "id", "type": "long"}, {"name": "a", "type": {"type": "array", "items": items}}]
    data = encode(1) + encode(1 << 40) + encode(0)
    with pytest.raises(UndecodableValue, match="take no bytes"):
        values_of(json.dumps({"type": "record", "name": "R", "fields": fields})).json(data)
    with pytest.raises(BadSchema):
        ddl_of(json.dumps({"type": "record", "name": "R", "fields": fields}))


def test_items_without_bytes_are_found_at_once() -> None:
    """The items contain the same empty record at very many places."""
    array = {"type": "array", "items": twice(30, "null")}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": array}]}
    began = time.process_time()
    with pytest.raises(UndecodableValue, match="take no bytes"):
        values_of(json.dumps(schema)).json(encode(1 << 40) + encode(0))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("kind", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 1 << 20}])
def test_a_long_decimal_takes_no_time(kind: dict[str, Any]) -> None:
    decimal = {**kind, "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": decimal}]}
    length = b"" if "size" in kind else encode(1 << 20)
    began = time.process_time()
    with pytest.raises(UndecodableValue):
        values_of(json.dumps(schema)).json(length + b"\x7f" * (1 << 20))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("path", "drop", "why"),
    [
        ("value.card", True, None),
        ("value.email", True, None),
        ("value.country", True, "value.country is neither nullable nor has it a default"),
        ("value.home.city", True, None),
        ("value.country.x", True, "value.country is no record"),
        ("value.email", False, None),
        ("value.level", False, None),
        ("value.tags", False, "value.tags is of a type that can't be set in Avro"),
        ("value.home", False, "value.home is of a type that can't be set in Avro"),
        ("value.none", False, "value has no field none"),
    ],
)
def test_a_change_that_would_break_the_schema_is_known_before(path: str, drop: bool, why: str | None) -> None:
    found = change_problem(FormatSpec(format="avro", schema=TEXT), path, drop=drop)
    assert found is None if why is None else found is not None and found.startswith(why)
