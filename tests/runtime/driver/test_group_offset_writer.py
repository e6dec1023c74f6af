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
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.duties import group_offset_writer
from runtime.driver.duties.group_offset_writer import GroupOffsetWriter, GroupSyncState
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.groups.translation import GroupOffsetSides, PlacedOffset
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import (
    CommittedOffset,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
)
from runtime.kafka.protocol.produce import ProduceRequest
from tests.fakes.clock import virtual
from tests.fakes.groups import GroupCluster
from tests.runtime.slot.world import flow_spec

THERE = TopicPartition("dc1.orders", 0)
FLOW = flow_spec("flow")
ITEM = GroupPartition("billing", "orders", 0)


class Destination(GroupCluster):
    """It coordinates the group, which is in `state`, and lists what is done in order."""

    def __init__(self, state: str = "Empty") -> None:
        super().__init__({naming.CHECKPOINTS: []}, {})
        self.done: list[Any] = []
        self._state = state

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        match request:
            case ListGroupsRequest():
                return [ListedGroup("billing", "", self._state)]
            case ProduceRequest():
                self.done.append("checkpoint")
            case OffsetCommitRequest():
                self.done.append(dict(request.offsets))
        return await super().call(node, request, purpose, within)

    async def ensure(self) -> None:
        self.done.append("leads")


class SharedCheckpoints(GroupOffsetWriter):
    """Another flow of the job reads the checkpoints as soon as they are written."""

    posted: Mapping[GroupPartition, Checkpoint]

    async def _post(self, checkpoints: Mapping[GroupPartition, Checkpoint]) -> None:
        await super()._post(checkpoints)
        self.posted = checkpoints
        self._sides.last = checkpoints.get  # type: ignore[method-assign,assignment]


class Replaced(Destination):
    async def ensure(self) -> None:
        raise DriverFenced("90")


async def write(
    destination: Destination,
    before: Checkpoint | None = None,
    flow: FlowSpec = FLOW,
    state: GroupSyncState | None = None,
) -> SharedCheckpoints:
    """Offset 7 of the source is 5 at the destination, where the checkpoint `before` has written an offset."""
    wrote = frozenset({before.written} if before is not None else ())
    sides = SimpleNamespace(destination=destination, last={ITEM: before}.get, wrote=lambda *_: wrote)
    writer = SharedCheckpoints(
        flow,
        cast(Leadership, destination),
        cast(GroupOffsetSides, sides),
        state or GroupSyncState("flow"),
        {ITEM: CommittedOffset(7, 31, "kept")},
    )
    await writer.commit_offsets({ITEM: PlacedOffset(THERE, TranslatedOffset(5))})
    return writer


COMMIT = {THERE: CommittedOffset(5, -1, "kept")}


async def test_a_commit_has_the_metadata_and_no_leader_epoch_and_its_checkpoint_comes_first() -> None:
    destination = Destination()
    await write(destination)
    assert destination.done == ["leads", "checkpoint", "leads", COMMIT]


async def test_an_offset_is_committed_without_metadata_where_these_are_too_large() -> None:
    """A group must not stay behind at a failover because of its consumers' comments."""
    destination = Destination()
    destination.refusals["billing"] = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    await write(destination)
    assert destination.done[3:] == [COMMIT, {THERE: CommittedOffset(5, -1, None)}]
    assert destination.committed["billing"] == {THERE: 5}


@virtual
async def test_checkpoints_go_on_at_their_interval_after_the_wall_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destination, wall_ms = Destination("Stable"), 1_800_000_000_000
    monkeypatch.setattr(group_offset_writer, "now_ms", lambda: wall_ms)
    flow, state = flow_spec("flow", checkpoints_every_ms=60_000), GroupSyncState("flow")
    for posted, pause_s in ((1, 30.0), (1, 31.0), (2, 0.0)):
        await write(destination, flow=flow, state=state)
        assert destination.done.count("checkpoint") == posted
        wall_ms -= 3_600_000
        await asyncio.sleep(pause_s)


async def test_nothing_is_committed_while_a_member_is_connected() -> None:
    destination = Destination("Stable")
    await write(destination)
    assert destination.done == ["leads", "checkpoint"]


async def test_a_driver_that_was_replaced_writes_neither_checkpoint_nor_offset() -> None:
    destination = Replaced()
    with pytest.raises(DriverFenced):
        await write(destination)
    assert destination.done == []


async def test_a_refused_offset_keeps_what_was_written_before_it() -> None:
    """A member of the group joins before the commit arrives."""
    destination = Destination()
    destination.refusals["billing"] = [ErrorCode.UNKNOWN_MEMBER_ID]
    before = Checkpoint(4, 4, 0, State.TRANSLATED, THERE.topic, written=4, written_source=4)
    refused = (await write(destination, before)).posted[ITEM]
    assert refused.state is State.REFUSED
    assert (refused.destination, refused.written, refused.written_source) == (5, 4, 4)
