"""PURE: which flows a drill fails back, where several copy one topic to different clusters."""

from planner.drill.replica import DrillRoute, not_failed_back


def route(flow: str, topic: str, destination: str, source: str = "paris") -> DrillRoute:
    return DrillRoute(flow, source, destination, topic, topic, transformed=False)


def test_one_flow_alone_copies_a_topic_back() -> None:
    routes = [
        route("b", "orders", "tokyo"),
        route("a", "orders", "lima"),
        route("a", "payments", "lima"),
        route("c", "payments", "rome"),
        route("d", "refunds", "tokyo"),
    ]
    assert not_failed_back(routes) == {"b": "a", "c": "a"}


def test_a_flow_that_is_not_failed_back_leaves_its_topics_to_others() -> None:
    routes = [
        route("a", "orders", "lima"),
        route("b", "orders", "tokyo"),
        route("b", "refunds", "tokyo"),
        route("c", "refunds", "rome"),
    ]
    assert not_failed_back(routes) == {"b": "a"}


def test_topics_of_different_clusters_are_different_topics() -> None:
    assert not_failed_back([route("a", "orders", "tokyo"), route("b", "orders", "paris", "tokyo")]) == {}
