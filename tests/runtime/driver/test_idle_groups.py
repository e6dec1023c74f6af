"""Group sync of groups that commit nothing reads their offsets, and does nothing else."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.group_records import GroupPartition
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.duties import group_sync
from runtime.driver.duties.group_sync import CommittedOffsetsReader, GroupSync, OffsetsByTopic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.groups import CommittedOffset
from tests.fakes.groups import GroupCluster
from tests.runtime.driver.test_final_group_sync import AT, TOPIC, Ending

GROUPS = {"billing": {AT: 7}, "audit": {AT: 3}}


class CountedTopics(GroupCluster):
    """It counts how often internal topics are read: each read begins with a request for their end."""

    reads = 0

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        self.reads += type(request).__name__ in ("ListOffsetsRequest", "FetchRequest")
        return await super().call(node, request, purpose, within)


class Syncing(Ending):
    """The flow is active, two groups are at its source, and each pass reads their offsets anew."""

    destination_of = CountedTopics

    def __init__(self) -> None:
        super().__init__({}, {"billing": 7, "audit": 3}, "active")
        assert self.source is not None
        assert isinstance(self.destination, CountedTopics)
        self.at_source, self.counted = self.source.committed, self.destination
        self._flow = replace(self._flow, groups=GroupsSpec(every_ms=0))
        job, shared = self.context()
        self.sync = GroupSync(job, self._flow, shared, CommittedOffsetsReader(), {})

    async def passes(self, number: int) -> int:
        """Runs some passes, and returns how many reads of internal topics they needed."""
        before = self.counted.reads
        for _ in range(number):
            await self.sync.sync_once()
            assert self.sync.notes == {}
        return self.counted.reads - before


@pytest.fixture(autouse=True)
def _each_pass_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_sync, "_LONG_READ_S", 60.0)


async def test_idle_groups_cost_no_read_of_the_ledger_and_a_commit_is_seen_at_once() -> None:
    syncing = Syncing()
    assert await syncing.passes(1) > 0
    assert syncing.at_destination() == {"billing": 107, "audit": 103}
    assert await syncing.passes(5) == 0
    syncing.at_source["audit"][AT] = 9
    assert await syncing.passes(1) > 0
    assert syncing.at_destination() == {"billing": 107, "audit": 109}
    assert await syncing.passes(5) == 0


async def test_a_pass_over_all_offsets_follows_after_a_time_though_no_group_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The destination may have changed."""
    syncing = Syncing()
    await syncing.passes(2)
    syncing.destination.committed["audit"].clear()
    monkeypatch.setattr(group_sync, "_FULL_PASS_S", -1.0)
    assert await syncing.passes(1) > 0
    assert syncing.at_destination() == {"billing": 107, "audit": 103}


async def test_a_group_that_is_deleted_at_the_source_is_not_shown_any_more() -> None:
    syncing = Syncing()
    await syncing.passes(2)
    del syncing.at_source["audit"]
    await syncing.passes(2)
    assert [one.group for one in syncing.sync.snapshots()] == ["billing"]


Groups = dict[str, dict[TopicPartition, CommittedOffset]]
PLACES = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 1))
READS = st.lists(
    st.dictionaries(
        st.sampled_from(["g", "h", "i"]),
        st.dictionaries(PLACES, st.builds(CommittedOffset, st.integers(0, 2))),
    ),
    max_size=6,
)


@given(READS)
def test_offsets_by_topic_are_those_of_the_newest_read_and_objects_change_with_them(
    reads: list[Groups],
) -> None:
    offsets = OffsetsByTopic()
    for groups in reads:
        before = offsets.topics
        offsets.update_all(groups)
        expected: dict[str, dict[GroupPartition, CommittedOffset]] = {}
        for group, committed in groups.items():
            for at, offset in committed.items():
                expected.setdefault(at.topic, {})[GroupPartition(group, *at)] = offset
        assert offsets.topics == expected
        assert (offsets.topics is before) is (before == expected)
        for topic in before.keys() & expected.keys():
            assert (offsets.topics[topic] is before[topic]) is (before[topic] == expected[topic])


def test_offsets_of_more_groups_are_added() -> None:
    offsets = OffsetsByTopic()
    offsets.update({"g": {AT: CommittedOffset(1)}})
    offsets.update({"h": {AT: CommittedOffset(2)}})
    assert {item.group: one.offset for item, one in offsets.topics[TOPIC].items()} == {"g": 1, "h": 2}


async def test_each_flow_is_asked_about_a_group_once() -> None:
    """Regexes of many flows, tried for many groups in each read, would cost a driver most of its time."""
    asked: list[str] = []

    def selects(group: str) -> bool:
        asked.append(group)
        return group == "billing"

    cluster, reader = cast(KafkaCluster, GroupCluster({}, GROUPS)), CommittedOffsetsReader()
    for _ in range(3):
        snapshot = await reader.read(cluster, "flow", selects, -1.0)
    assert sorted(asked) == ["audit", "billing"]
    assert snapshot.covered == {"billing"}
    reader.leave("flow", selects)
    assert (await reader.read(cluster, "other", lambda group: group == "audit", -1.0)).covered == {"audit"}
