"""Stored offsets over a flow, in both directions: exact, or with the reason why not. Without a broker.

Source offsets 5 to 14 of `orders` were copied to 105 to 114 of `dc1.orders`, and 20 to 24 to 117 to 121.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from runtime.audit.ledger import FlowAccess
from runtime.audit.offsets.translate import OffsetTranslator, Problem
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import PartitionKey, ProgressKey, encode_key, encode_value
from runtime.contract.records.offset_map import Run
from runtime.contract.results.groups import UntranslatableReason as Reason
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.rename import SAME_NAME, Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.groups.translation import Translator
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchResponse
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, ListOffsetsRequest, TopicPartition
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import OffsetMaps
from tests.fakes.internal_topics import InternalTopics
from tests.fakes.progress import progress
from tests.runtime.batch.forge import control_batch

FLOW, TOPIC, MIRROR = "flow", "orders", "dc1.orders"


class Clusters:
    """Both sides. The mirror's log holds what `own` producers wrote from offset 0 on."""

    def __init__(
        self, *, both_write: bool = False, own: int = 0, kind: type[InternalTopics] = InternalTopics
    ) -> None:
        mirror = TOPIC if both_write else MIRROR
        ids = InternalTopics({})
        copied = progress(
            5,
            105,
            Run(5, 105, 10),
            Run(20, 117, 5),
            end=30,
            destination_topic=mirror,
            source_topic_id=ids.topic(TOPIC).id,
            destination_topic_id=ids.topic(mirror).id,
        )
        written = [InternalRecord(b"k", b"v") for _ in range(own)]
        ledger = [InternalRecord(encode_key(ProgressKey(PartitionKey(FLOW, TOPIC, 0))), encode_value(copied))]
        self.source = InternalTopics({TOPIC: [], "payments": []})
        self.destination = kind(
            {naming.LEDGER: ledger, naming.OFFSET_MAP: [], mirror: written, "dc1.payments": []}
        )
        rename = SAME_NAME if both_write else Template(text="dc1.{topic}")
        routes = [Route(FLOW, "dc1", "dc2", SelectionSpec((TOPIC, "payments")), rename=rename)]
        if both_write:
            routes.append(Route("back", "dc2", "dc1", SelectionSpec((TOPIC,))))
        self._router = Router(routes)

    async def answer(
        self, topic: str, offset: int, *, partition: int = 0, reverse: bool = False
    ) -> tuple[str, int] | Reason:
        source, destination = (cast(KafkaCluster, one) for one in (self.source, self.destination))
        maps = OffsetMaps(destination, await Ledger.open(destination))
        translator = Translator(FLOW, self._router, maps, None)
        await translator.refresh(())
        ends = ClusterEndpoint("dc1", "a:1"), ClusterEndpoint("dc2", "b:1")
        access = FlowAccess(FLOW, self._router, *ends)
        translate = OffsetTranslator(access, translator, source, destination, reverse=reverse).translate
        answer = (await translate({(topic, partition): [offset]}))[topic, partition]
        problem = answer.problem or answer.problems.get(offset)
        if isinstance(problem, Problem):
            assert problem.why
            assert offset not in answer.offsets
            return problem.reason
        return answer.topic, answer.offsets[offset]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (4, Reason.BEFORE_MAP),
        (5, 105),
        (14, 114),
        (15, 117),  # nothing of 15 to 19 was copied: the next copied record
        (24, 121),
        (25, 122),  # behind the last copied record
        (30, 122),
        (31, Reason.NOT_REACHED),
        (1 << 62, Reason.NOT_REACHED),
    ],
)
async def test_an_offset_of_the_source(offset: int, expected: int | Reason) -> None:
    answer = await Clusters().answer(TOPIC, offset)
    assert answer == (expected if isinstance(expected, Reason) else (MIRROR, expected))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (104, Reason.BEFORE_MAP),
        (105, 5),
        (114, 14),
        (115, 20),  # a marker, or a record of another producer
        (121, 24),
        (122, 30),  # everything that the flow has decided on was read
    ],
)
async def test_an_offset_of_the_destination(offset: int, expected: int | Reason) -> None:
    answer = await Clusters().answer(MIRROR, offset, reverse=True)
    assert answer == (expected if isinstance(expected, Reason) else (TOPIC, expected))


class WithMarkers(InternalTopics):
    """The log of the mirror ends at 130, and holds only markers from 122 on."""

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            answers = await super().call(node, request, purpose, within)
            mirror = TopicPartition(MIRROR, 0)
            return answers | (
                {mirror: ListedOffset(130, -1, 5)} if request.times.get(mirror) == LATEST else {}
            )
        ((topic_id, _),) = request.partitions
        if topic_id != self.topic(MIRROR).id:
            return await super().call(node, request, purpose, within)
        log = memoryview(control_batch(122, 7, 1))
        fetched = FetchedPartition(topic_id, 0, ErrorCode.NONE, 130, 130, 0, (), -1, log, None)
        return FetchResponse(0, ErrorCode.NONE, 0, (fetched,))


@pytest.mark.parametrize(("offset", "expected"), [(130, (TOPIC, 30)), (131, Reason.NOT_REACHED)])
async def test_behind_the_copied_records_lie_only_markers(
    offset: int, expected: tuple[str, int] | Reason
) -> None:
    assert await Clusters(kind=WithMarkers).answer(MIRROR, offset, reverse=True) == expected


@pytest.mark.parametrize(("offset", "expected"), [(122, (TOPIC, 30)), (123, Reason.FOREIGN)])
async def test_behind_the_copied_records_another_producer_wrote(
    offset: int, expected: tuple[str, int] | Reason
) -> None:
    assert await Clusters(own=140).answer(MIRROR, offset, reverse=True) == expected


async def test_what_was_removed_is_no_number() -> None:
    clusters = Clusters()
    clusters.destination.starts[MIRROR] = 110
    assert await clusters.answer(TOPIC, 9) is Reason.REMOVED
    assert await clusters.answer(TOPIC, 10) == (MIRROR, 110)
    clusters = Clusters()
    clusters.source.starts[TOPIC] = 10
    assert await clusters.answer(MIRROR, 109, reverse=True) is Reason.REMOVED
    assert await clusters.answer(MIRROR, 110, reverse=True) == (TOPIC, 10)


@pytest.mark.parametrize(
    ("topic", "partition", "reverse", "expected"),
    [
        ("other", 0, False, Reason.NOT_SELECTED),
        (MIRROR, 0, False, Reason.NOT_SELECTED),
        (TOPIC, 0, True, Reason.NOT_SELECTED),
        (TOPIC, 1, False, Reason.NO_PARTITION),
        (MIRROR, 1, True, Reason.NO_PARTITION),
        ("payments", 0, False, Reason.NOT_STARTED),
        ("dc1.payments", 0, True, Reason.NOT_STARTED),
    ],
)
async def test_a_partition_of_which_nothing_was_copied(
    topic: str, partition: int, reverse: bool, expected: Reason
) -> None:
    assert await Clusters().answer(topic, 7, partition=partition, reverse=reverse) is expected


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("side", ["source", "destination"])
async def test_offsets_of_a_topic_that_was_made_again_mean_other_records(side: str, reverse: bool) -> None:
    clusters = Clusters()
    getattr(clusters, side).replaced.update({TOPIC, MIRROR})
    topic, offset = (MIRROR, 107) if reverse else (TOPIC, 7)
    assert await clusters.answer(topic, offset, reverse=reverse) is Reason.RECREATED


@pytest.mark.parametrize("reverse", [False, True])
async def test_where_both_sides_write_nothing_is_exact(reverse: bool) -> None:
    answer = await Clusters(both_write=True).answer(TOPIC, 107 if reverse else 7, reverse=reverse)
    assert answer is Reason.MERGED
