"""Which topics a flow takes, seen together with the other flows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.rename import SAME_NAME, Match, Rename, Table, Template
from runtime.contract.spec.route import Route, RouteDecision, Router, is_reserved
from runtime.contract.spec.selection import SelectionRules

PREFIX = Template("{source}.{topic}")
ALL = SelectionRules((".*",))


def route(
    text: str, rename: Rename = SAME_NAME, rules: SelectionRules = ALL, undoes: SelectionRules | None = None
) -> Route:
    """`dc1>dc2`: the flow's name, its source and its destination."""
    source, destination = text.split(">")
    return Route(text, source, destination, rules, rename, undoes)


PREFIXED = (route("dc1>dc2", PREFIX), route("dc2>dc1", PREFIX))
RING = (route("dc1>dc2", PREFIX), route("dc2>dc3", PREFIX), route("dc3>dc1", PREFIX))
SAME = (route("dc1>dc2"), route("dc2>dc1"))
MIXED = (route("dc1>dc2", rules=SelectionRules(("orders",))), route("dc2>dc1", PREFIX))


@pytest.mark.parametrize(
    ("routes", "flow", "topic", "verdict"),
    [
        (PREFIXED, "dc1>dc2", "orders", RouteDecision.TAKEN),
        (PREFIXED, "dc2>dc1", "dc1.orders", RouteDecision.RETURNS),
        (PREFIXED, "dc2>dc1", "dc3.orders", RouteDecision.TAKEN),
        (RING, "dc2>dc3", "dc1.orders", RouteDecision.TAKEN),
        (RING, "dc3>dc1", "dc2.dc1.orders", RouteDecision.RETURNS),
        (RING, "dc3>dc1", "dc2.orders", RouteDecision.TAKEN),
        (SAME, "dc2>dc1", "orders", RouteDecision.TAKEN),
        (MIXED, "dc2>dc1", "orders", RouteDecision.RETURNS),
        (MIXED, "dc2>dc1", "payments", RouteDecision.TAKEN),
        ((*SAME, route("dc2>dc3", PREFIX)), "dc2>dc3", "orders", RouteDecision.TAKEN),
        (
            (*SAME, route("dc2>dc3", PREFIX), route("dc3>dc1", rules=SelectionRules(("own",)))),
            "dc2>dc3",
            "orders",
            RouteDecision.TAKEN,
        ),
        (SAME, "dc1>dc2", "orders.replica", RouteDecision.DENIED),
        (SAME, "dc1>dc2", "__repl.ledger", RouteDecision.OUTSIDE),
        (SAME, "dc1>dc2", "__consumer_offsets", RouteDecision.OUTSIDE),
    ],
)
def test_verdicts(routes: tuple[Route, ...], flow: str, topic: str, verdict: RouteDecision) -> None:
    assert Router(routes).verdict(flow, topic) is verdict


@pytest.mark.parametrize(
    ("routes", "flow", "topic", "one"),
    [
        (SAME, "dc1>dc2", "orders", True),
        (SAME, "dc2>dc1", "orders", True),
        (SAME[:1], "dc1>dc2", "orders", False),
        (PREFIXED, "dc1>dc2", "orders", False),
        (MIXED, "dc1>dc2", "orders", False),
        ((*SAME, route("dc2>dc3")), "dc2>dc3", "orders", False),
        ((route("dc1>dc2"), route("dc2>dc3"), route("dc3>dc1")), "dc1>dc2", "orders", True),
    ],
)
def test_topics_whose_copies_come_back_are_one(
    routes: tuple[Route, ...], flow: str, topic: str, one: bool
) -> None:
    assert Router(routes).is_one(flow, topic) is one


def test_a_name_written_out_goes_back_all_the_same() -> None:
    named = Router((route("dc1>dc2", PREFIX), route("dc2>dc1", PREFIX, SelectionRules(("dc1.orders",)))))
    assert named.destination_topic("dc2>dc1", "dc1.orders") == "dc2.dc1.orders"


def test_excluded_is_excluded() -> None:
    router = Router((route("dc1>dc2", PREFIX, SelectionRules((".*",), exclude=("tmp.*",))),))
    assert router.verdict("dc1>dc2", "tmp1") is RouteDecision.EXCLUDED
    assert router.destination_topic("dc1>dc2", "tmp1") is None
    assert router.destination_topic("dc1>dc2", "orders") == "dc1.orders"


def test_same_names_in_a_ring_of_three_are_taken() -> None:
    router = Router((route("dc1>dc2"), route("dc2>dc3"), route("dc3>dc1")))
    assert router.destination_topic("dc3>dc1", "orders") == "orders"


def test_nothing_is_reserved_that_belongs_to_users() -> None:
    assert [
        name for name in ("orders", "__mine", "__repl.x", "__transaction_state") if is_reserved(name)
    ] == [
        "__repl.x",
        "__transaction_state",
    ]


@pytest.mark.parametrize(
    ("rename", "there", "home"),
    [
        (PREFIX, "dc1.pay", "pay"),
        (Template("{topic}.replica"), "pay.replica", "pay"),
        (Table((("pay", "paid"),)), "paid", "pay"),
        (Match(r"p(.*)", r"q\1"), "qay", "pay"),
    ],
)
def test_a_failback_brings_topics_home_under_their_old_names(rename: Rename, there: str, home: str) -> None:
    forth = route("dc1>dc2", rename, SelectionRules(("pay",)))
    router = Router((forth, route("dc2>dc1", rename, SelectionRules(()), undoes=forth.rules)))
    assert router.destination_topic("dc2>dc1", there) == home
    assert router.routes["dc2>dc1"].source_topic(home) == there
    assert router.routes["dc2>dc1"].written_out == {there}
    assert not router.routes["dc2>dc1"].open_ended
    # The original flow, made active again, still takes what came home.
    assert router.destination_topic("dc1>dc2", home) == there


@pytest.mark.parametrize(
    ("own", "taken"),
    [
        (SelectionRules(()), {"dc1.pay", "dc1.ship"}),
        (SelectionRules(("dc1.pay",)), {"dc1.pay"}),
        (SelectionRules(("pay",)), {"dc1.pay"}),
        (SelectionRules((".*",), exclude=("ship",), default_exclude=False), {"dc1.pay"}),
    ],
)
def test_a_failback_takes_what_was_copied_and_may_be_narrowed(own: SelectionRules, taken: set[str]) -> None:
    forth = route("dc1>dc2", PREFIX, SelectionRules(("[ps].*",)))
    router = Router((forth, route("dc2>dc1", PREFIX, own, undoes=forth.rules)))
    topics = ("dc1.pay", "dc1.ship", "dc1.orders", "dc1.pay.internal", "pay", "own")
    assert {topic for topic in topics if router.destination_topic("dc2>dc1", topic) is not None} == taken


def test_topics_that_are_written_out() -> None:
    routes = Router((route("dc1>dc2", rules=SelectionRules(("a", "b.*", "__repl.x"))),)).routes
    assert routes["dc1>dc2"].written_out == {"a"}
    assert routes["dc1>dc2"].open_ended


RULES = st.lists(
    st.sampled_from(
        ["orders", r"orders\..*", ".*", "dc1.pay", r"dc1\.p.*", "(a|ab)c.*", "(?i)Orders", "日本.*"]
    ),
    min_size=1,
    max_size=3,
).map(lambda include: SelectionRules(tuple(include), exclude=("abc",)))


@given(
    st.lists(st.tuples(RULES, st.sampled_from([SAME_NAME, PREFIX]), st.booleans()), min_size=1, max_size=4),
    st.sampled_from(["dc1", "dc2"]),
    st.sampled_from(
        ["orders", "ORDERS", "orders.eu", "dc1.pay", "dc1Xpay", "pay", "ac1", "abc", "日本1", "__repl"]
    ),
)
def test_a_topic_is_outside_of_every_flow_that_may_not_take_it(
    drawn: list[tuple[SelectionRules, Rename, bool]], source: str, topic: str
) -> None:
    routes = []
    for number, (rules, rename, reverse) in enumerate(drawn):
        routes.append(Route(f"forth-{number}", "dc1", "dc2", rules, rename))
        if reverse:
            routes.append(Route(f"back-{number}", "dc2", "dc1", SelectionRules(()), rename, undoes=rules))
    router = Router(routes)
    others = {one.flow for one in routes if one.source == source} - set(router.may_take(source, topic))
    assert {router.verdict(flow, topic) for flow in others} <= {RouteDecision.OUTSIDE}
