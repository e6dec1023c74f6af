"""Brings the schemas of replayed records along, and writes the ids that they have at the destination."""

from __future__ import annotations

from runtime.batch import BatchFailure, OutgoingBatch, RewriteSpec
from runtime.batch.schema_ids import SchemaIds, SchemaMissing, schema_ids, source_offset, with_records
from runtime.contract.spec.schemas import PARTS
from runtime.schemas.client import RegistryUnavailable
from runtime.schemas.id_map import SchemaIdMap
from runtime.slot.read.batch_filter import FilteredBatches


class ReplayedSchemas:
    """Lets the records of a topic pass whose schemas are in the registry of the destination.

    `ids` registers what is missing there. The first record whose schema can't be registered stops the rest.
    """

    def __init__(self, ids: SchemaIdMap) -> None:
        self._ids = ids

    async def admit(self, kept: FilteredBatches, spec: RewriteSpec) -> FilteredBatches:
        """Returns the batches with the destination's ids, up to the first record that must wait."""
        passed: list[tuple[OutgoingBatch, int]] = []
        for at, (out, epoch) in enumerate(kept.outgoing):
            try:
                ids = schema_ids(out.batch, spec)
                data, waits, why = await self._translated(ids)
                if waits is None and data == ids.data:
                    passed.append((out, epoch))
                    continue
                passed.extend((part, epoch) for part in with_records(out, data, spec, waits))
                if waits is not None:
                    raise SchemaMissing(spec.where, source_offset(out, waits), why)
            except RegistryUnavailable as error:
                missing = SchemaMissing(spec.where, source_offset(out, 0), str(error))
                return kept.stopped(passed, at, missing)
            except BatchFailure as failure:
                return kept.stopped(passed, at, failure)
        return kept._replace(outgoing=passed)

    async def _translated(self, ids: SchemaIds) -> tuple[bytes, int | None, str]:
        """Returns the records with the destination's ids, and the first one without its schema there, if any.

        The text says why. Raises RegistryUnavailable.
        """
        data, waiting = ids.data, list[tuple[int, str]]()
        for part, other in zip(PARTS, reversed(PARTS), strict=True):
            own = ids.without_part(other)
            numbers = await self._ids.read([(part, number) for number in own.distinct()])
            known = {here: there for (_, here), there in numbers.items() if isinstance(there, int)}
            if (missing := own.first_record_without(known)) is not None:
                record, number = missing
                waiting.append((record, str(numbers[part, number])))
                own = own.before(record)
            data = own._replace(data=data).translated(known) or data
        return data, *min(waiting, default=(None, ""))
