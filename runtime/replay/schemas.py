"""Brings the schemas of replayed records along, and writes the ids that they have at the destination."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from runtime.audit.registries import open_registries
from runtime.batch import BatchFailure, OutgoingBatch, RewriteSpec
from runtime.batch.schema_ids import SchemaIds, SchemaMissing, schema_ids, source_offset, with_records
from runtime.contract.spec.schemas import PARTS, SchemaSync
from runtime.replay.request import CopyStopped, ReplayRequest, RestoredIds
from runtime.schemas.client import NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaFinder, SchemaNotCopied
from runtime.schemas.id_map import SchemaIdMap
from runtime.schemas.stored import BackedUpSchemas
from runtime.schemas.subjects import at_destination, subjects_of_topic
from runtime.schemas.versions import missing_versions
from runtime.slot.read.batch_filter import FilteredBatches


async def register_kept(request: ReplayRequest) -> None:
    """Registers the versions of the topics' subjects with their ids, where the flow keeps these.

    Tasks of several processes would each change the mode of the same subject: they find its versions there.
    A version that can't be registered stops the records that need it, in their task. A subject of
    `record_name` tells no topic: its versions come with their records. Raises AuditFailure.
    """
    flow, sync = request.flow, request.flow.schemas
    if not sync.sync or sync.ids != "keep":
        return
    problems = NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaNotCopied
    async with open_registries(flow, request.registries) as (source, destination):
        with suppress(*problems):
            here, there = await asyncio.gather(source.every_version(), destination.every_version())
            copier, ordered = SchemaCopier(source, destination, sync, ended=True), sorted(here)
            for topic, renamed in sorted({(part.topic, request.into(part)) for part in request.parts}):
                for subject in subjects_of_topic(ordered, topic, sync.subjects):
                    name = at_destination(subject, topic, renamed, sync.subjects)
                    for version in missing_versions(here[subject], there.get(name, ()), keep=True):
                        with suppress(*problems):
                            await copier.copy_version(subject, version, name)


async def restored_ids(
    backup: BackedUpSchemas, registry: SchemaRegistry, topic: str, into: str
) -> RestoredIds:
    """Returns the registry's ids for those of a topic's schemas in a backup.

    Raises RegistryUnavailable, and SchemaNotCopied where the registry lacks one of them.
    """
    every, names = backup.every_version(), backup.names
    finder = SchemaFinder(backup, registry, SchemaSync(sync=True, subjects=names, ids="translate"))
    subjects = (
        sorted(every) if names == "record_name" else list(subjects_of_topic(sorted(every), topic, names))
    )
    numbers = sorted({version.id for subject in subjects for version in every[subject]})
    there = await asyncio.gather(*(finder.ensure(number, topic, into) for number in numbers))
    return RestoredIds(
        {number: new for number, new in zip(numbers, there, strict=True) if new is not None},
        [part for part in PARTS if names != "topic_name" or f"{topic}-{part}" in every],
        every=names == "topic_name",
    )


def with_restored_ids(out: OutgoingBatch, ids: RestoredIds, spec: RewriteSpec) -> Iterator[OutgoingBatch]:
    """Yields a batch of a backup with the ids of the cluster's registry.

    Raises CopyStopped for an id that the backup does not have, and a BatchFailure.
    """
    batch_ids = schema_ids(out.batch, spec)._replace(guids=())
    for part in PARTS:
        if part not in ids.parts:
            batch_ids = batch_ids.without_part(part)
    if unknown := batch_ids.unknown(ids.numbers):
        name, record = next(iter(unknown.items()))
        if ids.every:
            at = source_offset(out, record)
            raise CopyStopped(
                f"{spec.where}: schema id {name} of the record at {at} is not in"
                " the backup, so it can't be translated: restore with --schema-ids keep"
            )
        batch_ids = batch_ids.without(
            {number for number in unknown if isinstance(number, int)}, out.batch.records
        )
    changed = batch_ids.translated(ids.numbers)
    if changed is None:
        yield out
    else:
        yield from with_records(out, changed, spec)


class ReplayedSchemas:
    """Lets the records of a topic pass whose schemas are in the registry of the destination.

    `ids` registers what is missing there. The first record whose schema can't be registered stops the rest.
    """

    def __init__(self, ids: SchemaIdMap) -> None:
        self._ids = ids

    @property
    def note(self) -> str:
        """What the result says of schemas that a registry does not find by their GUIDs."""
        if not self._ids.without_guids:
            return ""
        return f"records that name their schema by a GUID did not wait for it: {self._ids.without_guids}"

    async def admit(self, kept: FilteredBatches, spec: RewriteSpec) -> FilteredBatches:
        """Returns the batches with the destination's ids, up to the first record that must wait."""
        passed: list[OutgoingBatch] = []
        for at, out in enumerate(kept.outgoing):
            try:
                ids = schema_ids(out.batch, spec)
                data, waits, why = await self._translated(ids)
                if waits is None and data == ids.data:
                    passed.append(out)
                    continue
                passed.extend(with_records(out, data, spec, waits))
                if waits is not None:
                    raise SchemaMissing(spec.where, source_offset(out, waits), why)
            except RegistryUnavailable as error:
                missing = SchemaMissing(spec.where, source_offset(out, 0), str(error))
                return kept.stopped(passed, at, missing)
            except BatchFailure as failure:
                return kept.stopped(passed, at, failure)
        return kept._replace(outgoing=passed)

    async def _translated(self, ids: SchemaIds) -> tuple[bytes | bytearray, int | None, str]:
        """Returns the records with the destination's ids, and the first one without its schema there, if any.

        The text says why. Raises RegistryUnavailable.
        """
        data: bytes | bytearray = ids.data
        waiting: list[tuple[int, str]] = []
        for part, other in zip(PARTS, reversed(PARTS), strict=True):
            part_ids = ids.without_part(other)
            numbers = await self._ids.read([(part, number) for number in part_ids.unknown(())])
            translation = {here: there for (_, here), there in numbers.items() if not isinstance(there, str)}
            for name, record in islice(part_ids.unknown(translation).items(), 1):
                waiting.append((record, str(numbers[part, name])))
                part_ids = part_ids.before(record)
            data = part_ids._replace(data=data).translated(translation) or data
        return data, *min(waiting, default=(None, ""))
