"""Include, less exclude, less the default denials: which names a selection takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.selection import GROUP_DENIALS, Answer, Names, Rules, Selector, written_out

NAMED, MATCHED, DENIED, EXCLUDED, OUTSIDE = Answer


@pytest.mark.parametrize(
    ("rules", "name", "answer"),
    [
        (Rules(("orders",)), "orders", NAMED),
        (Rules(("orders",)), "orders2", OUTSIDE),
        (Rules(("orders",)), "my-orders", OUTSIDE),
        (Rules((r"pay\..*",)), "pay.eu", MATCHED),
        (Rules((r"pay\..*",), exclude=(r"pay\.tmp.*",)), "pay.tmp1", EXCLUDED),
        (Rules(("orders",), exclude=("ord.*",)), "orders", EXCLUDED),
        (Rules((".*",)), "orders.internal", DENIED),
        (Rules((".*",)), "orders-internal", DENIED),
        (Rules((".*",)), "orders_internal", MATCHED),
        (Rules((".*",)), "orders.replica", DENIED),
        (Rules((".*",)), "__connect", DENIED),
        (Rules((".*",)), "_schemas", MATCHED),
        (Rules((".*",), default_exclude=False), "orders.replica", MATCHED),
        (Rules((".*", "orders.replica")), "orders.replica", NAMED),
        (Rules((".*", r"orders\.replica")), "orders.replica", NAMED),
        (Rules(("orders.replica",), exclude=(r".*\.replica",)), "orders.replica", EXCLUDED),
        (Rules(("a.b.c",)), "a-b_c", MATCHED),
        (Rules(("a.b.c",)), "a.b.c", NAMED),
        (Rules((r"a\.b.c",)), "a-b.c", OUTSIDE),
        (Rules(()), "orders", OUTSIDE),
        (Rules((".*",), denials=GROUP_DENIALS), "console-consumer-17", DENIED),
        (Rules((".*",), denials=GROUP_DENIALS), "orders.replica", MATCHED),
    ],
)
def test_the_answer(rules: Rules, name: str, answer: Answer) -> None:
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
    selector = Selector(Rules(("a", "b", "c.*"), exclude=("b",)))
    assert selector.written_out == {"a"}
    assert selector.open_ended
    assert not Selector(Rules(("a", r"b\.c"))).open_ended


ENTRIES = st.lists(
    st.sampled_from(["a", "a.b", r"a\.b", "a.*", "..", ".", "a.b.", "b|a", r"[ab]\.+", "b.a", "ba.b"]),
    max_size=6,
)


@given(ENTRIES, st.text(alphabet="ab.-", min_size=1, max_size=4))
def test_a_match_is_the_match_of_any_whole_regex(entries: list[str], name: str) -> None:
    assert Names(entries).match(name) is any(re.fullmatch(entry, name) for entry in entries)
