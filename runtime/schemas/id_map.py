"""Maps the ids of a topic's schemas at the source to those at the destination."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from runtime.contract.records.schema_names import SchemaName
from runtime.contract.spec.schemas import RecordPart
from runtime.schemas.client import GuidsUnknown
from runtime.schemas.copier import DestinationSchemas, SchemaNotCopied

_MOST_KNOWN: Final = 20_000

# "key" or "value", and four bytes in it that may be the id of a schema, or the GUID in its header
RecordId = tuple[RecordPart, SchemaName]


class SchemaIdMap:
    """Knows the ids of one topic, each of which is looked up once.

    `without_guids` says why schemas were not looked up by their GUIDs.
    """

    def __init__(self, schemas: DestinationSchemas, topic: str, renamed: str) -> None:
        self._schemas, self._topic, self._renamed = schemas, topic, renamed
        self._known: dict[RecordId, SchemaName | str] = {}
        self._with_schemas: dict[RecordPart, bool] = {}
        self.without_guids = ""

    async def read(self, ids: Collection[RecordId]) -> Mapping[RecordId, SchemaName | str]:
        """Returns what names the schema of each of these at the destination.

        It is the same for a GUID, and where a number is no id. A text says why the destination does not have
        the schema. Raises RegistryUnavailable.
        """
        if len(self._known) > _MOST_KNOWN:  # the bytes of any record may look like an id
            self._known.clear()
        cached = {key: self._known[key] for key in ids if key in self._known}
        new = list(set(ids) - cached.keys())
        for part in {part for part, name in new if isinstance(name, int)} - self._with_schemas.keys():
            self._with_schemas[part] = await self._schemas.has_schemas(self._topic, self._renamed, part)
        numbers = await asyncio.gather(*(self._number(*key) for key in new))
        answers = dict(zip(new, numbers, strict=True))
        self._known |= {key: number for key, number in answers.items() if not isinstance(number, str)}
        return cached | answers

    async def _number(self, part: RecordPart, name: SchemaName) -> SchemaName | str:
        if isinstance(name, UUID):
            try:
                await self._schemas.ensure_guid(name, self._topic, self._renamed)
            except SchemaNotCopied as error:
                return f"schema {name}: {error}"
            except GuidsUnknown as unknown:
                self.without_guids = str(unknown)
            return name
        if not self._with_schemas[part]:
            return name
        try:
            there = await self._schemas.ensure(name, self._topic, self._renamed)
        except SchemaNotCopied as error:
            return f"schema id {name}: {error}"
        return name if there is None else there
