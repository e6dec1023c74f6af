"""Stored offsets over a flow, in both directions: exact, or with the reason why not. Without a broker.

Source offsets 5 to 14 of `orders` were copied to 105 to 114 of `dc1.orders`, and 20 to 24 to 117 to 121.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import pytest

from runtime.audit.ledger import FlowAccess
from runtime.audit.offsets.translate import OffsetTranslator, Problem
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import PartitionKey, ProgressKey
from runtime.contract.records.offset_map import Run
from runtime.contract.results.groups import UntranslatableReason as Reason
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.rename import SAME_NAME, Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.groups.translation import Translator
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchResponse
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, ListOffsetsRequest
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import OffsetMaps
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.batch.forge import control_batch

FLOW, TOPIC, MIRROR = "flow", "orders", "dc1.orders"


class Clusters:
    """Both sides. The mirror's log holds what `own` producers wrote from offset 0 on."""

    def __init__(
        self,
        *,
        both_write: bool = False,
        own: int = 0,
        kind: type[InternalTopics] = InternalTopics,
        source: Mapping[str, Any] = MappingProxyType({}),
        destination: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`source` and `destination` are attributes of the sides."""
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
        ledger = stored({ProgressKey(PartitionKey(FLOW, TOPIC, 0)): copied})
        self.source = InternalTopics({TOPIC: [], "payments": []})
        self.destination = kind(
            {naming.LEDGER: ledger, naming.OFFSET_MAP: [], mirror: written, "dc1.payments": []}
        )
        for side, attributes in ((self.source, source), (self.destination, destination)):
            vars(side).update(attributes)
        rename = SAME_NAME if both_write else Template(text="dc1.{topic}")
        routes = [Route(FLOW, "dc1", "dc2", SelectionSpec((TOPIC, "payments")), rename=rename)]
        if both_write:
            routes.append(Route("back", "dc2", "dc1", SelectionSpec((TOPIC,))))
        self._router = Router(routes)

    async def answer(
        self, topic: str, offset: int, *, partition: int = 0, reverse: bool = False
    ) -> tuple[str, int] | Problem:
        source, destination = (cast(KafkaCluster, one) for one in (self.source, self.destination))
        maps = OffsetMaps(destination, await Ledger.open(destination))
        translator = Translator(FLOW, self._router, maps, None)
        await translator.refresh(())
        ends = ClusterEndpoint("dc1", "a:1"), ClusterEndpoint("dc2", "b:1")
        access = FlowAccess(FLOW, self._router, *ends)
        translate = OffsetTranslator(access, translator, source, destination, reverse=reverse).translate
        answer = (await translate({(topic, partition): [offset]}))[topic, partition]
        found = answer if isinstance(answer, Problem) else answer.offsets[offset]
        if isinstance(found, Problem):
            assert found.why
            return found
        assert not isinstance(answer, Problem)
        return answer.topic, found


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


SOURCE, DESTINATION = (TOPIC, 0, False), (MIRROR, 0, True)
REMADE = {"replaced": {TOPIC, MIRROR}}


@pytest.mark.parametrize(
    ("clusters", "asked", "offset", "expected"),
    [
        # Of the source
        ({}, SOURCE, 4, Reason.BEFORE_MAP),
        ({}, SOURCE, 5, (MIRROR, 105)),
        ({}, SOURCE, 14, (MIRROR, 114)),
        ({}, SOURCE, 15, (MIRROR, 117)),  # nothing of 15 to 19 was copied: the next copied record
        ({}, SOURCE, 24, (MIRROR, 121)),
        ({}, SOURCE, 25, (MIRROR, 122)),  # behind the last copied record
        ({}, SOURCE, 30, (MIRROR, 122)),
        ({}, SOURCE, 31, Reason.NOT_REACHED),
        ({}, SOURCE, 1 << 62, Reason.NOT_REACHED),
        # Of the destination
        ({}, DESTINATION, 104, Reason.BEFORE_MAP),
        ({}, DESTINATION, 105, (TOPIC, 5)),
        ({}, DESTINATION, 114, (TOPIC, 14)),
        ({}, DESTINATION, 115, (TOPIC, 20)),  # a marker, or a record of another producer
        ({}, DESTINATION, 121, (TOPIC, 24)),
        ({}, DESTINATION, 122, (TOPIC, 30)),  # everything that the flow has decided on was read
        # Behind the copied records lie only markers, or another producer's records.
        ({"kind": WithMarkers}, DESTINATION, 130, (TOPIC, 30)),
        ({"kind": WithMarkers}, DESTINATION, 131, Reason.NOT_REACHED),
        ({"own": 140}, DESTINATION, 122, (TOPIC, 30)),
        ({"own": 140}, DESTINATION, 123, Reason.FOREIGN),
        # What was removed is no number.
        ({"destination": {"starts": {MIRROR: 110}}}, SOURCE, 9, Reason.REMOVED),
        ({"destination": {"starts": {MIRROR: 110}}}, SOURCE, 10, (MIRROR, 110)),
        ({"source": {"starts": {TOPIC: 10}}}, DESTINATION, 109, Reason.REMOVED),
        ({"source": {"starts": {TOPIC: 10}}}, DESTINATION, 110, (TOPIC, 10)),
        # Nothing of the partition was copied.
        ({}, ("other", 0, False), 7, Reason.NOT_SELECTED),
        ({}, (MIRROR, 0, False), 7, Reason.NOT_SELECTED),
        ({}, (TOPIC, 0, True), 7, Reason.NOT_SELECTED),
        ({}, (TOPIC, 1, False), 7, Reason.NO_PARTITION),
        ({}, (MIRROR, 1, True), 7, Reason.NO_PARTITION),
        ({}, ("payments", 0, False), 7, Reason.NOT_STARTED),
        ({}, ("dc1.payments", 0, True), 7, Reason.NOT_STARTED),
        # Offsets of a topic that was made again mean other records.
        ({"source": REMADE}, SOURCE, 7, Reason.RECREATED),
        ({"source": REMADE}, DESTINATION, 107, Reason.RECREATED),
        ({"destination": REMADE}, SOURCE, 7, Reason.RECREATED),
        ({"destination": REMADE}, DESTINATION, 107, Reason.RECREATED),
        # Where both sides write, nothing is exact.
        ({"both_write": True}, SOURCE, 7, Reason.MERGED),
        ({"both_write": True}, (TOPIC, 0, True), 107, Reason.MERGED),
    ],
)
async def test_an_offset_is_translated_or_the_reason_says_why_not(
    clusters: dict[str, Any],
    asked: tuple[str, int, bool],
    offset: int,
    expected: tuple[str, int] | Reason,
) -> None:
    topic, partition, reverse = asked
    answer = await Clusters(**clusters).answer(topic, offset, partition=partition, reverse=reverse)
    assert (answer.reason if isinstance(answer, Problem) else answer) == expected


async def test_a_log_of_the_source_has_its_name_there() -> None:
    answer = await Clusters(source={"unlisted": {TOPIC}}).answer(MIRROR, 107, reverse=True)
    why = "where the log of orders-0 starts at dc1 is not known: TOPIC_AUTHORIZATION_FAILED"
    assert answer == Problem(Reason.UNSETTLED, why)
