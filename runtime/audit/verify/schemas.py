"""Compares records whose schema ids a flow translates: `schemas: {sync: true, ids: translate}`.

The id of a schema is compared apart from the bytes behind it. A record of the source is compared with the id
that its schema has in the registry of the destination, by the schema's text and references. So a copy with
the id of another schema is a difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from uuid import UUID

from runtime.audit.registries import open_registries
from runtime.audit.verify.pieces import RecordContent, VerifyRequest
from runtime.audit.verify.provenance import copied_content, own_headers
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.schemas import GUID_PREFIX, ID_HEADERS, PARTS, WIRE_GUID, WIRE_ID, WIRE_PREFIX
from runtime.schemas.copier import SchemaFinder
from runtime.schemas.id_map import RecordId, SchemaIdMap


class ComparableContents:
    """Makes the contents of both sides of a topic comparable. Without `ids`, all bytes must be equal."""

    def __init__(self, ids: SchemaIdMap | None = None) -> None:
        self._ids = ids

    async def originals(self, records: Iterable[ConsumerRecord]) -> list[RecordContent]:
        """Returns the content that each record of the source must have at the destination.

        Raises RegistryUnavailable.
        """
        if self._ids is None:
            return [copied_content(record) for record in records]
        split = [(record, *framed(record)) for record in records]
        wanted = {
            (part, frame[0])
            for _, *frames in split
            for part, frame in zip(PARTS, frames, strict=True)
            if frame[0] is not None
        }
        known = await self._ids.read(wanted)
        return [_content(record, key, value, known) for record, key, value in split]

    def copy(self, record: ConsumerRecord) -> RecordContent:
        """Returns the content of a record of the destination."""
        return copied_content(record) if self._ids is None else _content(record, *framed(record), {})


@asynccontextmanager
async def comparable_contents(
    request: VerifyRequest,
) -> AsyncIterator[Callable[[str, str], ComparableContents]]:
    """Yields what makes the contents of a topic and its mirror comparable, by the names of both.

    Raises AuditFailure where a schema registry that it needs does not answer.
    """
    if not request.translates_schemas:
        yield lambda topic, mirror: ComparableContents()
        return
    async with open_registries(request.flow, request.registries) as registries:
        finder = SchemaFinder(*registries, request.flow.schemas)
        yield cache(lambda topic, mirror: ComparableContents(SchemaIdMap(finder, topic, mirror)))


Frame = tuple[int | None, bytes | None]  # an id in Confluent's wire format, and the bytes behind it


def framed(record: ConsumerRecord) -> tuple[Frame, Frame]:
    """Splits the key and the value. Where a header names the schema, the payload holds no id."""
    named = dict(reversed(record.headers))
    key, value = (
        (_id_in(named[header]), content)
        if header in named
        else (number, content[WIRE_PREFIX:] if content is not None and number is not None else content)
        for header, content in zip(ID_HEADERS, (record.key, record.value), strict=True)
        for number in (_id_in(content),)
    )
    return key, value


def _id_in(content: bytes | None) -> int | None:
    """Returns the id with which a payload or a header begins in Confluent's wire format."""
    if content is None or len(content) < WIRE_PREFIX or content[0] != WIRE_ID:
        return None
    return int.from_bytes(content[1:WIRE_PREFIX])


def guids_of(record: ConsumerRecord) -> Iterator[UUID]:
    """Yields the GUIDs of schemas that headers of the record have."""
    for name, content in record.headers:
        if name in ID_HEADERS and content and content[0] == WIRE_GUID and len(content) >= GUID_PREFIX:
            yield UUID(bytes=content[1:GUID_PREFIX])


def _content(
    record: ConsumerRecord, key: Frame, value: Frame, known: Mapping[RecordId, int | str]
) -> RecordContent:
    key_schema, value_schema = (
        known.get((part, number), number) if number is not None else None
        for part, (number, _) in zip(PARTS, (key, value), strict=True)
    )
    headers = tuple(
        (name, content[WIRE_PREFIX:])
        if content is not None and name in ID_HEADERS and _id_in(content) is not None
        else (name, content)
        for name, content in own_headers(record)
    )
    return RecordContent.of(
        record.timestamp,
        key[1],
        value[1],
        headers,
        key_schema=key_schema,
        value_schema=value_schema,
    )
