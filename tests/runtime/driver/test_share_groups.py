"""Share groups and streams groups move with a flow, on real brokers."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.queries import commit_many, committed_by, list_groups
from tests.runtime.driver.groups_world import last_look, look
from tests.runtime.driver.test_groups_sync import copied, flow_of, numbered
from tests.runtime.slot.world import Side

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def set_start(side: Side, group: str, topic: str, offset: int) -> None:
    """Sets a start offset as `kafka-share-groups.sh --reset-offsets` does."""
    at = TopicPartition(topic, 0)

    async def work() -> None:
        async with await KafkaCluster.open(wire_settings(side.bootstrap, {})) as cluster:
            done = await commit_many(cluster, {group: {at: CommittedOffset(offset, of_share_group=True)}})
            assert done == {group: {at: ErrorCode.NONE}}

    asyncio.run(work())


def start(side: Side, group: str, topic: str) -> int | None:
    async def work() -> int | None:
        async with await KafkaCluster.open(wire_settings(side.bootstrap, {})) as cluster:
            listed = await list_groups(cluster)
            read = await committed_by(cluster, [group], share=listed.share)
            found = read.offsets.get(group, {}).get(TopicPartition(topic, 0))
            assert found is None or found.of_share_group
            return None if found is None else found.offset

    return asyncio.run(work())


def of_two_waves(sides: Mapping[str, Side], fresh: Fresh, flow: FlowSpec) -> str:
    """Copies ten records in two transactions, so that a marker at the destination shifts the offsets."""
    (topic,) = flow.topics.include
    sides["dc1"].create(topic)
    sides["dc2"].create(f"copy.{topic}")
    for first in (0, 5):
        sides["dc1"].write(topic, numbered(5, first))
        copied(sides, fresh, flow)
    return topic


def left(side: Side, topic: str, offset: int | None) -> list[bytes | None]:
    assert offset is not None
    return [row.value for row in side.read(topic, 1)[0] if row.offset >= offset]


def test_a_share_group_moves_by_its_start_offset(sides: dict[str, Side], fresh: Fresh) -> None:
    flow = flow_of(fresh, fresh("alerts"))
    topic = of_two_waves(sides, fresh, flow)
    group, there = f"{topic}-share", f"copy.{topic}"
    set_start(sides["dc1"], group, topic, 7)
    looked = look(sides, flow)
    assert (looked.states, looked.written) == ({"translated": 1}, 1)
    assert left(sides["dc2"], there, start(sides["dc2"], group, there)) == [b"7", b"8", b"9"]

    end = sides["dc2"].ends(there)[0][1]
    set_start(sides["dc2"], group, there, end)
    set_start(sides["dc1"], group, topic, 8)
    look(sides, flow)
    assert start(sides["dc2"], group, there) == end, "a group that went on at the destination stays"


def test_the_last_translation_knows_share_groups_without_the_source(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    flow = flow_of(fresh, fresh("alerts"))
    topic = of_two_waves(sides, fresh, flow)
    group, there = f"{topic}-share", f"copy.{topic}"
    sides["dc1"].write(topic, numbered(5, 10))
    set_start(sides["dc1"], group, topic, 12)
    assert look(sides, flow).states == {"pending": 1}
    assert start(sides["dc2"], group, there) is None
    assert asyncio.run(last_look(sides, flow, lost="dc1")) == ()
    assert left(sides["dc2"], there, start(sides["dc2"], group, there)) == []
