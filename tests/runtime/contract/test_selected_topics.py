"""The topics of each flow follow from a list of topics, and from each newer list."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.spec.route import Route, Router
from runtime.contract.spec.selected_topics import SelectedTopics
from runtime.contract.spec.selection import SelectionRules

INCLUDED = ["orders", r"orders\..*", ".*", "pay.ments", r"(a|ab)c.*", "(?i)Orders", r"[^a]\w*", "日本.*"]
NAMES = [
    "orders",
    "orders.eu",
    "pay.ments",
    "payXments",
    "ac1",
    "abc",
    "ORDERS",
    "zz",
    "日本1",
    "__secret",
    "",
]

flows = st.lists(st.lists(st.sampled_from(INCLUDED), min_size=1, max_size=3), min_size=1, max_size=4)
lists = st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=4)


def router(included: list[list[str]]) -> Router:
    return Router(
        Route(f"flow-{number}", "dc1", "dc2", SelectionRules(tuple(rules)))
        for number, rules in enumerate(included)
    )


@given(flows, lists)
def test_each_flow_has_what_the_router_takes_of_the_newest_list(
    included: list[list[str]], listed: list[set[str]]
) -> None:
    selected, routes = SelectedTopics(), router(included)
    for topics in listed:
        newest = dict.fromkeys(topics, 1)
        for flow in routes.routes:
            expected = {
                topic: name for topic in topics if (name := routes.destination_topic(flow, topic)) is not None
            }
            assert dict(selected.of(routes, flow, "dc1", newest)) == expected


def test_a_reverse_flow_has_the_topics_that_it_copies_back() -> None:
    undoes = SelectionRules(("orders",))
    routes = Router([Route("back", "dc2", "dc1", SelectionRules(()), undoes=undoes)])
    assert dict(SelectedTopics().of(routes, "back", "dc2", {"orders": 1, "other": 1})) == {"orders": "orders"}


def test_another_router_selects_anew() -> None:
    selected, topics = SelectedTopics(), {"orders": 1, "zz": 1}
    selected.of(router([["orders"]]), "flow-0", "dc1", topics)
    assert dict(selected.of(router([["zz"]]), "flow-0", "dc1", topics)) == {"zz": "zz"}
