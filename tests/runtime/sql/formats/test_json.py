"""Fields of a JSON object are set and dropped; the others keep their order and the text of their values."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import Changes, UneditableValue
from runtime.sql.formats.json import JsonValues

MASK = JsonValues(FormatSpec(format="json"), Changes.of(["value.email"], ["value.card"]))
INNER = JsonValues(FormatSpec(format="json"), Changes.of(["value.a.b"], ["value.a.c"]))
DROP_INNER = JsonValues(FormatSpec(format="json"), Changes.of((), ["value.a.b"]))
DEEP = b"[" * 400 + b"]" * 400

CASES = [
    # text, set email to "m", drop card
    (b'{"id": 1, "email": "a@b", "card": "1"}', b'{"id": 1, "email": "m"}'),
    (
        b'{"card":1,"id":1.50,"big":%d,"e":1E+2}' % 10**30,
        b'{"id":1.50,"big":%d,"e":1E+2,"email":"m"}' % 10**30,
    ),
    (b"{}", b'{"email":"m"}'),
    # blanks are those of the first kind, and none around the object
    (b' { "email" :null ,"id": 1} \n', b'{"email": "m", "id": 1}'),
    (b'{\n "email": null,\n "id": [1,2]\n}', b'{"email": "m", "id": [1, 2]}'),
    # a field that occurs twice, and names with escapes
    (b'{"email":"a","em\\u0061il":"b"}', b'{"email":"m"}'),
    (
        b'{"card":1,"email":2,"c\\u0061rd":3,"\\u00e9":"\\u00e9\\/"}',
        '{"email":"m","é":"\\u00e9\\/"}'.encode(),
    ),
    # the name as a value, in another object, and in an array
    (b'{"a":"card","email":1,"x":{"card":1}}', b'{"a":"card","email":"m","x":{"card":1}}'),
    (b'{"card":[{"y":"}]"}],"email":{"a":[1]}}', b'{"email":"m"}'),
    (
        b'{"x":"\\"card\\":1","email":"","deep":%b}' % DEEP,
        b'{"x":"\\"card\\":1","email":"m","deep":%b}' % DEEP,
    ),
    # texts that are no UTF-8
    (b'{"x":"\xff","email":"\xff","y":{"\xff":1}}', b'{"x":"\xff","email":"m","y":{"\xff":1}}'),
    (b'{"x":"\xff\\ud83d","email":NaN,"y":{"\xff":1}}', b'{"x":"\xff\\ud83d","email":"m","y":{"\xff":1}}'),
    # what Spark reads beside JSON: infinities, and halves of surrogate pairs
    (b'{"n":NaN,"m":[-Infinity,"NaN"],"email":1}', b'{"n":NaN,"m":[-Infinity,"NaN"],"email":"m"}'),
    (b'{"\\ud83d":"\\ud83d","email":"\\ud83d"}', b'{"\\ud83d":"\\ud83d","email":"m"}'),
    (
        b'{"n":NaN,"x":"\\u00000","y":"a\\"\\u00000"}',
        b'{"n":NaN,"x":"\\u00000","y":"a\\"\\u00000","email":"m"}',
    ),
]


@pytest.mark.parametrize(("text", "edited"), CASES)
def test_fields_are_set_and_dropped(text: bytes, edited: bytes) -> None:
    assert MASK.edited(text, [b'"m"']) == edited


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (b'{"a":{"b":1,"c":2}}', b'{"a":{"b":9}}'),
        (b'{"a": {"x": [1, 2], "c": 2}}', b'{"a": {"x": [1, 2], "b": 9}}'),
        (b'{"a":{}}', b'{"a":{"b":9}}'),
        (b'{"a":null}', b'{"a":null}'),
        (b'{"a":[{"b":1}]}', b'{"a":[{"b":1}]}'),
        (b'{"a":{"c":"secret"},"a":null}', b'{"a":null}'),
        (b" {} ", b" {} "),
    ],
)
def test_fields_of_inner_objects(text: bytes, edited: bytes) -> None:
    assert INNER.edited(text, [b"9"]) == edited


@pytest.mark.parametrize(
    "text",
    [
        b'{ "a" : null , "x":1,"x":2}',
        b'{ "a" : {"z" : 1}, "x":1}',
        b'{ "a" : {"a" : 1}, "x":"\\n"}',
        b'{ "a" : [{"b":1}], "x":NaN}',
        b'{ "\\u0061" : {"z" : "\\"a\\""}, "x":"a"}',
    ],
)
def test_a_value_without_the_field_of_an_inner_object_is_not_written_again(text: bytes) -> None:
    assert DROP_INNER.edited(text, []) is text


@pytest.mark.parametrize("last", [b"null", b"{}", b'{"z":1}', b'"x"'])
@pytest.mark.parametrize("name", [b"a", b"\\u0061"])
def test_of_an_inner_object_that_occurs_twice_the_last_one_travels_alone(name: bytes, last: bytes) -> None:
    text = b'{"a":{"b":"secret"},"%b":%b}' % (name, last)
    assert DROP_INNER.edited(text, []) == b'{"a":%b}' % last


FACE, ESCAPED = "\U0001f600", b"\\ud83d\\ude00"


@pytest.mark.parametrize("face", [FACE.encode(), ESCAPED, ESCAPED.upper().replace(b"\\U", b"\\u")])
@pytest.mark.parametrize("beside", [b"1", b"NaN", b'"\\ud83d"', b'"\\ude00\\ud83d"', b'{"\\udE00":-INF}'])
@pytest.mark.parametrize(
    ("paths", "drop", "text", "edited"),
    [
        ((), [f"value.{FACE}"], b'{"%b":"secret","b":%b}', b'{"b":%b}'),
        ([f"value.{FACE}"], (), b'{"%b":"secret","b":%b}', b'{"%b":"m","b":%b}'),
        ((), [f"value.{FACE}.a"], b'{"%b":{"a":"secret"},"b":%b}', b'{"%b":{},"b":%b}'),
        ((), [f"value.a.{FACE}"], b'{"a":{"%b":"secret"},"b":%b}', b'{"a":{},"b":%b}'),
        ([f"value.a.{FACE}"], (), b'{"a":{"%b":"secret"},"b":%b}', b'{"a":{"%b":"m"},"b":%b}'),
    ],
)
def test_a_name_of_any_characters_is_found_beside_any_value(
    paths: Sequence[str], drop: Sequence[str], text: bytes, edited: bytes, face: bytes, beside: bytes
) -> None:
    editor = JsonValues(FormatSpec(format="json"), Changes.of(paths, drop))
    wanted = edited % ((FACE.encode(), beside) if edited.count(b"%b") > 1 else (beside,))
    assert editor.edited(text % (face, beside), [b'"m"']) == wanted


def test_a_value_that_has_none_of_the_fields_is_not_written_again() -> None:
    text = b' {"id" : 1,"id":2} '
    assert MASK.edited(text, [b"null"]) is text


# A lenient reader takes the second name for `card`.
NO_UTF8 = (
    b'{"\xff":1}',
    b'{"c\xc1\xa1rd":1}',
    b'{"\xff":NaN}',
    b'{"\xff\\ud83d":1}',
    b'{"\xed\xa0\xbd":1}',
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "no JSON object") for text in (b"", b"1", b"[{}]", b'{"a":1', b'{"a"}', b"{'a':1}")),
        *((text, "no JSON object") for text in (b'{"a":1} x', b'{"a":[}', b'{"a":NaNs}')),
        *((text, "the name of a field is no UTF-8") for text in NO_UTF8),
        (b'{"a":%b}' % (b"[" * 100_000), "more than 500 objects or arrays within one another"),
        (b"{%b}" % (b'"":0,' * 1_000_001), "more than 1,000,000 members"),
    ],
)
def test_other_texts_are_refused(text: bytes, why: str) -> None:
    with pytest.raises(UneditableValue, match=why):
        MASK.edited(text, [b'"m"'])


@pytest.mark.parametrize("start", [b"", b'"n":NaN,', rb'"]]\"]}\\":"]}",', b'"x":[%b[]],' % (b"{}," * 600)])
@pytest.mark.parametrize("frames", [0, 300])
@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"email":', b"}")])
def test_values_have_a_fixed_number_of_levels(start: bytes, frames: int, opens: bytes, closes: bytes) -> None:
    """The levels are those of the text alone, whatever the stack of the process is."""

    def edited(levels: int, frames: int) -> bytes:
        if frames:
            return edited(levels, frames - 1)
        return MASK.edited(b'{%b"a":%b}' % (start, opens * levels + b"1" + closes * levels), [b'"m"'])

    assert edited(499, frames).endswith(b',"email":"m"}')
    with pytest.raises(UneditableValue, match="more than 500 objects or arrays within one another"):
        edited(500, frames)


def test_brackets_in_texts_are_no_levels() -> None:
    text = b'{"email":1,"x":"%b"}' % (rb"[{\"\\" * 600)
    assert MASK.edited(text, [b'"m"']) == text.replace(b":1", b':"m"')


names = st.sampled_from(["email", "card", "a", 'q"\\', "é"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.sampled_from(["email", '{"card":1}', "\0", "\0" + "0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(names, values, max_size=5), st.sampled_from([None, 1]))
def test_any_object_is_edited_as_python_would(given_object: dict[str, object], indent: int | None) -> None:
    """Also with NaN, infinities and halves of surrogate pairs."""
    text = json.dumps(given_object, indent=indent).encode()
    wanted = {key: value for key, value in given_object.items() if key != "card"} | {"email": "m"}
    assert json.dumps(json.loads(MASK.edited(text, [b'"m"']))) == json.dumps(wanted)
