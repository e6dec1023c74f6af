"""A group's offset is written while this driver leads (R10) and no member is connected."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.contract.groups import TranslatedOffset
from runtime.contract.records.group_records import Checkpoint, GroupPartition
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.duties import group_offset_writer
from runtime.driver.duties.group_offset_writer import GroupOffsetWriter, GroupSyncState
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.groups.translation import GroupOffsetSides, PlacedOffset
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import (
    MANY_GROUPS,
    CommittedOffset,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    Offsets,
)
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import CoordinatorKind
from tests.fakes.clock import jumping
from tests.fakes.internal_topics import TransactionalTopics
from tests.runtime.slot.world import flow_spec

THERE = TopicPartition("dc1.orders", 0)
NOW = 1_800_000_000_000
ITEM = GroupPartition("billing", "orders", 0)


class Destination(TransactionalTopics):
    """One broker. It coordinates the group, which is in `state`, and notes what is done in order."""

    def __init__(self, state: str) -> None:
        super().__init__({naming.CHECKPOINTS: []})
        self.brokers = {1: ("localhost", 1)}
        self.done: list[Any] = []
        self._state = state

    def know_coordinators(self, kind: CoordinatorKind, nodes: object, *, complete: bool) -> None: ...

    async def connection(self, node: int, purpose: str, within: float) -> Any:
        async def call(request: OffsetFetchRequest, within: float) -> dict[str, Offsets]:
            return {group: {} for group in request.groups}

        return SimpleNamespace(version_of=lambda _: MANY_GROUPS, call=call)

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        match request:
            case ListGroupsRequest():
                return [ListedGroup("billing", "", self._state)]
            case ProduceRequest():
                self.done.append("checkpoint")
                (one,) = request.partitions
                produced = ProducedPartition(one.topic, one.partition, ErrorCode.NONE, 0, -1, 0)
                return ProduceResponse(0, (produced,))
            case OffsetCommitRequest():
                self.done.append(dict(request.offsets))
                return dict.fromkeys(request.offsets, ErrorCode.NONE)
        return await super().call(node, request, purpose, within)

    async def ensure(self) -> None:
        self.done.append("leads")


class Refusing(Destination):
    """A member of the group joins before the commit arrives."""

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, OffsetCommitRequest):
            return dict.fromkeys(request.offsets, ErrorCode.UNKNOWN_MEMBER_ID)
        return await super().call(node, request, purpose, within)


class ShortMetadata(Destination):
    """Its `offset.metadata.max.bytes` is smaller than that of the source."""

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        codes = await super().call(node, request, purpose, within)
        if not isinstance(request, OffsetCommitRequest):
            return codes
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return {
            at: too_large if offset.metadata else ErrorCode.NONE for at, offset in request.offsets.items()
        }


class SharedCheckpoints(GroupOffsetWriter):
    """Another flow of the job reads the checkpoints as soon as they are written."""

    posted: Mapping[GroupPartition, Checkpoint]

    async def _post(self, checkpoints: Mapping[GroupPartition, Checkpoint]) -> None:
        self.posted = checkpoints
        self._sides.last = checkpoints.get  # type: ignore[method-assign,assignment]


class Replaced(Destination):
    async def ensure(self) -> None:
        raise DriverFenced("90")


def written(destination: Destination) -> list[Any]:
    """Offset 7 of the source is 5 at the destination."""

    async def work() -> None:
        sides = SimpleNamespace(destination=destination, last=lambda _: None, wrote=lambda *_: ())
        writer = GroupOffsetWriter(
            flow_spec("flow"),
            cast(Leadership, destination),
            cast(GroupOffsetSides, sides),
            GroupSyncState("flow"),
            {ITEM: CommittedOffset(7, 31, "kept")},
        )
        await writer.commit_offsets({ITEM: PlacedOffset(THERE, TranslatedOffset(5))})

    asyncio.run(work())
    return destination.done


def test_a_commit_has_the_metadata_and_no_leader_epoch_and_its_checkpoint_comes_first() -> None:
    commit = {THERE: CommittedOffset(5, -1, "kept")}
    assert written(Destination("Empty")) == ["leads", "checkpoint", "leads", commit]


def test_an_offset_is_committed_without_metadata_where_these_are_too_large() -> None:
    """A group must not stay behind at a failover because of its consumers' comments."""
    commits = [{THERE: CommittedOffset(5, -1, metadata)} for metadata in ("kept", None)]
    assert written(ShortMetadata("Empty")) == ["leads", "checkpoint", "leads", *commits]


@jumping
async def test_checkpoints_go_on_at_their_interval_after_the_wall_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destination, wall_ms = Destination("Stable"), NOW
    monkeypatch.setattr(group_offset_writer, "now_ms", lambda: wall_ms)
    sides = SimpleNamespace(destination=destination, last=lambda _: None, wrote=lambda *_: ())
    flow, state = flow_spec("flow", checkpoints_every_ms=60_000), GroupSyncState("flow")
    for posted, pause_s in ((1, 30.0), (1, 31.0), (2, 0.0)):
        writer = GroupOffsetWriter(
            flow,
            cast(Leadership, destination),
            cast(GroupOffsetSides, sides),
            state,
            {ITEM: CommittedOffset(7, 31, "kept")},
        )
        await writer.commit_offsets({ITEM: PlacedOffset(THERE, TranslatedOffset(5))})
        assert destination.done.count("checkpoint") == posted
        wall_ms -= 3_600_000
        await asyncio.sleep(pause_s)


def test_nothing_is_committed_while_a_member_is_connected() -> None:
    assert written(Destination("Stable")) == ["leads", "checkpoint"]


def test_a_driver_that_was_replaced_writes_neither_checkpoint_nor_offset() -> None:
    destination = Replaced("Empty")
    with pytest.raises(DriverFenced):
        written(destination)
    assert destination.done == []


def test_a_refused_offset_keeps_what_was_written_before_it() -> None:
    before = Checkpoint(4, 4, 0, State.TRANSLATED, THERE.topic, written=4, written_source=4)
    sides = SimpleNamespace(
        destination=Refusing("Empty"), last={ITEM: before}.get, wrote=lambda *_: frozenset({4})
    )

    async def work() -> Mapping[GroupPartition, Checkpoint]:
        writer = SharedCheckpoints(
            flow_spec("flow"),
            cast(Leadership, sides.destination),
            cast(GroupOffsetSides, sides),
            GroupSyncState("flow"),
            {ITEM: CommittedOffset(7, 31, "kept")},
        )
        await writer.commit_offsets({ITEM: PlacedOffset(THERE, TranslatedOffset(5))})
        return writer.posted

    refused = asyncio.run(work())[ITEM]
    assert refused.state is State.REFUSED
    assert (refused.destination, refused.written, refused.written_source) == (5, 4, 4)
