"""Topics with who reads and who writes them, from what brokers told."""

from __future__ import annotations

from typing import Any

from runtime.audit.read.clients import ClientFacts, GroupDescription, GroupMember, topic_views
from runtime.contract.views.records_view import TopicClients
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.transactions import ActiveProducer

ORDERS = [TopicPartition("orders", number) for number in range(2)]


def seen(**changes: Any) -> TopicClients:
    facts: dict[str, Any] = {
        "topics": {"orders": 2},
        "ends": dict.fromkeys(ORDERS, 100),
        "groups": {
            "billing": GroupDescription("Stable", (GroupMember("app-1", "/10.0.0.3", "m", {"orders": (0,)}),))
        },
        "offsets": {"billing": {ORDERS[0]: 70, ORDERS[1]: 90}},
        **changes,
    }
    (topic,) = topic_views(ClientFacts(**facts))
    return topic


def test_a_group_by_what_it_committed_and_by_its_members():
    (group,) = seen().consumers
    (member,) = group.members
    assert (group.group, group.state, group.lag, group.records_per_s) == ("billing", "Stable", 40, None)
    assert (member.client_id, member.host, member.partitions) == ("app-1", "10.0.0.3", [0])


def test_members_that_committed_nothing_yet_are_consumers_too():
    (group,) = seen(offsets={}).consumers
    assert (group.lag, [one.offset for one in group.partitions]) == (None, [None])


def test_a_group_that_is_not_connected_is_known_by_its_commits():
    (group,) = seen(groups={"billing": GroupDescription("Empty")}).consumers
    assert (group.state, group.members, group.lag) == ("Empty", [], 40)


def test_a_rate_is_what_was_committed_between_two_looks():
    (group,) = seen(before={"billing": {ORDERS[0]: 50, ORDERS[1]: 90}}, elapsed_ms=10_000).consumers
    assert group.records_per_s == 2


def test_producers_with_their_names_where_there_are_any():
    mine = ActiveProducer(7, 0, 5, 2_000, 0, -1)
    till = ActiveProducer(8, 3, 5, 3_000, 0, 42)
    topic = seen(
        producers={ORDERS[0]: (mine, till), ORDERS[1]: (mine,)},
        transactional_ids={7: "repl.dc2.0", 8: "till-1"},
        owners={7: "one"},
    )
    latest, flow = topic.producers
    assert (latest.transactional_id, latest.flow, latest.open_since) == ("till-1", None, {0: 42})
    assert (flow.producer_id, flow.flow, flow.partitions, flow.open_since) == (7, "one", [0, 1], {})
