"""Share groups and streams groups move with a flow, on real brokers."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.queries import commit_many, committed_by, coordinated, list_groups
from runtime.lab.lab import Lab
from tests.labs import spec
from tests.runtime.conftest import sides_of
from tests.runtime.driver.groups_world import commit, committed, last_look
from tests.runtime.driver.test_groups_sync import copied, flow_of, look, numbered
from tests.runtime.slot.world import Side

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
]  # on brokers of Kafka 4.2 and newer
Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    made.up([spec(name, version="4.4.0") for name in ("dc1", "dc2")])
    try:
        yield made
    finally:
        made.down(purge=True)


@pytest.fixture(scope="module")
def sides(newest: Lab) -> dict[str, Side]:
    return sides_of(newest)


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
    numbers, _ = look(sides, flow)
    assert (numbers.groups, numbers.translated, numbers.written) == (1, 1, 1)
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
    numbers, _ = look(sides, flow)
    assert (numbers.pending, start(sides["dc2"], group, there)) == (1, None)
    assert asyncio.run(last_look(sides, flow, lost="dc1")) == ()
    assert left(sides["dc2"], there, start(sides["dc2"], group, there)) == []


@dataclass(frozen=True)
class StreamsAnswer:
    throttle_ms: int
    error: ErrorCode
    message: str | None


@dataclass(frozen=True)
class StreamsHeartbeat:
    """StreamsGroupHeartbeat v0: a member with one subtopology joins with epoch 0 and leaves with -1."""

    API: ClassVar[Api] = 88  # type: ignore[assignment]  # the product itself never sends it
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    group: str
    member: str
    epoch: int
    topic: str

    def body(self, version: int) -> Sequence[Buffer]:
        writer = Writer()
        writer.compact_string(self.group)
        writer.compact_string(self.member)
        writer.int32(self.epoch)
        writer.int32(0)  # endpoint epoch
        writer.compact_string(None)
        writer.compact_string(None)
        writer.int32(1500 if self.epoch == 0 else -1)
        if self.epoch == 0:
            writer.int8(1)  # the topology is there
            writer.int32(0)
            writer.count(1)
            writer.compact_string("0")
            writer.count(1)
            writer.compact_string(self.topic)
            for _ in range(5):
                writer.count(0)
            writer.no_tags()
            writer.no_tags()
        else:
            writer.int8(-1)
        for _ in range(3):
            writer.count(0 if self.epoch == 0 else None)
        writer.compact_string("process" if self.epoch == 0 else None)
        writer.int8(-1)  # user endpoint
        writer.count(0 if self.epoch == 0 else None)
        writer.count(None)
        writer.count(None)
        writer.boolean(False)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> StreamsAnswer:
        return StreamsAnswer(reader.int32(), reader.error_code(), reader.nullable_string())


def streams_member(side: Side, group: str, topic: str, *epochs: int) -> str:
    """A member of a streams application sends its heartbeats. Returns the kind of the group after them."""

    async def work() -> str:
        async with await KafkaCluster.open(wire_settings(side.bootstrap, {})) as cluster:
            for epoch in epochs:
                beat: Any = StreamsHeartbeat(group, f"{group}-member", epoch, topic)
                kind = CoordinatorKind.GROUP
                answer = await coordinated(
                    cluster, kind, group, beat, lambda one: one.error, within=10, resend=True
                )
                assert answer.error is ErrorCode.NONE, answer
            return (await list_groups(cluster)).groups[group].kind

    return asyncio.run(work())


def test_a_streams_group_moves_like_a_consumer_group(sides: dict[str, Side], fresh: Fresh) -> None:
    """Also into a streams group that is there already, and the application joins with its offsets."""
    flow = flow_of(fresh, fresh("inputs"))
    topic = of_two_waves(sides, fresh, flow)
    new, known, there = f"{topic}-new", f"{topic}-known", f"copy.{topic}"
    assert streams_member(sides["dc2"], known, there, 0, -1) == "streams"
    for group in (new, known):
        assert streams_member(sides["dc1"], group, topic, 0, -1) == "streams"
        commit(sides["dc1"], group, {(topic, 0): 7})
    numbers, _ = look(sides, flow)
    assert (numbers.groups, numbers.translated, numbers.written) == (2, 2, 2)
    for group in (new, known):
        assert streams_member(sides["dc2"], group, there, 0) == "streams"
        place = committed(sides["dc2"], group)[there, 0]
        assert left(sides["dc2"], there, place) == [b"7", b"8", b"9"]
    commit(sides["dc1"], known, {(topic, 0): 9})
    refused, _ = look(sides, flow)
    assert refused.refused == 2, "members are connected at the destination"
