"""Compares records whose schema ids a flow translates: `schemas: {sync: true, ids: translate}`.

The id of a schema is compared apart from the bytes behind it. A record of the source is compared with the id
that its schema has in the registry of the destination, by the schema's text and references. So a copy with
the id of another schema is a difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from uuid import UUID

from runtime.audit.registries import open_registries
from runtime.audit.verify.pieces import RecordContent, VerifyRequest
from runtime.audit.verify.provenance import copied_content, own_headers
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.schema_names import (
    WIRE_PREFIX,
    SchemaName,
    naming_headers,
    schema_id,
    schema_name,
)
from runtime.contract.spec.schemas import PARTS, RecordPart
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
        translation = await self._ids.read(wanted)
        return [_content(record, key, value, translation) for record, key, value in split]

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


Frame = tuple[SchemaName | None, bytes | None]  # what names the schema, and the content without its id


def framed(record: ConsumerRecord) -> tuple[Frame, Frame]:
    """Splits the key and the value. Where a header names the schema, the payload holds no id."""
    named = naming_headers(record.headers)

    def frame(part: RecordPart, content: bytes | None) -> Frame:
        if part in named:
            return schema_name(named[part][1]), content
        number = schema_id(content)
        return number, content if content is None or number is None else content[WIRE_PREFIX:]

    return frame("key", record.key), frame("value", record.value)


def _content(
    record: ConsumerRecord, key: Frame, value: Frame, translation: Mapping[RecordId, SchemaName | str]
) -> RecordContent:
    """Returns the content without ids. A GUID is never translated, so it is compared in its header alone."""
    key_schema, value_schema = (
        None if name is None or isinstance(schema := translation.get((part, name), name), UUID) else schema
        for part, (name, _) in zip(PARTS, (key, value), strict=True)
    )
    headers = list(own_headers(record))
    for at, content in naming_headers(headers).values():
        if schema_id(content) is not None:
            headers[at] = headers[at][0], content[WIRE_PREFIX:]
    return RecordContent.of(
        record.timestamp,
        key[1],
        value[1],
        headers,
        key_schema=key_schema,
        value_schema=value_schema,
    )
