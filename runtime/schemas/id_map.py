"""Maps the ids of a topic's schemas at the source to those at the destination."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from runtime.contract.spec.schemas import RecordPart
from runtime.schemas.copier import DestinationSchemas, SchemaNotCopied

_MOST_KNOWN: Final = 20_000

RecordId = tuple[RecordPart, int]  # "key" or "value", and four bytes in it that may be the id of a schema


class SchemaIdMap:
    """Knows the ids of one topic, each of which is looked up once."""

    def __init__(self, schemas: DestinationSchemas, topic: str, renamed: str) -> None:
        self._schemas, self._topic, self._renamed = schemas, topic, renamed
        self._known: dict[RecordId, int | str] = {}
        self._with_schemas: dict[RecordPart, bool] = {}

    async def read(self, ids: Collection[RecordId]) -> Mapping[RecordId, int | str]:
        """Returns the number that stands at the destination in place of each of these.

        It is the same where the number is no id. A text says why the destination does not have the schema.
        Raises RegistryUnavailable.
        """
        if len(self._known) > _MOST_KNOWN:  # the bytes of any record may look like an id
            self._known.clear()
        known = {key: self._known[key] for key in ids if key in self._known}
        new = sorted(set(ids) - known.keys())
        for part in {part for part, _ in new} - self._with_schemas.keys():
            self._with_schemas[part] = await self._schemas.has_schemas(self._topic, self._renamed, part)
        numbers = await asyncio.gather(*(self._number(part, number) for part, number in new))
        found = dict(zip(new, numbers, strict=True))
        self._known |= {key: number for key, number in found.items() if not isinstance(number, str)}
        return known | found

    async def _number(self, part: RecordPart, number: int) -> int | str:
        if not self._with_schemas[part]:
            return number
        try:
            there = await self._schemas.ensure(number, self._topic, self._renamed)
        except SchemaNotCopied as error:
            return f"schema id {number}: {error}"
        return number if there is None else there
