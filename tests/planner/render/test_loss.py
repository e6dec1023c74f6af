"""What a failover costs, in a line for each flow."""

import pytest
from msgspec.structs import replace

from planner.render.reports.loss import flow_lines, subscription_lines
from runtime.contract.views.groups_view import FlowLoss, GroupTopics, PartitionUnheard

LOSS = FlowLoss(
    flow="there",
    source="dc1",
    destination="dc2",
    state="retrying",
    source_answers=False,
    destination_answers=True,
    records=40,
    ms=2_000,
    as_of_ms=90_000,
    partitions=12,
    unheard=0,
)
LEAST = "at least 40 records, 2.0 s, as of 1970-01-01 00:01:30Z (7.0 s ago)"
GONE = PartitionUnheard(topic="orders", partition=3, why="recreated: orders is gone from dc2")
STOPPED = PartitionUnheard(topic="orders", partition=4, why="data_loss: 5 are gone", as_of_ms=10_000)


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (LOSS, LEAST),
        (
            replace(LOSS, unheard=1, unheard_partitions=[GONE]),
            f"{LEAST}; of 1 of 12 partitions nothing is known: orders-3 (recreated: orders is gone from dc2)",
        ),
        (
            replace(LOSS, older_partitions=[STOPPED]),
            f"{LEAST}; orders-4 as of 1970-01-01 00:00:10Z (data_loss: 5 are gone)",
        ),
    ],
)
def test_partitions_that_are_not_counted_are_named(loss: FlowLoss, line: str) -> None:
    assert [one.plain.strip() for one in flow_lines([loss], 97_000)] == [f"flow.there  {line}"]


def test_a_group_subscribes_to_what_all_flows_into_a_cluster_made_of_its_topics() -> None:
    groups = [
        GroupTopics(flow="there", group="billing", cluster="dc2", topics=["dc1.refunds", "dc1.orders"]),
        GroupTopics(flow="more", group="billing", cluster="dc2", topics=["dc1.payments"]),
        GroupTopics(flow="there", group="audit", cluster="dc2", topics=["dc1.orders"]),
    ]

    assert [one.plain for one in subscription_lines(groups)] == [
        "  audit    at dc2: dc1.orders",
        "  billing  at dc2: dc1.orders,dc1.payments,dc1.refunds",
        "They need isolation.level=read_committed: Kafka's default also shows copies that were aborted.",
    ]
