"""Values are read in the slot only where Spark certainly reads the same; Spark decides on all others."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.sql.json_reader import JsonReader

ID, EMAIL = pa.field("id", pa.int64()), pa.field("email", pa.string())
NESTED = pa.field("a", pa.struct([("b", pa.string()), ("n", pa.list_(pa.int32()))]))
READER = JsonReader(pa.struct([ID, EMAIL, ("ok", pa.bool_()), NESTED]), {"id", "email", "a"})
DEEP = 1_100

READ = [
    (b'{"id": 1, "email": "a@b", "more": [1.5e3, {"x": null}]}', {"id": 1, "email": "a@b", "a": None}),
    (b" {} ", {"id": None, "email": None, "a": None}),
    (b'{"id":-9223372036854775808}', {"id": -(2**63), "email": None, "a": None}),
    (b'{"id":1,"id":2,"ok":true}', {"id": 2, "email": None, "a": None}),
    (b'{"em\\u0061il":"\\ud83d\\ude00\\n"}', {"id": None, "email": "\U0001f600\n", "a": None}),
    (b'{"a":{"b":"x","n":[1,null]}}', {"id": None, "email": None, "a": {"b": "x", "n": [1, None]}}),
    (b'{"x":"%s"}' % (b"x1" * 5_000), {"id": None, "email": None, "a": None}),
]
LEFT_TO_SPARK = [
    b"",
    b"null",
    b"[1]",
    b'[{"id":1}]',
    b'{"id": 1',
    b'{"id": 1} {"id": 2}',
    b'{"id": 1.0}',
    b'{"id": "1"}',
    b'{"id": 9223372036854775808}',
    b'{"email": 1}',  # Spark reads its text
    b'{"ok": "true"}',  # also where no expression reads the field
    b'{"email": "\xff"}',
    b'{"email": "\\ud800"}',
    b'{"x": NaN}',
    b'{"x": 01}',
    b"{'x': 1}",
    b'{"x": "\x01"}',
    b'{"a": {"n": [1.5]}}',
    b'{"a": {"n": [2147483648]}}',
    b"\xef\xbb\xbf{}",
    # what Spark's parser may refuse for its length or depth
    b'{"x":' + b"1" * DEEP + b"}",
    b'{"x":1.' + b"1" * DEEP + b"}",
    b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"x":' + b'{"y":' * DEEP + b"1" + b"}" * DEEP + b"}",
    b'{"x":"' + b"x" * 50_000 + b'"}',
]


def values(*raw: bytes | None) -> pa.Array:
    return pa.array(raw, pa.binary())


@pytest.mark.parametrize(("value", "fields"), READ)
def test_a_value_of_the_declared_types_is_read(value: bytes, fields: dict[str, object]) -> None:
    found = READER.read(values(value))
    assert found.to_pylist() == [fields]


@pytest.mark.parametrize("value", LEFT_TO_SPARK)
def test_any_other_value_is_left_to_spark_and_its_neighbours_are_read(value: bytes) -> None:
    found = READER.read(values(READ[0][0], value, None, READ[0][0]))
    assert found.to_pylist() == [READ[0][1], None, None, READ[0][1]]


def test_a_text_that_is_not_read_may_hold_anything() -> None:
    reader = JsonReader(pa.struct([ID, EMAIL]), {"id"})
    found = reader.read(values(b'{"id": 1, "email": {"x": 1}}'))
    assert found.to_pylist() == [{"id": 1}]


def test_values_of_which_nothing_is_read_are_checked_alone() -> None:
    reader = JsonReader(pa.struct([ID]), ())
    found = reader.read(values(b'{"id": 1}', b'{"id": "x"}', b"{"))
    assert found.to_pylist() == [{}, None, None]


@pytest.mark.parametrize(
    ("kind", "most"),
    [(pa.int8(), 2**7), (pa.int16(), 2**15), (pa.int32(), 2**31), (pa.int64(), 2**63)],
)
def test_integers_have_the_range_of_their_type(kind: pa.DataType, most: int) -> None:
    reader = JsonReader(pa.struct([("n", kind)]), {"n"})
    raw = [b'{"n":%d}' % number for number in (-most - 1, -most, most - 1, most)]
    assert reader.read(values(*raw)).is_valid().to_pylist() == [False, True, True, False]


@given(
    st.dictionaries(
        st.sampled_from(["id", "email", "a", "x"]) | st.text(max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_what_is_read_is_what_the_value_says(value: dict[str, object], ascii_only: bool) -> None:
    reader = JsonReader(pa.struct([ID, EMAIL]), {"id", "email"})
    found = reader.read(values(json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")))
    if found[0].is_valid:
        assert found.to_pylist() == [{"id": value.get("id"), "email": value.get("email")}]
        assert type(value.get("id")) in (int, type(None))


def test_an_object_with_few_of_many_fields_is_left_to_spark_where_a_value_has_many() -> None:
    wide = pa.struct([(f"f{at}", pa.int32()) for at in range(200)])
    reader = JsonReader(pa.struct([("a", pa.list_(wide))]), {"a"})
    honest = b'{"a": [{"f0": 1, "f7": 2, "f9": 123456789}, {"f1": 3, "text": "%s"}]}' % (b"x" * 60)
    sparse = b'{"a": [' + b"{}," * 100 + b"{}]}"
    assert reader.read(values(honest, sparse, b"{}")).is_valid().to_pylist() == [True, False, True]
