"""The last move of a flow's groups: what can be moved by trying again is, before the flow has ended."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.group_records import (
    Checkpoint,
    CheckpointState,
    GroupPartition,
    encode_checkpoint,
    encode_checkpoint_key,
)
from runtime.contract.records.ledger import PartitionKey, ProgressKey, SegmentKey
from runtime.contract.records.offset_map import Run, Span, encode_runs
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import FlowState
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.duties.group_sync import FinalGroupSync
from runtime.driver.flows.start import DriverContext
from runtime.groups.translation import Checkpoints, RecordsByCluster
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from tests.fakes.groups import GroupCluster
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.slot.world import flow_spec

TOPIC = "orders"
AT = TopicPartition(TOPIC, 0)


class Ending:
    """A flow ends that copied the source offsets 0 to 14 to 100 to 114; records before 100 are another's.

    `seen` are the offsets of the checkpoints, by group, `committed` those that the source has. The marker of
    the transaction that sealed the map is late where `map_is_open`.
    """

    destination_of: ClassVar[type[GroupCluster]] = GroupCluster

    def __init__(
        self,
        seen: Mapping[str, int],
        committed: Mapping[str, int] | None = None,
        state: FlowState = "failed_over",
        *,
        map_is_open: bool = False,
    ) -> None:
        topic_id = InternalTopics({}).topic(TOPIC).id
        ids = {"source_topic_id": topic_id, "destination_topic_id": topic_id}
        copied = progress(5, 105, Run(5, 105, 10), end=15, segments=1, **ids)
        segment = Span(0, 5, 100, 105, encode_runs([Run(0, 100, 5)], 0, 100))
        offset_map = stored({SegmentKey(PartitionKey("flow", *AT), 0, 0): segment})
        checkpoints = [
            InternalRecord(
                encode_checkpoint_key("flow", GroupPartition(group, *AT)),
                encode_checkpoint(Checkpoint(offset, -1, 9, CheckpointState.PENDING, TOPIC)),
            )
            for group, offset in seen.items()
        ]
        internal = {naming.OFFSET_MAP: offset_map, naming.CHECKPOINTS: checkpoints}
        ledger = stored({ProgressKey(PartitionKey("flow", *AT)): copied})
        committing = [naming.OFFSET_MAP] if map_is_open else []
        self.destination = self.destination_of({naming.LEDGER: ledger, **internal}, {}, committing)
        topics: dict[str, list[InternalRecord]] = {
            naming.LEDGER: [],
            naming.OFFSET_MAP: [],
            naming.CHECKPOINTS: [],
        }
        at_source = {group: {AT: offset} for group, offset in (committed or {}).items()}
        self.source = GroupCluster(topics, at_source) if committed is not None else None
        self.waits: list[str] = []
        self._flow = replace(flow_spec("flow"), state=state)

    async def cluster(self, name: str) -> KafkaCluster:
        if self.source is None:
            raise Disconnected(name, "away", sent=False)
        return cast(KafkaCluster, self.source)

    async def ensure(self) -> None: ...

    def context(self) -> tuple[JobSpec, DriverContext]:
        clusters = {name: ClusterSpec(bootstrap="b:1") for name in ("dc1", "dc2")}
        job = JobSpec(job="job", topology="t", destination="dc2", clusters=clusters, flows=[self._flow])
        destination = cast(KafkaCluster, self.destination)
        shared = SimpleNamespace(
            clusters=self,
            leadership=self,
            destination=destination,
            records=RecordsByCluster(),
            ledger=Ledger(destination, 1),
        )
        return job, cast(DriverContext, shared)

    async def moved(self, patience_s: float = 60.0) -> tuple[str, ...]:
        job, shared = self.context()
        return await FinalGroupSync(job, self._flow, shared, set, self.waits.append, patience_s).run()

    def at_destination(self) -> dict[str, int]:
        return {group: offsets[AT] for group, offsets in self.destination.committed.items() if offsets}

    async def why(self, group: str) -> tuple[CheckpointState, str]:
        """What the newest checkpoint says of a group, as `repl offsets` shows it later."""
        checkpoints = Checkpoints(cast(KafkaCluster, self.destination))
        await checkpoints.refresh()
        newest = checkpoints.get("flow", GroupPartition(group, *AT))
        assert newest is not None
        return newest.state, newest.why


async def test_a_coordinator_that_is_late_is_waited_for_and_a_moved_group_is_left_alone() -> None:
    ending = Ending({"audit": 9, "billing": 7})
    ending.destination.refusals["billing"] = [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert await ending.moved() == ()
    assert ending.at_destination() == {"audit": 109, "billing": 107}
    assert ending.waits == ["billing: not committed at dc2: REQUEST_TIMED_OUT"] * 2
    assert sorted(ending.destination.commits) == ["audit", "billing", "billing", "billing"]
    assert await ending.why("billing") == (CheckpointState.TRANSLATED, "")


async def test_a_group_whose_offsets_at_the_destination_cannot_be_read_is_waited_for() -> None:
    ending = Ending({"billing": 7})
    ending.destination.unreadable["billing"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert await ending.moved() == ()
    assert ending.at_destination() == {"billing": 107}
    assert "can't be read: GROUP_AUTHORIZATION_FAILED" in ending.waits[0]


async def test_what_no_attempt_can_move_is_not_waited_for_and_says_why() -> None:
    ending = Ending({"audit": 9, "billing": 7, "reports": 3})
    ending.destination.refusals["audit"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    ending.destination.refusals["billing"] = [ErrorCode.UNKNOWN_MEMBER_ID]
    assert sorted(await ending.moved()) == [
        "audit: not committed at dc2: GROUP_AUTHORIZATION_FAILED",
        "billing: not committed at dc2: a member of the group is connected at the destination",
    ]
    assert ending.at_destination() == {"reports": 103}
    assert not ending.waits
    assert await ending.why("audit") == (CheckpointState.REFUSED, "GROUP_AUTHORIZATION_FAILED")


async def test_the_flow_ends_after_a_while_and_the_reason_stays_in_the_checkpoint() -> None:
    ending = Ending({"billing": 7})
    ending.destination.refusals["billing"] = [ErrorCode.REQUEST_TIMED_OUT] * 9
    assert await ending.moved(patience_s=0.3) == ("billing: not committed at dc2: REQUEST_TIMED_OUT",)
    assert await ending.why("billing") == (CheckpointState.REFUSED, "REQUEST_TIMED_OUT")


async def test_a_map_that_is_being_written_is_waited_for_and_not_for_ever() -> None:
    said = "billing: not committed at dc2: its offset map is being written"
    ending = Ending({"billing": 7}, map_is_open=True)
    assert await ending.moved() == ()
    assert (ending.at_destination(), ending.waits) == ({"billing": 107}, [said])
    ending = Ending({"billing": 7}, map_is_open=True)
    assert await ending.moved(patience_s=0) == (said,)
    assert await ending.why("billing") == (CheckpointState.PENDING, "its offset map is being written")


async def test_a_topic_that_is_another_one_at_the_source_counts_by_its_checkpoint() -> None:
    """The old source came back empty, or its topic was deleted; `late` committed in the new topic only."""
    for lost in ("replaced", "gone"):
        ending = Ending({"billing": 7}, committed={"billing": 1, "late": 1})
        assert ending.source is not None
        getattr(ending.source, lost).add(TOPIC)
        assert await ending.moved() == (
            "late: not committed at dc2: the topic at the source is not the one that was copied",
        )
        assert ending.at_destination() == {"billing": 107}


@pytest.mark.parametrize("state", ["promoted", "failed_over"])
async def test_groups_move_though_a_record_at_the_source_cannot_be_read(state: FlowState) -> None:
    """Without this, the flow would read the damaged record for ever. The destination's records are enough."""
    ending = Ending({"billing": 7}, committed={"billing": 9}, state=state)
    assert ending.source is not None
    ending.source.grow(naming.CHECKPOINTS, InternalRecord(b"", b""))
    ending.source.damaged.add(naming.CHECKPOINTS)
    assert await ending.moved() == ()
    assert ending.at_destination() == {"billing": 109}


@pytest.mark.parametrize(("state", "stands"), [("promoted", 114), ("failed_over", 107)])
async def test_a_promotion_reads_the_source_again_and_a_failover_reads_it_once(
    state: FlowState, stands: int
) -> None:
    ending = Ending({"billing": 7}, committed={"billing": 14}, state=state)
    assert ending.source is not None
    ending.source.unreadable["billing"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    notes = await ending.moved()
    assert ending.at_destination() == {"billing": stands}
    said = "what groups committed at dc1 can't be read: billing: GROUP_AUTHORIZATION_FAILED"
    if state == "promoted":
        assert (ending.waits, notes) == ([said], ())
    else:
        assert (ending.waits, notes) == ([], (f"{said}. The groups continue where they were seen last",))


async def test_a_lost_source_is_no_problem_of_a_failover_and_one_of_a_promotion() -> None:
    lost = Ending({"billing": 7})
    assert await lost.moved() == ()
    promoted = Ending({"billing": 7}, state="promoted")
    (note,) = await promoted.moved(patience_s=0.3)
    assert "what groups committed at dc1 can't be read: dc1: " in note
    assert lost.at_destination() == promoted.at_destination() == {"billing": 107}
