"""Which topics a flow's `start` is meant for."""

from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import Generation, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, Latest, SelectionSpec, TableRule
from runtime.driver.flows.start import group_by_start, initial_topics, selection

FLOW = FlowSpec(
    name="main", source="dc1", destination="dc2", topics=SelectionSpec(include=["a.*"]), start=Latest()
)
NEVER = Generation(1, "job", "active", "driver", [], "c1", "c2", 0)
BEGUN = replace(NEVER, begun=selection(FLOW), awaited=["a2", "a3"])


def assigned(topic: str, partition: int = 0) -> AssignedPartition:
    return AssignedPartition("main", topic, partition, destination_topic=topic)


def test_all_that_is_there_when_nothing_has_begun() -> None:
    assert initial_topics(FLOW, NEVER, {"a1", "a2"}, {"a1"}) == {"a2"}
    assert initial_topics(FLOW, None, {"a1", "a2"}, set()) == {"a1", "a2"}


def test_once_it_has_begun_only_what_is_awaited_still() -> None:
    assert initial_topics(FLOW, BEGUN, {"a1", "a2", "a3", "a4"}, {"a1", "a3"}) == {"a2"}


def test_another_selection_begins_anew() -> None:
    wider = replace(FLOW, topics=SelectionSpec(include=["a.*", "b"]))
    assert initial_topics(wider, BEGUN, {"a1", "a4", "b"}, {"a1"}) == {"a4", "b"}


def test_only_what_decides_about_topics_makes_another_selection() -> None:
    assert selection(replace(FLOW, state="paused", rpo_ms=9)) == selection(FLOW)
    assert selection(replace(FLOW, source="dc3")) != selection(FLOW)
    tables = [TableRule(names={"a": "x", "b": "y"}), TableRule(names={"b": "y", "a": "x"})]
    assert len({selection(replace(FLOW, rename=one)) for one in tables}) == 1


def test_a_partition_that_was_added_starts_at_0_though_its_topic_began_at_the_start() -> None:
    new = [assigned("a1", 1), assigned("a2"), assigned("a4")]
    found = group_by_start(FLOW, {"a1", "a2"}, new, [PartitionKey("main", "a1", 0)])
    assert [(start, [one.topic for one in some]) for start, some in found] == [
        (Latest(), []),
        (Latest(), ["a2"]),
        (None, ["a1", "a4"]),
    ]
