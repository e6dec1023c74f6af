"""The table of functions, which the documentation shows, and the rules for their literals."""

import re
from pathlib import Path

import pytest

from runtime.sql.functions import (
    LITERALS,
    SMALL,
    TABLE,
    Size,
    documentation,
    functions,
    like_regex,
    replacement_problem,
    replaces_in_linear_time,
)

DOCS = Path(__file__).parents[3] / "docs" / "transform.md"


def test_the_documentation_shows_the_table() -> None:
    assert documentation() in DOCS.read_text()


def test_a_name_stands_in_the_table_once() -> None:
    named = [name for text in TABLE.values() for name in re.findall(r"(\w+)\(", text)]
    assert len(named) == len({*named}) == len(functions())


@pytest.mark.parametrize(
    ("name", "given", "right"),
    [
        ("upper", 1, True),
        ("upper", 2, False),
        ("upper", 0, False),
        ("lpad", 3, True),
        ("lpad", 4, False),
        ("coalesce", 1, True),
        ("coalesce", 9, True),
        ("greatest", 1, False),
        ("greatest", 3, True),
    ],
)
def test_a_function_counts_its_arguments(name: str, given: int, right: bool) -> None:
    assert (functions()[name].problem(given) == "") is right


def test_the_rule_of_a_repeated_argument_holds_for_each() -> None:
    struct = functions()["named_struct"]
    assert [struct.rule(at) is not None for at in range(6)] == [True, False] * 3
    assert functions()["concat"].rule(7) is None


@pytest.mark.parametrize(
    ("argument", "right", "wrong"),
    [
        ("count", [0, 1_000], [-1, 1_001, True, "1", None, 1.0]),
        ("places", [-38, 38], [39, None]),
        ("fill", ["", "x" * 10], ["x" * 11, 1, None]),
        ("sign", ["x", "", None], ["xx", 1]),
        ("delimiter", [",", "\\|", "."], ["", "a|b", "\\d", "\\Q", "[,]", None]),
        ("pattern", ["a+", "(?i)x"], ["(", "(?=x)", "\\1", "a" * 1_001, None]),
        ("iv", [b"x" * 12, "x" * 16], [b"", "", "x" * 13, None]),
        ("bits", [0, 256], [1, "256", None, False]),
        ("mode", ["gcm", "CBC"], ["ECB", "", None]),
        ("format", ["yyyy-MM-dd'T'HH:mm:ss"], ["", "VV", "y" * 51, None]),
        ("path", ["$.a.b[0]", "$"], ["$..a*", "a", None]),
        ("unit", ["day", "YEAR"], ["EPOCH", None]),
        ("word", ["utm_source"], ["(a|a)+", "", None]),
    ],
)
def test_literals_are_bounded(argument: str, right: list[object], wrong: list[object]) -> None:
    assert [one for one in right if LITERALS[argument](one)] == []
    assert [one for one in wrong if not LITERALS[argument](one)] == []


def test_the_size_of_a_result_is_bounded_by_those_of_its_arguments() -> None:
    column = Size(1)

    def size(name: str, sizes: list[Size], *literals: object) -> Size:
        return functions()[name].size(sizes, literals)

    assert size("upper", [column]) == column
    assert size("length", [column]) == SMALL
    assert size("concat", [column, column, Size(0, 5)]) == Size(2, 5)
    assert size("repeat", [Size(0, 2), SMALL], "ab", 1_000) == Size(0, 2_000)
    assert size("lpad", [column, SMALL], None, 50) == Size(1, 90)
    assert size("replace", [column, Size(0, 2), Size(0, 6)], None, "ab", "123456") == Size(3)
    assert size("replace", [column, Size(0, 2)], None, "ab") == Size(1)
    assert size("regexp_replace", [column, SMALL, SMALL], None, "a", "***") == Size(4, 3)
    assert size("transform", [column, Size(1, 3)]) == Size(4)
    assert size("concat_ws", [SMALL, column], ", ").times == 3
    assert not Size(101).bounded
    assert not Size(0, 70_000).bounded


@pytest.mark.parametrize(
    ("pattern", "replacement", "right"),
    [
        ("(a)(b)", "$2-$1", True),
        ("a", "$0", True),
        ("a", "\\$", True),
        ("a", "", True),
        ("(a)", "$2", False),
        ("a", "$x", False),
        ("a", "$", False),
        ("a", "\\n", False),
    ],
)
def test_a_replacement_names_groups_that_there_are(pattern: str, replacement: str, right: bool) -> None:
    assert (replacement_problem(pattern, replacement) == "") is right


def test_a_pattern_of_like_becomes_a_regex() -> None:
    assert like_regex("a%_b") == "a(?s:.*)(?s:.)b"
    assert like_regex("1.5\\%(x)") == "1\\.5\\%\\(x\\)"
    assert like_regex("é\\\\") == "é\\\\"
    assert like_regex("a\\b") is None
    assert like_regex("a\\") is None
    assert like_regex("1#%%", "#") == "1\\%(?s:.*)"
    assert like_regex("a##_", "#") == "a\\#(?s:.)"
    assert like_regex("a#b", "#") is None


@pytest.mark.parametrize(
    ("pattern", "linear"),
    [
        ("", True),
        ("a|bc|[0-9]", True),
        (r"(?i)\b(secret)\b", True),
        (r"\b\d{13,16}\b", True),
        ("[^@]+@", True),
        (r"(\w+)@(\w+?)\.com", True),
        (".*.*=", True),
        ("(a|b)*", True),  # one character
        (r"^(\w+\.)*x|", False),
        (r"^(?:\w+\.)*x", True),  # one match
        (r"(?m)^(?:\w+\.)*x", False),
        ("a.*b|a", False),
        ("a(?:.*b)?", False),
        ("(?:ab)+", False),
        ("(?:[ab]+c)*[ab]", False),
        (".{1000}b|a", False),
    ],
)
def test_which_regexes_are_replaced_in_linear_time(pattern: str, linear: bool) -> None:
    assert replaces_in_linear_time(pattern) is linear
