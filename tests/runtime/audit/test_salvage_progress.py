"""What a replay counts as progress: a failure later than a limit after progress ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from runtime.batch import Batch
from runtime.contract.records.ledger import LedgerKey, LedgerValue, OrphanedRange, Replayed
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.contract.spec.transform import TransformSpec
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.replay.request import ReplayPartition, ReplayQuarantine, ReplayRequest
from runtime.replay.task import PartitionReplay
from runtime.sql.transformer import Transformer
from tests.runtime.batch.forge import batch_bytes, record
from tests.runtime.kafka.fetch.test_once import OneBroker, answered
from tests.runtime.slot.world import flow_spec
from tests.runtime.sql.test_transformer import Answers

TRANSFORM = TransformSpec(where="offset >= 0", on_bad_record="quarantine")
CLUSTER = ClusterSpec(bootstrap="127.0.0.1:1", client={})
Bases = Mapping[TopicPartition, Sequence[int]]


class Source(OneBroker):
    cluster_id = "id-1"


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
    quarantine = ReplayQuarantine("orders.quarantine", 0, 1 << 20)
    part = ReplayPartition("orders", 0, "orders", "orders", 1 << 20, begun=True, quarantine=quarantine)
    asked = ReplayRequest(
        flow=flow_spec("one", transform=TRANSFORM), source=CLUSTER, destination=CLUSTER, parts=[part]
    )
    source = Source([answered(batch_bytes([record(at) for at in range(3)]))])
    writer = Writer()
    replay = PartitionReplay(asked, part, source, source, Transformer(TRANSFORM, answers))  # type: ignore[arg-type]
    asyncio.run(replay._stretch(writer, OrphanedRange(0, 3, "replay"), b""))  # type: ignore[arg-type]
    assert (replay.passed, replay.records) == (3, copied)
    (done,) = writer.ledger
    assert isinstance(done, Replayed)
    assert (done.end, done.records) == (3, copied)
    assert writer.records == {"orders": copied, **({"orders.quarantine": bad} if bad else {})}
