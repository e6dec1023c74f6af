"""Where salvaged records may go, and what a replay counts as progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.batch import Batch
from runtime.batch.spec import QuarantineLimit
from runtime.contract.records.control import AssignedPartition, LimitedTopic
from runtime.contract.records.ledger import LedgerKey, LedgerValue, OrphanedRange, Replayed
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.results.records import SalvagedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import TransformSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.replay.replay import PartitionReplay, replayed_spec
from runtime.replay.replay_target import parts, unfit
from runtime.replay.request import ReplayRequest
from runtime.replay.target import TargetTopic, existing_topics
from runtime.sql.transformer import Transformer
from tests.fakes.one_broker import OneBroker, answered
from tests.runtime.batch.forge import batch_bytes, record
from tests.runtime.slot.world import flow_spec
from tests.runtime.sql.test_transformer import Answers

Bases = Mapping[TopicPartition, Sequence[int]]

ROOMY = TargetTopic(id=b"", partitions=4, max_message_bytes=1_000, appends=False)
APPENDS = replace(ROOMY, appends=True)
QUARANTINE = "dc1.orders.quarantine"
QUARANTINING = TransformSpec(where="offset >= 0", on_bad_record="quarantine")
PLAIN = TransformSpec(where="true")
ORDERS = AssignedPartition("one", "orders", 1, "dc1.orders", 1_000)


def salvaged(partition: int = 1, *, begun: bool = True) -> SalvagedPartition:
    return SalvagedPartition(
        topic="orders", partition=partition, destination_topic="dc1.orders", records=3, begun=begun
    )


MIRROR, BESIDE = {"dc1.orders": ROOMY}, {"aside": ROOMY}


@pytest.mark.parametrize(
    ("found", "to", "known", "problem"),
    [
        (salvaged(), None, MIRROR, None),
        (salvaged(), "aside", BESIDE, None),
        (salvaged(), None, {}, "there is no topic dc1.orders"),
        (salvaged(), "aside", MIRROR, "there is no topic aside"),
        (salvaged(4), None, MIRROR, "dc1.orders has 4 partitions, and there is no dc1.orders-4 for orders-4"),
        # Never begun: the ledger needs the mirror too.
        (salvaged(begun=False), "aside", BESIDE, "there is no topic dc1.orders"),
        (
            salvaged(),
            "aside",
            {"aside": APPENDS},
            "aside would take the time of the replay for the records' own",
        ),
        (salvaged(), "__repl.ledger", {"__repl.ledger": ROOMY}, "__repl.ledger is not for records of a flow"),
        (salvaged(), QUARANTINE, {QUARANTINE: ROOMY, **MIRROR}, None),
    ],
)
def test_a_topic_fits_the_salvaged_records_or_not(
    found: SalvagedPartition, to: str | None, known: dict[str, TargetTopic], problem: str | None
) -> None:
    for transform in (None, PLAIN):
        assert list(unfit([found], to, known, transform)) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("found", "to", "known", "problem", "hint"),
    [
        (salvaged(3), "aside", {**BESIDE, QUARANTINE: APPENDS}, None, ""),
        (salvaged(), "aside", BESIDE, f"there is no topic {QUARANTINE}, which takes bad records", ""),
        (
            salvaged(),
            QUARANTINE,
            {QUARANTINE: ROOMY, **MIRROR},
            f"{QUARANTINE} takes the bad records of this replay",
            "--to",
        ),
    ],
)
def test_a_replay_that_quarantines_needs_a_topic_for_bad_records_alone(
    found: SalvagedPartition, to: str, known: dict[str, TargetTopic], problem: str | None, hint: str
) -> None:
    problems = unfit([found], to, known, QUARANTINING)
    assert list(problems) == ([problem] if problem else [])
    assert problem is None or hint in problems[problem]


async def test_a_topic_that_may_not_be_described_is_not_taken_for_missing() -> None:
    class Cluster:
        async def topics(self, names: Collection[str], fresh: bool = False) -> dict[str, TopicMetadata]:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return {name: TopicMetadata(name, b"", refused, False, {}) for name in names}

    with pytest.raises(AuditFailure, match="aside can't be described: TOPIC_AUTHORIZATION_FAILED"):
        await existing_topics(cast(KafkaCluster, Cluster()), "dc2", ["aside"])


def test_a_replay_knows_its_mirror_its_target_and_where_bad_records_go() -> None:
    """The quarantine's partition is that of the mirror, modulo the partitions of the quarantine."""
    known = {"aside": ROOMY, QUARANTINE: replace(APPENDS, partitions=3, max_message_bytes=2_000)}
    assert parts([salvaged()], "aside", {"aside": ROOMY}, flow_spec("one")) == [ORDERS]
    quarantining = flow_spec("one", transform=QUARANTINING)
    (part,) = parts([salvaged(3)], "aside", known, quarantining)
    assert part.quarantine == LimitedTopic(QUARANTINE, 2_000)
    assert replayed_spec(part, quarantining, "id-1", "id-2").quarantine == QuarantineLimit("one", 2_000)
    (part,) = parts([salvaged(3)], "aside", known, flow_spec("one", transform=PLAIN))
    assert part.quarantine is None


def test_the_header_is_added_and_records_of_the_destination_stay_away_whatever_the_flow_s_provenance() -> (
    None
):
    spec = replayed_spec(ORDERS, flow_spec("one", provenance="off"), "id-1", "id-2")
    assert spec.provenance == ClusterPartition("id-1", "orders", 1)
    assert spec.home == ClusterTopic("id-2", "dc1.orders")
    assert not spec.native_only


class Source(OneBroker):
    """Every topic has the broker's one partition."""

    cluster_id = "id-1"

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {name: self.topic(name) for name in names}


class Writer:
    """Stands for the transactions: it keeps what was committed."""

    def __init__(self) -> None:
        self.ledger: list[LedgerValue | None] = []
        self.records: dict[str, int] = {}

    async def commit(
        self,
        ledger: Callable[[Bases], dict[LedgerKey, LedgerValue | None]],
        batches: Mapping[TopicPartition, Sequence[Batch]],
    ) -> None:
        self.ledger += ledger({at: [0] * len(some) for at, some in batches.items()}).values()
        for at, some in batches.items():
            self.records[at.topic] = self.records.get(at.topic, 0) + sum(one.records for one in some)


@pytest.mark.parametrize(
    ("answers", "copied", "bad"),
    [
        (Answers(), 3, 0),
        (Answers(filtered=frozenset({0, 1, 2})), 0, 0),
        (Answers(bad=frozenset({0, 1, 2})), 0, 3),
        (Answers(filtered=frozenset({0}), bad=frozenset({2})), 1, 1),
    ],
    ids=["all travel", "none travels", "all are bad", "one of each"],
)
def test_records_that_do_not_travel_are_progress_too(answers: Answers, copied: int, bad: int) -> None:
    """A failure later than a limit after progress ends nothing."""
    quarantine, cluster = LimitedTopic("bad", 1 << 20), ClusterSpec(bootstrap="127.0.0.1:1", client={})
    part = AssignedPartition("one", "orders", 0, "orders", quarantine=quarantine)
    flow = flow_spec("one", transform=QUARANTINING)
    asked = ReplayRequest(flow=flow, source=cluster, destination=cluster, parts=[part])
    source: Any = Source([answered(batch_bytes([record(at) for at in range(3)]))])
    writer: Any = Writer()
    replay = PartitionReplay(asked, part, source, source, Transformer(QUARANTINING, answers))
    asyncio.run(replay._stretch(writer, OrphanedRange(0, 3, "replay"), b""))
    assert (replay.progress, replay.records) == (3, copied)
    (done,) = writer.ledger
    assert isinstance(done, Replayed)
    assert (done.end, done.records) == (3, copied)
    assert writer.records == {"orders": copied, **({"bad": bad} if bad else {})}


def test_records_that_the_broker_has_not_loaded_are_not_skipped() -> None:
    """A range of a segment in remote storage is no range that compaction emptied."""
    source: Any = Source([answered()] * 4)
    writer: Any = Writer()
    cluster = ClusterSpec(bootstrap="127.0.0.1:1", client={})
    part = AssignedPartition("one", "orders", 0, "orders")
    asked = ReplayRequest(flow=flow_spec("one"), source=cluster, destination=cluster, parts=[part])
    replay = PartitionReplay(asked, part, source, source)
    with pytest.raises(BrokerError, match="no records from offset 0 on, though the log goes on to 10"):
        asyncio.run(replay._stretch(writer, OrphanedRange(0, 3, "replay"), b""))
    assert (writer.ledger, replay.progress) == ([], 0)
    source.answers.append(answered(batch_bytes([record(at) for at in range(3)])))
    asyncio.run(replay._stretch(writer, OrphanedRange(0, 3, "replay"), b""))
    assert (writer.records, replay.progress) == ({"orders": 3}, 3)
