"""Regexes of users: matched in linear time everywhere, with one meaning, refused with the way out."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec import rename
from runtime.contract.spec.naming import illegal_because
from runtime.contract.spec.rename import Match, backward, forward, problem
from runtime.contract.spec.selection import SelectionSpec, Selector, UnreadableRegex, matches, regex

HERE = Path(__file__).parents[2]
EXPONENTIAL = ("(a|a)+b", "(a+)+b", "(a*)*b", "((a?){30}){30}b", "(.*a){25}b", "(?:a|aa|aaa)+b")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_no_pattern_takes_exponential_time(pattern: str):
    name = "a" * 249
    assert not matches(pattern, name)
    assert not Selector(SelectionSpec((pattern,), (pattern,))).answer(name).taken
    # Only (?: ) may stand inside a group of a rename.
    rule = Match("(" + pattern.replace("(?:", "(").replace("(", "(?:") + ")", r"x-\1")
    assert forward(rule, name, "dc1") == name
    assert backward(rule, f"x-{name}", "dc1") == f"x-{name}"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a(?=b)", "looks ahead or behind"),
        ("a(?!b)", "looks ahead or behind"),
        ("(?<=a)b", "looks ahead or behind"),
        ("(?<!a)b", "looks ahead or behind"),
        (r"(a)\1", "refers back to a group"),
        (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10", "refers back to a group"),
        ("(?P<x>a)(?P=x)", "refers back to a group"),
        ("a++", "write one of the two"),
        ("(?>a)", "write (?: ) instead"),
        ("a{,3}", "write {0,3}"),
        ("a{1001}", "repeat fewer times"),
        ("a{99999999999}", "repeat fewer times"),
        ("a{2,99999999999}", "repeat fewer times"),
        ("[[:alpha:]]", "[A-Za-z]"),
        ("[x[:alpha:]]", "[A-Za-z]"),
        (r"\Qa\E", r"has the escape \Q"),
        (r"\C", r"has the escape \C"),
        (r"(\pL{100}){9}", r"has the escape \p"),
        (r"([^a]{1000}){1}([^b]{1000}){1}" * 9, "is too large"),
        ("a" * 1001, "longer than 1,000"),
        ("(a)" * 51, "more than 50 groups"),
        ("\ud800+", "surrogate"),
        ("(", "lacks a )"),
    ],
)
def test_what_is_not_read_is_refused_with_the_way_out(pattern: str, said: str):
    with pytest.raises(UnreadableRegex, match=re.escape(said)):
        regex(pattern)


SIGNS = [*"ab.-_09", *"()[]{}|?*+^$\\,:<>=!P#"]
WORDS = [
    r"(?:",
    r"(?P<n>",
    r"(?i)",
    r"\d",
    r"\w",
    r"\S",
    r"\.",
    r"\b",
    r"\A",
    r"{2}",
    r"{,2}",
    r"{1,3}",
    r"[a-c]",
    r"[^.]",
    r"[]a]",
    r"[[:alpha:]]",
    r"\Z",
    r"\1",
    r"(?=",
    r".*",
    r"\x41",
]
PIECES = st.sampled_from(SIGNS + WORDS)
PATTERNS = st.lists(PIECES, max_size=12).map("".join)
NAMES = st.text(alphabet="abAxP.-_09\\:[", max_size=8)


@given(PATTERNS, NAMES)
def test_what_both_engines_read_means_the_same(pattern: str, name: str):
    """The names are short, so that Python's engine ends too."""
    try:
        ours = matches(pattern, name)
    except UnreadableRegex:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = re.compile(pattern)
        except re.error:
            return
    assert ours is (theirs.fullmatch(name) is not None)


@given(
    PATTERNS,
    st.lists(st.sampled_from(["a", "-", ".", r"\1", r"\2", r"\g<1>", r"\g<n>", r"\g<²>", "$1"])),
    NAMES,
)
def test_any_rename_is_refused_with_words_or_has_a_way_back(pattern: str, to: list[str], topic: str):
    rule = Match(pattern, "".join(to))
    if problem(rule) is not None or illegal_because(topic):
        return
    name = forward(rule, topic, "dc1")
    back = backward(rule, name, "dc1")
    assert back is None or forward(rule, back, "dc1") == name


def test_a_rename_is_bounded():
    for rule in (Match("a" * 1001, "b"), Match("(a*)", "b" * 1001 + r"\1"), Match("a", r"\g<²>")):
        assert problem(rule)
    with pytest.raises(rename.IrreversibleRename, match="longer than 1,000"):
        rename.shape("(a{1})" + "b" * 900, r"\1" + "c" * 995)


def test_a_name_with_half_a_character_is_a_name():
    assert not matches("[a-z]*", "a\ud800")
    assert regex("(.*)").captured("a\ud800") == ("a\ud800",)


def test_nothing_is_written_to_stderr():
    """RE2 logs each mistake to stderr unless it is told not to."""
    program = "from runtime.contract.spec.selection import *\ntry: regex('(')\nexcept UnreadableRegex: pass"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
