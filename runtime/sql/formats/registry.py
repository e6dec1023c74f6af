"""Fetches writers' schemas from a schema registry, by the ids of Confluent's wire format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, TypeVar

from runtime.contract.records.schema_names import schema_id
from runtime.contract.records.schemas import Reference, Schema
from runtime.contract.spec.schemas import RegistrySpec
from runtime.schemas.client import (
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
)
from runtime.sql.formats.encoded import UndecodableValue

T = TypeVar("T")

ASK_AGAIN_S = 30.0  # for an id that the registry does not know

_MOST_REFERENCES = 100


class WriterSchemas(Generic[T]):
    """What is known of the schemas of a registry, by their ids.

    It is what `read` makes of the text of each, and of those that it refers to, in the order of their use.
    """

    def __init__(
        self, spec: RegistrySpec, kind: Literal["AVRO", "PROTOBUF"], read: Callable[[str, Sequence[str]], T]
    ) -> None:
        self._registry = SchemaRegistry(spec)
        self._kind = kind
        self._read = read
        self._known: dict[int, T] = {}
        self._unknown: dict[int, tuple[str, float]] = {}  # why, and when it is asked for again

    async def fetch(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""
        now = time.monotonic()
        ids = {schema_id(value) for value in values}
        for number in sorted(number for number in ids if number is not None and number not in self._known):
            if number in self._unknown and self._unknown[number][1] >= now:
                continue
            try:
                self._known[number] = self._read(*await self._schema(number))
            except NotInRegistry as error:
                self._unknown[number] = str(error), now + ASK_AGAIN_S
            except RegistryRefused as error:  # it says nothing of the record, which waits
                raise RegistryUnavailable(str(error)) from None

    async def _schema(self, number: int) -> tuple[str, Sequence[str]]:
        schema = self._checked(await self._registry.schema(number), f"schema id {number}")
        references: dict[tuple[str, int], str] = {}
        if self._kind == "AVRO":  # what a schema of Protobuf imports is in the declared descriptors
            await self._add(schema.references, references)
        return schema.text, tuple(references.values())

    async def _add(
        self, wanted: Iterable[Reference], added: dict[tuple[str, int], str], depth: int = 0
    ) -> None:
        """Adds schemas that are referred to, those that they refer to first.

        `depth` counts the schemas that wait for these: a registry may answer with a cycle.
        """
        for reference in wanted:
            place = (reference.subject, reference.version)
            if place in added:
                continue
            if len(added) + depth >= _MOST_REFERENCES:
                raise NotInRegistry(f"a schema refers to more than {_MOST_REFERENCES} others")
            needed = await self._registry.version(*place)
            schema = self._checked(needed, f"{shown(place[0])} version {place[1]}")
            await self._add(schema.references, added, depth + 1)
            added[place] = schema.text

    def _checked(self, schema: Schema, what: str) -> Schema:
        if schema.type.upper() != self._kind:
            raise NotInRegistry(f"{what} is {shown(schema.type)}, not {self._kind.capitalize()}")
        return schema

    def of(self, value: bytes) -> T:
        """Returns what is known of a value's schema, which was fetched. Raises UndecodableValue."""
        number = schema_id(value)
        if number is None:
            raise UndecodableValue("it has no schema id of a registry")
        if number in self._known:
            return self._known[number]
        raise UndecodableValue(self._unknown[number][0])
