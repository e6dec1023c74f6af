"""Decides which of a flow's fetched batches are copied: by its spec, and by their producers (R5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime.batch import Batch, RewriteSpec, WalkedBatches
from runtime.contract.records.provenance import ClusterTopic
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.batch_filter import (
    FilteredBatches,
    filter_batches,
    rewrite_spec,
    without_provenance_filter,
)


class FlowFilter:
    """A flow's filter knows the flow's spec, both cluster ids, and the producers of the source.

    `directory` is the producer directory of the source, or None where the flow's provenance is not by batch.
    """

    def __init__(
        self, spec: FlowSpec, source_id: str, destination_id: str, directory: ProducerDirectory | None
    ) -> None:
        self._spec = spec
        self._source_id = source_id
        self._destination_id = destination_id
        self._directory = directory

    def rewrite_spec(self, assigned: AssignedPartition) -> RewriteSpec:
        """Returns how a partition's batches are rewritten where they must be."""
        return rewrite_spec(assigned, self._spec, self._source_id, self._destination_id)

    async def resolve_producers(self, walks: Iterable[WalkedBatches]) -> None:
        """Looks up the producer ids that are not known yet.

        It fails closed: on an error, no batch of the response is copied. Raises WireError, READ_FAILURES.
        """
        if self._directory is not None:
            ids = {one for walked in walks for one in _producer_ids(walked)}
            if self._directory.unknown(ids):
                await self._directory.resolve(ids)

    def filter(
        self,
        copy: PartitionCopy,
        walked: WalkedBatches,
        spec: RewriteSpec,
        aborted: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> FilteredBatches:
        """Returns which batches of a response are copied, from the partition's cursor on.

        Before the offset `restored`, provenance is not filtered: the original records were lost at the
        cluster that they came from.
        """
        returning: set[int] = set()
        if copy.cursor.offset < copy.progress.restored:
            spec = without_provenance_filter(spec, copy.progress.restored)
        elif self._directory is not None:
            origin = ClusterTopic(self._destination_id, copy.at.topic)
            returning = self._directory.returning_producer_ids(
                _producer_ids(walked), copy.key.topic, origin, self._spec.native_only
            )
        return filter_batches(walked, spec, copy.cursor, aborted, returning, now_ms)


def _producer_ids(walked: WalkedBatches) -> set[int]:
    return {one.producer_id for one in walked.sets if isinstance(one, Batch)}
