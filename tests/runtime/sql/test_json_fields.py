"""Fields of a JSON text are replaced and removed; every other byte stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.sql.json_fields import JsonEditor, UneditableValue

CASES = [
    # text, set email to "m", drop card
    (b'{"id": 1, "email" : "a@b", "card":"1"}', b'{"id": 1, "email" : "m"}'),
    (b'{"card":1, "id":1.50}', b'{ "id":1.50,"email":"m"}'),
    (b"{}", b'{"email":"m"}'),
    (b' { "email":null } \n', b' { "email":"m" } \n'),
    # a field that occurs twice, and a name with escapes
    (b'{"email":"a","em\\u0061il":"b"}', b'{"email":"m","em\\u0061il":"m"}'),
    (b'{"card":1,"email":2,"c\\u0061rd":3}', b'{"email":"m"}'),
    # the name as a value, in another object, and in an array
    (b'{"a":"card","email":1,"x":{"card":1}}', b'{"a":"card","email":"m","x":{"card":1}}'),
    (b'{"card":[{"y":"}]"}],"email":{"a":[1]}}', b'{"email":"m"}'),
    # neighbours, blanks, and the name as a value
    (b'{"card":1}', b'{"email":"m"}'),
    (b'{ "card" : 1 , "email":"a" }', b'{ "email":"m" }'),
    (b'{"id":1,"email":"a","card":"email"}', b'{"id":1,"email":"m"}'),
    (b'{"id":"card","email":"a","card":[1]}', b'{"id":"card","email":"m"}'),
    # deeper than the pattern of a member reaches
    (b'{"a":[[[[[{"card":1}]]]]],"card":1,"email":2}', b'{"a":[[[[[{"card":1}]]]]],"email":"m"}'),
    (b'{"card":[[[[[{"card":1}]]]]],"email":{"a":{"b":{"c":{"d":{}}}}}}', b'{"email":"m"}'),
    (b'{"x":"\\"card\\":1","email":""}', b'{"x":"\\"card\\":1","email":"m"}'),
]


@pytest.mark.parametrize(("text", "edited"), CASES)
def test_fields_are_set_and_dropped(text: bytes, edited: bytes) -> None:
    assert JsonEditor({"value.email": ""}, ["value.card"]).edited(text, [b'"m"']) == edited


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (b'{"a":{"b":1, "c" :2}}', b'{"a":{"b":9}}'),
        (b'{"a":{}}', b'{"a":{"b":9}}'),
        (b'{"a":null}', b'{"a":null}'),
        (b'{"a":[{"b":1}]}', b'{"a":[{"b":1}]}'),
        (b"{}", b"{}"),
    ],
)
def test_fields_of_inner_objects(text: bytes, edited: bytes) -> None:
    assert JsonEditor({"value.a.b": ""}, ["value.a.c"]).edited(text, [b"9"]) == edited


def test_a_missing_field_is_not_added_as_null() -> None:
    assert JsonEditor({"value.email": ""}, []).edited(b'{"id":1}', [b"null"]) == b'{"id":1}'


@pytest.mark.parametrize(
    "text", [b"", b"1", b"[{}]", b'{"a":1', b'{"a"}', b"{'a':1}", b'{"a":1} x', b'{"a":[}']
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(UneditableValue):
        JsonEditor({"value.email": ""}, []).edited(text, [b'"m"'])


names = st.sampled_from(["email", "card", "a", 'q"\\', "é"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["email", '{"card":1}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(names, values, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_any_object_is_edited_as_python_would(
    given_object: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(given_object, ensure_ascii=ascii_only, indent=indent).encode()
    editor = JsonEditor({"value.email": ""}, ["value.card"])
    edited = editor.edited(text, [b'"m"'])
    assert edited + b" " == editor.edited(text + b" ", [b'"m"'])  # a blank at the end: not by its short cut
    wanted = {key: value for key, value in given_object.items() if key != "card"} | {"email": "m"}
    assert json.loads(edited) == wanted
