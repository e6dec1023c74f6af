"""Which topics a flow takes: its selection, and its route seen together with the other flows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.rename import SAME_NAME, Match, Rename, Table, Template
from runtime.contract.spec.route import Router, is_reserved
from runtime.contract.spec.selected_topics import SelectedTopics
from runtime.contract.spec.selection import (
    GROUP_DENIALS,
    TOPIC_DENIALS,
    NamePatterns,
    SelectionResult,
    SelectionSpec,
    Selector,
    written_out,
)

NAMED, MATCHED, DENIED, EXCLUDED, RETURNS, OUTSIDE = SelectionResult


def rules(*include: str, exclude: tuple[str, ...] = (), default_exclude: bool = True) -> SelectionSpec:
    return SelectionSpec(include, exclude=exclude, default_exclude=default_exclude)


ALL = rules(".*")
GROUPS = GroupsSpec()


@pytest.mark.parametrize(
    ("selection", "name", "answer"),
    [
        (rules("orders"), "orders", NAMED),
        (rules("orders"), "orders2", OUTSIDE),
        (rules("orders"), "my-orders", OUTSIDE),
        (rules(r"pay\..*"), "pay.eu", MATCHED),
        (rules(r"pay\..*", exclude=(r"pay\.tmp.*",)), "pay.tmp1", EXCLUDED),
        (rules("orders", exclude=("ord.*",)), "orders", EXCLUDED),
        (ALL, "orders.internal", DENIED),
        (ALL, "orders-internal", DENIED),
        (ALL, "orders_internal", MATCHED),
        (ALL, "orders.replica", DENIED),
        (ALL, "__connect", DENIED),
        (ALL, "_schemas", MATCHED),
        (rules(".*", default_exclude=False), "orders.replica", MATCHED),
        (rules(".*", "orders.replica"), "orders.replica", NAMED),
        (rules(".*", r"orders\.replica"), "orders.replica", NAMED),
        (rules("orders.replica", exclude=(r".*\.replica",)), "orders.replica", EXCLUDED),
        (rules("a.b.c"), "a-b_c", MATCHED),
        (rules("a.b.c"), "a.b.c", NAMED),
        (rules(r"a\.b.c"), "a-b.c", OUTSIDE),
        (rules(), "orders", OUTSIDE),
        (GROUPS, "console-consumer-17", DENIED),
        (GROUPS, "orders.replica", MATCHED),
    ],
)
def test_include_less_exclude_less_the_default_denials(
    selection: SelectionSpec, name: str, answer: SelectionResult
) -> None:
    denials = GROUP_DENIALS if selection is GROUPS else TOPIC_DENIALS
    assert Selector(selection, denials).answer(name) is answer
    assert answer.taken is (answer in (NAMED, MATCHED))


def test_entries_that_are_names_are_written_out() -> None:
    entries = {"orders": "orders", "a.b": "a.b", r"a\.b\-c": "a.b-c"}
    patterns = dict.fromkeys(("a.*", "a|b", "[ab]", r"a\d", "(a)"))
    assert {entry: written_out(entry) for entry in (*entries, *patterns)} == {**entries, **patterns}
    selector = Selector(rules("a", "b", "c.*", exclude=("b",)))
    assert selector.written_out == {"a"}
    assert selector.open_ended
    assert not Selector(rules("a", r"b\.c")).open_ended
    flow = Router((route("dc1>dc2", selection=rules("a", "b.*", "__repl.x")),)).routes["dc1>dc2"]
    assert flow.written_out == {"a"}
    assert flow.open_ended


ATOMS = st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", "é", "日", ""])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}"])).map("(?:{0[0]}){0[1]}".format),
        inner.map("(?i:{})".format),
    ),
    max_leaves=8,
)
ENTRIES = ["a", "a.b", r"a\.b", "a.*", "..", ".", "a.b.", "b|a", r"[ab]\.+", "b.a", "ba.b"]


@given(st.lists(st.sampled_from(ENTRIES), max_size=6), st.text(alphabet="ab.-", min_size=1, max_size=4))
def test_a_match_is_the_match_of_any_whole_regex(entries: list[str], name: str) -> None:
    assert NamePatterns(entries).match(name) is any(re.fullmatch(entry, name) for entry in entries)


@given(st.lists(PATTERNS, max_size=3), st.text(alphabet="abAB.-éÉ日", max_size=6))
def test_a_matched_name_begins_with_a_prefix(entries: list[str], name: str) -> None:
    patterns = NamePatterns(entries)
    assert not patterns.match(name) or any(name.startswith(prefix) for prefix in patterns.prefixes)


# Routes

PREFIX = Template("{source}.{topic}")


def route(
    name: str,
    rename: Rename = SAME_NAME,
    selection: SelectionSpec = ALL,
    undoes: SelectionSpec | None = None,
) -> Route:
    """`dc1>dc2`: the flow's name, its source and its destination."""
    source, destination = name.split(">")
    return Route(name, source, destination, selection, rename, undoes)


PREFIXED = (route("dc1>dc2", PREFIX), route("dc2>dc1", PREFIX))
RING = (route("dc1>dc2", PREFIX), route("dc2>dc3", PREFIX), route("dc3>dc1", PREFIX))
SAME = (route("dc1>dc2"), route("dc2>dc1"))
MIXED = (route("dc1>dc2", selection=rules("orders")), route("dc2>dc1", PREFIX))
ONWARD = (*SAME, route("dc2>dc3", PREFIX))
EXCLUDING = (route("dc1>dc2", PREFIX, rules(".*", exclude=("tmp.*",))),)
SAME_RING = (route("dc1>dc2"), route("dc2>dc3"), route("dc3>dc1"))
NAMED_BACK = (route("dc1>dc2", PREFIX), route("dc2>dc1", PREFIX, rules("dc1.orders")))
OWN = route("dc3>dc1", selection=rules("own"))


@pytest.mark.parametrize(
    ("routes", "flow", "topic", "verdict", "destination_topic"),
    [
        (PREFIXED, "dc1>dc2", "orders", MATCHED, "dc1.orders"),
        (PREFIXED, "dc2>dc1", "dc1.orders", RETURNS, None),
        (PREFIXED, "dc2>dc1", "dc3.orders", MATCHED, "dc2.dc3.orders"),
        (RING, "dc2>dc3", "dc1.orders", MATCHED, "dc2.dc1.orders"),
        (RING, "dc3>dc1", "dc2.dc1.orders", RETURNS, None),
        (RING, "dc3>dc1", "dc2.orders", MATCHED, "dc3.dc2.orders"),
        (SAME, "dc2>dc1", "orders", MATCHED, "orders"),
        (SAME_RING, "dc3>dc1", "orders", MATCHED, "orders"),
        (MIXED, "dc2>dc1", "orders", RETURNS, None),
        (MIXED, "dc2>dc1", "payments", MATCHED, "dc2.payments"),
        (ONWARD, "dc2>dc3", "orders", MATCHED, "dc2.orders"),
        ((*ONWARD, OWN), "dc2>dc3", "orders", MATCHED, "dc2.orders"),
        (NAMED_BACK, "dc2>dc1", "dc1.orders", NAMED, "dc2.dc1.orders"),  # its name is written out
        (EXCLUDING, "dc1>dc2", "tmp1", EXCLUDED, None),
        (SAME, "dc1>dc2", "orders.replica", DENIED, None),
        (SAME, "dc1>dc2", "__repl.ledger", OUTSIDE, None),
        (SAME, "dc1>dc2", "__consumer_offsets", OUTSIDE, None),
    ],
)
def test_verdicts(
    routes: tuple[Route, ...],
    flow: str,
    topic: str,
    verdict: SelectionResult,
    destination_topic: str | None,
) -> None:
    assert Router(routes).verdict(flow, topic) is verdict
    assert Router(routes).destination_topic(flow, topic) == destination_topic


@pytest.mark.parametrize(
    ("routes", "flow", "one"),
    [
        (SAME, "dc1>dc2", True),
        (SAME, "dc2>dc1", True),
        (SAME[:1], "dc1>dc2", False),
        (PREFIXED, "dc1>dc2", False),
        (MIXED, "dc1>dc2", False),
        ((*SAME, route("dc2>dc3")), "dc2>dc3", False),
        (SAME_RING, "dc1>dc2", True),
    ],
)
def test_topics_whose_copies_come_back_are_one(routes: tuple[Route, ...], flow: str, one: bool) -> None:
    assert Router(routes).is_one(flow, "orders") is one


def test_only_names_of_kafka_and_of_this_product_are_reserved() -> None:
    names = ("orders", "__mine", "__repl.x", "__transaction_state")
    assert [name for name in names if is_reserved(name)] == ["__repl.x", "__transaction_state"]


@pytest.mark.parametrize(
    ("rename", "there", "home"),
    [
        (PREFIX, "dc1.pay", "pay"),
        (Template("{topic}.replica"), "pay.replica", "pay"),
        (Table({"pay": "paid"}), "paid", "pay"),
        (Match(r"p(.*)", r"q\1"), "qay", "pay"),
    ],
)
def test_a_failback_brings_topics_home_under_their_old_names(rename: Rename, there: str, home: str) -> None:
    forth = route("dc1>dc2", rename, rules("pay"))
    router = Router((forth, route("dc2>dc1", rename, rules(), undoes=forth.topics)))
    back = router.routes["dc2>dc1"]
    assert router.destination_topic("dc2>dc1", there) == home
    assert back.source_topic(home) == there
    assert back.written_out == {there}
    assert not back.open_ended
    # The original flow, made active again, still takes the topics that came home.
    assert router.destination_topic("dc1>dc2", home) == there


@pytest.mark.parametrize(
    ("own", "taken"),
    [
        (rules(), {"dc1.pay", "dc1.ship"}),
        (rules("dc1.pay"), {"dc1.pay"}),
        (rules("pay"), {"dc1.pay"}),
        (rules(".*", exclude=("ship",), default_exclude=False), {"dc1.pay"}),
    ],
)
def test_a_failback_takes_the_copied_topics_and_may_be_narrowed(own: SelectionSpec, taken: set[str]) -> None:
    forth = route("dc1>dc2", PREFIX, rules("[ps].*"))
    router = Router((forth, route("dc2>dc1", PREFIX, own, undoes=forth.topics)))
    topics = dict.fromkeys(("dc1.pay", "dc1.ship", "dc1.orders", "dc1.pay.internal", "pay", "own"), 1)
    assert {topic for topic in topics if router.destination_topic("dc2>dc1", topic) is not None} == taken
    assert set(SelectedTopics().of(router, "dc2>dc1", "dc2", topics)) == taken


RULES = st.lists(
    st.sampled_from(
        [
            "orders",
            r"orders\..*",
            ".*",
            "dc1.pay",
            r"dc1\.p.*",
            "(a|ab)c.*",
            "(?i)Orders",
            r"[^a]\w*",
            "日本.*",
        ]
    ),
    min_size=1,
    max_size=3,
).map(lambda include: rules(*include, exclude=("abc",)))
TOPICS = st.sampled_from(
    ["orders", "ORDERS", "orders.eu", "dc1.pay", "dc1Xpay", "pay", "ac1", "abc", "日本1", "__repl", ""]
)
FLOWS = st.lists(
    st.tuples(RULES, st.sampled_from([SAME_NAME, PREFIX]), st.booleans()), min_size=1, max_size=4
)


def router_of(drawn: list[tuple[SelectionSpec, Rename, bool]]) -> Router:
    """Each flow with its rename, and whether a failback undoes it."""
    routes = []
    for number, (selection, rename, reverse) in enumerate(drawn):
        routes.append(Route(f"forth-{number}", "dc1", "dc2", selection, rename))
        if reverse:
            routes.append(Route(f"back-{number}", "dc2", "dc1", rules(), rename, undoes=selection))
    return Router(routes)


@given(FLOWS, st.sampled_from(["dc1", "dc2"]), TOPICS)
def test_a_topic_is_outside_of_every_flow_that_may_not_take_it(
    drawn: list[tuple[SelectionSpec, Rename, bool]], source: str, topic: str
) -> None:
    router = router_of(drawn)
    others = {name for name, one in router.routes.items() if one.route.source == source}
    others -= set(router.may_take(source, topic))
    assert {router.verdict(flow, topic) for flow in others} <= {OUTSIDE}


@given(FLOWS, st.lists(st.sets(TOPICS), min_size=1, max_size=4))
def test_each_flow_has_what_the_router_takes_of_the_newest_list(
    drawn: list[tuple[SelectionSpec, Rename, bool]], listed: list[set[str]]
) -> None:
    selected, router = SelectedTopics(), router_of(drawn)
    for topics in listed:
        newest = dict.fromkeys(topics, 1)
        for name, flow in router.routes.items():
            names = {topic: router.destination_topic(name, topic) for topic in topics}
            taken = {topic: renamed for topic, renamed in names.items() if renamed is not None}
            assert dict(selected.of(router, name, flow.route.source, newest)) == taken


def test_another_router_selects_anew() -> None:
    selected, topics = SelectedTopics(), {"orders": 1, "zz": 1}
    for topic in topics:
        router = router_of([(rules(topic), SAME_NAME, False)])
        assert dict(selected.of(router, "forth-0", "dc1", topics)) == {topic: topic}
