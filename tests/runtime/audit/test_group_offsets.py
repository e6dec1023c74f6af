"""`repl offsets`, `repl locate` and the rehearsal of a failover, where a cluster is not as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    FlowAccess,
    as_audit_failure,
    copied_progress,
    existing_ledger,
)
from runtime.audit.offsets.locate import locate_between
from runtime.audit.offsets.offsets import losses_between, offsets_between, rehearse, subscriptions
from runtime.batch import Codec
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import (
    GenerationKey,
    PartitionKey,
    Replayed,
    ReplayedKey,
    UnreadableRecord,
)
from runtime.contract.records.provenance import (
    HEADER,
    FlowProducer,
    Origin,
    encode,
    encode_producer,
    encode_producer_key,
)
from runtime.contract.results.groups import GroupLoss, LocatedRecord, LocateResult
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.rename import Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.groups.translation import GroupOffsetSides
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.groups import ListGroupsRequest
from runtime.kafka.records import InternalRecord
from tests.fakes.hostile_broker import API_VERSIONS, METADATA
from tests.fakes.internal_topics import stored
from tests.fakes.old_broker import OldBroker
from tests.runtime.audit.given import generation
from tests.runtime.batch.forge import batch_bytes, summed
from tests.runtime.batch.forge import record as forged
from tests.runtime.driver.test_final_group_sync import TOPIC, Ending

ACCESS = FlowAccess(
    "flow",
    Router([Route("flow", "dc1", "dc2", SelectionSpec((TOPIC,)))]),
    ClusterEndpoint("dc1", ""),
    ClusterEndpoint("dc2", ""),
)


def clusters(world: Ending) -> tuple[KafkaCluster, KafkaCluster]:
    return cast(KafkaCluster, world.source), cast(KafkaCluster, world.destination)


def going_away(answers: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """Returns what answers the first calls, and then fails."""
    left = [calls]

    async def answer(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Disconnected("dc1:9092", "it went away", sent=True)
        return await answers(*arguments, **options)

    return answer


async def losses(world: Ending) -> list[GroupLoss]:
    source, destination = clusters(world)
    ledger = (await existing_ledger(destination, "dc2")).ledger
    return (await losses_between([ACCESS], source, destination, ledger))["flow"]


@pytest.mark.parametrize("read", [rehearse, subscriptions])
async def test_each_cluster_is_opened_once_for_all_flows(
    read: Callable[[Sequence[FlowAccess]], Awaitable[Sequence[object]]],
) -> None:
    internal = (naming.LEDGER, naming.OFFSET_MAP, naming.CHECKPOINTS)
    with OldBroker({API_VERSIONS: 3, METADATA: 9}, missing=internal) as broker:
        there = ClusterEndpoint("dc2", f"127.0.0.1:{broker.port}")
        flows = [replace(ACCESS, flow=name, destination=there) for name in ("a", "b", "c")]
        assert await read(flows[:1]) == []
        of_one = [asked.api for asked in broker.asked]
        assert await read(flows) == []
    assert [asked.api for asked in broker.asked] == of_one * 2


def counting_lists(cluster: Any) -> list[int]:
    """Returns the nodes that list their groups from now on, one for each request."""
    nodes: list[int] = []
    call = cluster.call

    async def counted(node: int, request: Any, *more: Any) -> Any:
        nodes.extend([node] if isinstance(request, ListGroupsRequest) else [])
        return await call(node, request, *more)

    cluster.call = counted
    return nodes


async def test_the_groups_of_each_cluster_are_listed_once_for_all_flows() -> None:
    source, destination = clusters(Ending({}, {"billing": 7}))
    ledger = (await existing_ledger(destination, "dc2")).ledger
    listed = counting_lists(source), counting_lists(destination)

    found = await losses_between([ACCESS] * 3, source, destination, ledger)

    assert [loss.group for loss in found["flow"]] == ["billing"]
    assert [len(nodes) for nodes in listed] == [len(source.brokers), len(destination.brokers)]


async def test_a_group_is_translated() -> None:
    seen = await offsets_between(ACCESS, "billing", *clusters(Ending({}, {"billing": 7})))
    (row,) = seen.partitions
    assert (row.source, row.translation, row.committed, row.state) == (7, 107, None, "waiting")


async def test_a_group_that_cannot_be_read_at_the_destination_is_not_shown_without_offsets() -> None:
    world = Ending({}, {"billing": 7})
    world.destination.unreadable["billing"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(AuditFailure, match="dc2: the offsets of billing can't be read: GROUP_AUTHORIZATION"):
        await offsets_between(ACCESS, "billing", *clusters(world))


async def test_a_source_that_goes_away_meanwhile_is_named_and_its_checkpoints_are_shown() -> None:
    world = Ending({"billing": 6}, {"billing": 7})
    assert world.source is not None
    world.source.topics = going_away(world.source.topics, 0)  # type: ignore[method-assign]
    seen = await offsets_between(ACCESS, "billing", *clusters(world))
    (row,) = seen.partitions
    assert (seen.source_answers, row.source, row.as_of_ms) == (False, 6, 9)
    assert "it went away" in seen.source_why
    (loss,) = await losses(world)
    assert (loss.group, loss.exact) == ("billing", 1)


async def test_a_ledger_that_cannot_be_read_is_no_source_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refresh(*_: object) -> None:
        raise UnreadableRecord("a record of a newer release")

    monkeypatch.setattr(GroupOffsetSides, "refresh", refresh)
    with pytest.raises(UnreadableRecord):
        await offsets_between(ACCESS, "billing", *clusters(Ending({}, {"billing": 7})))


async def test_a_group_that_cannot_be_read_at_the_destination_does_not_count_as_moved() -> None:
    world = Ending({}, {"billing": 7, "audit": 8})
    world.destination.unreadable["billing"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    audit, billing = await losses(world)
    assert (audit.exact, billing.exact, billing.kept) == (1, 0, 1)
    assert billing.why == "its offsets at dc2 can't be read: GROUP_AUTHORIZATION_FAILED"


async def locate(
    world: Ending, source: KafkaCluster | None, offset: int = 7, *, reverse: bool = False
) -> LocatedRecord:
    here, there = ("dc2", "dc1") if reverse else ("dc1", "dc2")
    asked = LocatedRecord(
        flow="flow",
        reverse=reverse,
        cluster=here,
        topic=TOPIC,
        partition=0,
        offset=offset,
        other_cluster=there,
    )
    opened = await existing_ledger(cast(KafkaCluster, world.destination), "dc2")
    return await locate_between(ACCESS, asked, opened, source)


async def test_a_record_of_a_topic_that_was_made_again_is_not_located() -> None:
    world = Ending({}, {})
    source, destination = clusters(world)
    for known in (source, None):
        assert (await locate(world, known)).other_offset == 107
    recreated = "orders is not the topic that was copied: it was deleted and created again"
    cast(Any, source).replaced = {TOPIC}
    with pytest.raises(AuditFailure, match=f"dc1: {recreated}"):
        await locate(world, source)
    cast(Any, source).topics = going_away(source.topics, 0)
    assert (await locate(world, source)).other_offset == 107
    cast(Any, destination).replaced = {TOPIC}
    with pytest.raises(AuditFailure, match=f"dc2: {recreated}"):
        await locate(world, None)


async def test_a_record_is_located_once_the_marker_of_its_segment_is_written() -> None:
    """Until then the map seems to begin behind it."""
    located = await locate(Ending({}, {}, map_is_open=True), None, offset=3)
    assert (located.found, located.other_offset) == (LocateResult.EXACT, 103)


def replayed(log: bytes) -> Ending:
    """Salvage has replayed the source offsets 20 to 24 behind the copies; `log` is fetched of them."""
    world = Ending({}, {})
    destination = cast(Any, world.destination)
    topic_id, call = destination.topic(TOPIC).id, destination.call
    by_salvage = Replayed(25, topic_id, TOPIC, 5, 1, 120)
    key = ReplayedKey(PartitionKey("flow", TOPIC, 0), 20)
    for written in stored({GenerationKey("flow"): generation("failed_over"), key: by_salvage}):
        destination.grow(naming.LEDGER, written)
    replayer = FlowProducer("flow", "dc1", "id-1", Template(text="{topic}"), only=TOPIC)
    destination._records[naming.PRODUCERS] = [
        InternalRecord(encode_producer_key(9), encode_producer(replayer))
    ]

    async def fetched(node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, FetchRequest) and (topic_id, 0) in request.partitions:
            found = FetchedPartition(topic_id, 0, ErrorCode.NONE, 120, 120, 0, (), -1, memoryview(log), None)
            return FetchResponse(0, ErrorCode.NONE, 0, (found,))
        return await call(node, request, purpose, within)

    destination.call = fetched
    return world


async def test_a_damaged_log_in_which_a_replay_is_looked_for_is_the_destination_s() -> None:
    with pytest.raises(AuditFailure, match="dc2: orders-0 at offset") as failure:
        await locate(replayed(bytes(100)), None, offset=22)
    assert failure.value.hint == "ask about another record"


async def test_a_replayed_record_is_located_at_both_sides() -> None:
    by_client = batch_bytes([forged(115), forged(116)])
    headers = [[(HEADER, encode(Origin("id-1", TOPIC, 0, source, 0)))] for source in (21, 22)]
    by_salvage = batch_bytes(
        [forged(117 + at, headers=each) for at, each in enumerate(headers)], producer=(9, 0, 0)
    )
    world = replayed(by_client + by_salvage)

    there = await locate(world, None, offset=22)
    back = await locate(world, None, offset=118, reverse=True)
    foreign = await locate(world, None, offset=116, reverse=True)

    assert (there.found, there.other_topic, there.other_offset) == (LocateResult.REPLAYED, TOPIC, 118)
    assert (back.found, back.other_offset) == (LocateResult.REPLAYED, 22)
    assert foreign.found is not LocateResult.REPLAYED


def flipped(log: bytes) -> bytes:
    """A disk has changed the last bit."""
    return log[:-1] + bytes([log[-1] ^ 1])


def packed_as_junk(log: bytes) -> bytes:
    """The checksum is right, and what is summed does not unpack: the batch says that it is gzip."""
    data = bytearray(log)
    data[22] |= int(Codec.GZIP)
    return summed(data)


ASKED: list[Callable[[Ending], Awaitable[object]]] = [
    lambda world: locate(world, None, offset=3),
    lambda world: offsets_between(ACCESS, "billing", *clusters(world)),
    lambda world: read_flow(world),
]


async def read_flow(world: Ending) -> object:
    """As `repl verify`, `repl salvage` and a restore begin."""
    return await copied_progress(await existing_ledger(clusters(world)[1], "dc2"), "dc2", "flow")


@pytest.mark.parametrize("asked", ASKED, ids=["locate", "offsets", "verify"])
@pytest.mark.parametrize(
    ("damage", "why"), [(flipped, "wrong checksum"), (packed_as_junk, "unreadable records: does not unpack")]
)
async def test_a_damaged_ledger_is_named_with_the_way_out(
    asked: Callable[[Ending], Awaitable[object]], damage: Callable[[bytes], bytes], why: str
) -> None:
    world = Ending({}, {"billing": 7})
    destination = cast(Any, world.destination)
    whole = destination._log
    destination._log = lambda topic: damage(whole(topic)) if topic == naming.LEDGER else whole(topic)
    said = f"dc2: __repl.ledger-0 at offset 0: {why}"
    with pytest.raises(AuditFailure, match=said) as failure, as_audit_failure("dc2"):
        await asked(world)
    assert "another replica of __repl.ledger-0 may be whole" in failure.value.hint
