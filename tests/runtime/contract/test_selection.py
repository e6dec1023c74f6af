"""Include, less exclude, less the default denials: which names a selection takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.selection import (
    GROUP_DENIALS,
    NamePatterns,
    SelectionResult,
    SelectionRules,
    Selector,
    written_out,
)

NAMED, MATCHED, DENIED, EXCLUDED, OUTSIDE = SelectionResult


@pytest.mark.parametrize(
    ("rules", "name", "answer"),
    [
        (SelectionRules(("orders",)), "orders", NAMED),
        (SelectionRules(("orders",)), "orders2", OUTSIDE),
        (SelectionRules(("orders",)), "my-orders", OUTSIDE),
        (SelectionRules((r"pay\..*",)), "pay.eu", MATCHED),
        (SelectionRules((r"pay\..*",), exclude=(r"pay\.tmp.*",)), "pay.tmp1", EXCLUDED),
        (SelectionRules(("orders",), exclude=("ord.*",)), "orders", EXCLUDED),
        (SelectionRules((".*",)), "orders.internal", DENIED),
        (SelectionRules((".*",)), "orders-internal", DENIED),
        (SelectionRules((".*",)), "orders_internal", MATCHED),
        (SelectionRules((".*",)), "orders.replica", DENIED),
        (SelectionRules((".*",)), "__connect", DENIED),
        (SelectionRules((".*",)), "_schemas", MATCHED),
        (SelectionRules((".*",), default_exclude=False), "orders.replica", MATCHED),
        (SelectionRules((".*", "orders.replica")), "orders.replica", NAMED),
        (SelectionRules((".*", r"orders\.replica")), "orders.replica", NAMED),
        (SelectionRules(("orders.replica",), exclude=(r".*\.replica",)), "orders.replica", EXCLUDED),
        (SelectionRules(("a.b.c",)), "a-b_c", MATCHED),
        (SelectionRules(("a.b.c",)), "a.b.c", NAMED),
        (SelectionRules((r"a\.b.c",)), "a-b.c", OUTSIDE),
        (SelectionRules(()), "orders", OUTSIDE),
        (SelectionRules((".*",), denials=GROUP_DENIALS), "console-consumer-17", DENIED),
        (SelectionRules((".*",), denials=GROUP_DENIALS), "orders.replica", MATCHED),
    ],
)
def test_the_answer(rules: SelectionRules, name: str, answer: SelectionResult) -> None:
    assert Selector(rules).answer(name) is answer
    assert answer.taken is (answer in (NAMED, MATCHED))


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("orders", "orders"),
        ("a.b", "a.b"),
        (r"a\.b\-c", "a.b-c"),
        ("a.*", None),
        ("a|b", None),
        ("[ab]", None),
        (r"a\d", None),
        ("(a)", None),
    ],
)
def test_what_is_written_out(entry: str, name: str | None) -> None:
    assert written_out(entry) == name


def test_names_written_out_less_what_is_excluded() -> None:
    selector = Selector(SelectionRules(("a", "b", "c.*"), exclude=("b",)))
    assert selector.written_out == {"a"}
    assert selector.open_ended
    assert not Selector(SelectionRules(("a", r"b\.c"))).open_ended


ENTRIES = st.lists(
    st.sampled_from(["a", "a.b", r"a\.b", "a.*", "..", ".", "a.b.", "b|a", r"[ab]\.+", "b.a", "ba.b"]),
    max_size=6,
)


@given(ENTRIES, st.text(alphabet="ab.-", min_size=1, max_size=4))
def test_a_match_is_the_match_of_any_whole_regex(entries: list[str], name: str) -> None:
    assert NamePatterns(entries).match(name) is any(re.fullmatch(entry, name) for entry in entries)


@given(
    st.lists(
        st.recursive(
            st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", "é", "日", ""]),
            lambda inner: st.one_of(
                st.tuples(inner, inner).map("".join),
                st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
                st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}"])).map("(?:{0[0]}){0[1]}".format),
                inner.map("(?i:{})".format),
            ),
            max_leaves=8,
        ),
        max_size=3,
    ),
    st.text(alphabet="abAB.-éÉ日", max_size=6),
)
def test_what_is_matched_begins_with_a_prefix(entries: list[str], name: str) -> None:
    patterns = NamePatterns(entries)
    if patterns.match(name):
        assert any(name.startswith(prefix) for prefix in patterns.prefixes)
