"""Share groups and streams groups move with a flow, on real brokers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.layout import Layout
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Message, Request
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.queries import commit_many, committed_by, coordinated, list_groups
from tests.runtime.driver.groups_world import commit, committed, last_look
from tests.runtime.driver.test_groups_sync import copied, flow_of, look, numbered
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


class StreamsHeartbeat(Request[ErrorCode], frozen=True):
    """StreamsGroupHeartbeat: a member with one subtopology joins with epoch 0 and leaves with -1."""

    MESSAGE: ClassVar[Message] = Message(
        88,  # type: ignore[arg-type]  # the product itself never sends it
        0,
        """
        group               string
        member              string
        epoch               int32
        _endpoint_epoch     int32    = 0
        _instance           string?  = None
        _rack               string?  = None
        rebalance_ms        int32
        rest                rest
        """,
        """
        throttle_ms         int32
        error               error
        _message            string?
        _members            rest
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    JOINING: ClassVar[Layout] = Layout(
        """
        _has_topology       int8     = 1
        _topology_epoch     int32    = 0
        subtopologies       []
          name              string
          topics            []string
          _patterns         []string = ()
          _changelog        []string = ()
          _sinks            []string = ()
          _sources          []string = ()
          _copartitions     []string = ()
        _no_tags            int8     = 0
        _active             []string = ()
        _standby            []string = ()
        _warmup             []string = ()
        _process            string   = "process"
        _endpoint           int8     = -1
        _client_tags        []string = ()
        _task_offsets       []string = None
        _task_end_offsets   []string = None
        _shutdown           bool     = False
        """,
        0,
    )
    LEAVING: ClassVar[Layout] = Layout(
        """
        _no_topology        int8     = -1
        _active             []string = None
        _standby            []string = None
        _warmup             []string = None
        _process            string?  = None
        _endpoint           int8     = -1
        _client_tags        []string = None
        _task_offsets       []string = None
        _task_end_offsets   []string = None
        _shutdown           bool     = False
        """,
        0,
    )

    group: str
    member: str
    epoch: int
    topic: str

    def values(self, version: int) -> Any:
        if self.epoch:
            (rest,) = self.LEAVING.encode(version, None)
        else:
            (rest,) = self.JOINING.encode(version, [("0", [self.topic])])
        return self.group, self.member, self.epoch, -1 if self.epoch else 1500, rest

    def result(self, _throttle_ms: int, error: ErrorCode) -> ErrorCode:
        return error


def streams_member(side: Side, group: str, topic: str, *epochs: int) -> str:
    """A member of a streams application sends its heartbeats. Returns the kind of the group after them."""

    async def work() -> str:
        async with await KafkaCluster.open(wire_settings(side.bootstrap, {})) as cluster:
            for epoch in epochs:
                beat = StreamsHeartbeat(group, f"{group}-member", epoch, topic)
                kind = CoordinatorKind.GROUP
                error = await coordinated(cluster, kind, group, beat, within=10, resend=True)
                assert error is ErrorCode.NONE
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
