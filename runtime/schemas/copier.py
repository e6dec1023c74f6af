"""Finds the schemas of a flow's records at its destination, or copies them there, with their references.

Any number of processes may copy the same schema at the same time: a registry has one id for a schema of a
subject.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from msgspec.structs import replace

from runtime.contract.records.schemas import Reference, RegisteredSchema, Schema
from runtime.contract.spec.schemas import RecordPart, SchemaSync
from runtime.schemas.client import (
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
    summary,
)
from runtime.schemas.subjects import at_destination, preferred
from runtime.schemas.versions import SchemaVersion

_MOST_REFERENCES = 100  # levels
_MOST_REFERRED = 1_000  # schemas
_NOT_IN_IMPORT_MODE = 42205
_IMPORT, _READWRITE = "IMPORT", "READWRITE"


_Path = tuple[tuple[str, int], ...]  # subjects with versions
_Known = dict[tuple[str, int], int]


class SchemaNotCopied(Exception):
    """The schema is not at the destination as it must be: records that need it are not copied."""


class SchemaSource(Protocol):
    """Has the schemas of a flow's records: the registry of its source, or a backup."""

    @property
    def name(self) -> str: ...

    async def schema(self, number: int) -> Schema: ...

    async def number_of(self, guid: UUID) -> int: ...

    async def places(self, number: int, *, deleted: bool = False) -> list[tuple[str, int]]: ...

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]: ...

    async def version(self, subject: str, number: int) -> RegisteredSchema: ...


class DestinationSchemas(ABC):
    """Knows where schemas of a flow's records are at its destination, with those that they refer to."""

    def __init__(self, source: SchemaSource, destination: SchemaRegistry, sync: SchemaSync) -> None:
        self._source = source
        self._destination = destination
        self._sync = sync

    async def has_schemas(self, topic: str, renamed: str, part: RecordPart) -> bool:
        """Returns whether keys or values (`part`) of the topic's records may begin with the id of a schema.

        Where subjects are named by the topic and it has none, such bytes only look like an id. Raises
        RegistryUnavailable.
        """
        if self._sync.subjects != "topic_name":
            return True
        try:
            return bool(await self._source.versions(f"{topic}-{part}", deleted=True))
        except NotInRegistry:
            return False
        except RegistryRefused as error:  # it says nothing of the subject: the records wait
            raise RegistryUnavailable(str(error)) from None

    @abstractmethod
    async def ensure(self, number: int, topic: str, renamed: str) -> int | None:
        """Returns the destination's id of a schema that the topic's records have, if it is there.

        `renamed` is the topic at the destination. None means that the bytes are no id: the source's registry
        does not know it, or not in a subject of the topic. Raises RegistryUnavailable, and SchemaNotCopied
        where the destination does not have the schema.
        """

    async def ensure_guid(self, guid: UUID, topic: str, renamed: str) -> None:
        """Makes sure that consumers at the destination find the schema of a GUID, as `ensure` does.

        Raises RegistryUnavailable, SchemaNotCopied, and GuidsUnknown where a registry finds none by its GUID.
        """
        try:
            if await self._destination.has_guid(guid):
                return
            number = await self._source.number_of(guid)
            if await self.ensure(number, topic, renamed) is None:
                raise SchemaNotCopied(
                    f"the source has it (id {number}) in no subject of the topic — with schemas.subjects:"
                    f" {self._sync.subjects}, only those are copied"
                )
            if not await self._destination.has_guid(guid):
                raise SchemaNotCopied(
                    "the schema has another GUID at the destination, for example since it refers to other"
                    " versions there"
                )
        except (NotInRegistry, RegistryRefused) as error:
            raise SchemaNotCopied(str(error)) from None

    async def _places(self, number: int) -> list[tuple[str, int]]:
        """Returns where the source has a schema; if it was soft-deleted everywhere, where it was."""
        with suppress(NotInRegistry):
            if places := await self._source.places(number):
                return places
        return await self._source.places(number, deleted=True)

    async def _version(
        self, subject: str, at_source: RegisteredSchema, path: _Path, destination_versions: _Known
    ) -> RegisteredSchema:
        """Returns a version of the source's as a subject of the destination has it.

        The schemas that it refers to come first: at the destination they may have other versions. `path` are
        the schemas that led to it, and `destination_versions` the versions of those that were found.
        """
        place = at_source.subject, at_source.version
        if place in path:
            cycle = " → ".join(f"{shown(name)} version {version}" for name, version in (*path, place))
            raise SchemaNotCopied(f"schemas refer to each other in a circle: {cycle}")
        if len(path) >= _MOST_REFERENCES:
            raise SchemaNotCopied(f"a schema refers to others more than {_MOST_REFERENCES} levels deep")
        references = []
        for reference in at_source.references:
            needed = reference.subject, reference.version
            if needed not in destination_versions:
                if len(destination_versions) >= _MOST_REFERRED:
                    raise SchemaNotCopied(f"a schema refers to more than {_MOST_REFERRED} others")
                version = await self._source.version(*needed)
                there = await self._version(reference.subject, version, (*path, place), destination_versions)
                destination_versions[needed] = there.version
            references.append(Reference(reference.name, reference.subject, destination_versions[needed]))
        wanted = replace(at_source, references=tuple(references))
        return await self._at_destination(subject, wanted, referred=bool(path))

    @abstractmethod
    async def _at_destination(
        self, subject: str, wanted: RegisteredSchema, *, referred: bool
    ) -> RegisteredSchema:
        """Returns a schema as a subject of the destination has it.

        `wanted` is the source's version, with references to versions of the destination. The version that is
        returned counts only where others refer to it (`referred`).
        """


class SchemaFinder(DestinationSchemas):
    """Finds schemas of a flow's records at its destination. It writes to no registry."""

    async def ensure(self, number: int, topic: str, renamed: str) -> int | None:
        """Returns the id, also of a schema whose version was soft-deleted at the source."""
        try:
            schema = await self._source.schema(number)
            places = await self._places(number)
        except NotInRegistry as error:
            if self._sync.subjects != "topic_name":
                return None
            raise SchemaNotCopied(str(error)) from None
        except RegistryRefused as error:
            raise SchemaNotCopied(str(error)) from None
        place = preferred(places, topic, self._sync.subjects)
        if place is None:
            return None
        subject = at_destination(place[0], topic, renamed, self._sync.subjects)
        try:
            return (await self._version(subject, schema.at(*place, number), (), {})).id
        except (NotInRegistry, RegistryRefused) as error:
            raise SchemaNotCopied(str(error)) from None

    async def _at_destination(
        self, subject: str, wanted: RegisteredSchema, *, referred: bool
    ) -> RegisteredSchema:
        return await self._destination.find(subject, wanted)


class SchemaCopier(DestinationSchemas):
    """Registers schemas of a flow's records at its destination.

    Once the flow has `ended`, producers register at the destination: a subject that takes a schema with its
    id is in mode IMPORT for this moment alone.
    """

    def __init__(
        self, source: SchemaSource, destination: SchemaRegistry, sync: SchemaSync, *, ended: bool = False
    ) -> None:
        super().__init__(source, destination, sync)
        self._ended = ended
        self._registered: defaultdict[str, set[int]] = defaultdict(set)
        self._without_subject: set[tuple[str, RecordPart]] = set()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def has_schemas(self, topic: str, renamed: str, part: RecordPart) -> bool:
        """Returns the same, but a source does not lose a subject that the destination has.

        Its registry may have lost its data, or not have read it all: records wait then.
        """
        if await super().has_schemas(topic, renamed, part):
            return True
        if (renamed, part) in self._without_subject:
            return False
        try:
            there = await self._destination.versions(f"{renamed}-{part}", deleted=True)
        except NotInRegistry:
            there = []
        except RegistryRefused as error:
            raise RegistryUnavailable(str(error)) from None
        if there:
            raise RegistryUnavailable(
                f"the registry of the source has no subject {shown(topic)}-{part}, and that of the"
                f" destination has {shown(renamed)}-{part}: the source may have lost it —"
                " register the schema at the source, or delete the subject at the destination"
            )
        self._without_subject.add((renamed, part))  # the flow brings it, if the source has one
        return False

    async def ensure(self, number: int, topic: str, renamed: str) -> int | None:
        """Returns the id, once the schema is registered.

        An id that the source's registry does not know, of a topic with a subject, is not None: the records
        wait for it.
        """
        try:
            if self._sync.subjects != "topic_name":
                try:
                    await self._source.schema(number)
                except NotInRegistry:
                    return None
            return await self._copy(number, topic, renamed)
        except (NotInRegistry, RegistryRefused) as error:
            raise SchemaNotCopied(str(error)) from None

    async def copy_version(self, subject: str, version: SchemaVersion, renamed: str) -> None:
        """Registers a version of a subject under its name at the destination, if it is not there.

        Raises the errors of SchemaRegistry, and SchemaNotCopied.
        """
        at_source = await self._source.version(subject, version.number)
        if summary(at_source) != replace(version, referred=""):
            raise SchemaNotCopied(
                f"version {version.number} of {shown(subject)} at {self._source.name} is another schema now"
                " than when it was listed"
            )
        if self._sync.ids == "keep":
            await self._kept(at_source.id)
        async with self._locks[renamed]:
            await self._version(renamed, at_source, (), {})

    async def copy_subject(
        self,
        subject: str,
        versions: Sequence[SchemaVersion],
        renamed: str,
        level: str,
        *,
        ensure: Callable[[], Awaitable[None]] | None = None,
        registered: Callable[[SchemaVersion], None] = lambda _: None,
    ) -> None:
        """Registers versions of a subject in their order, and sets its compatibility as soon as it can.

        An empty `level` leaves the compatibility as it is. `ensure` is called before each change, and
        `registered` after each version. Raises the errors of `copy_version` and of `ensure`.
        """
        for version in versions:
            if ensure is not None:
                await ensure()
            if level and await self._set_compatibility(level, renamed):
                level = ""
            await self.copy_version(subject, version, renamed)
            registered(version)
        if level:
            if ensure is not None:
                await ensure()
            await self._set_compatibility(level, renamed)

    async def _set_compatibility(self, level: str, renamed: str) -> bool:
        """Sets the compatibility of a subject of the destination, by which its next versions are checked.

        Returns False where the registry takes it only once the subject has a version. Raises
        RegistryUnavailable and RegistryRefused.
        """
        try:
            await self._destination.set_compatibility(level, renamed)
        except NotInRegistry:
            return False
        return True

    async def _copy(self, number: int, topic: str, renamed: str) -> int | None:
        if self._sync.ids == "keep" and await self._kept(number):
            return number
        schema, places = await asyncio.gather(self._source.schema(number), self._places(number))
        place = preferred(places, topic, self._sync.subjects)
        if place is None and places:
            return None  # the id of another topic's schema: the bytes of this record only look like one
        if place is None:
            raise NotInRegistry("no subject of the source's registry has it; it was deleted there")
        subject = at_destination(place[0], topic, renamed, self._sync.subjects)
        at_source = schema.at(*place, number)
        async with self._locks[subject]:
            return (await self._version(subject, at_source, (), {})).id

    async def _kept(self, number: int) -> bool:
        """Returns whether the destination has this schema under the same id.

        Raises SchemaNotCopied where the id means another schema there.
        """
        try:
            there = await self._destination.schema(number)
        except NotInRegistry:
            return False
        if (await self._source.schema(number)).is_same(there):
            return True
        names = [await self._subjects_of(registry, number) for registry in (self._source, self._destination)]
        raise SchemaNotCopied(
            f"schema id {number} is {names[0]} at the source and another schema, {names[1]}, at the"
            " destination — set schemas.ids to translate, or delete that schema there"
        )

    async def _subjects_of(self, registry: SchemaSource, number: int) -> str:
        try:
            places = await registry.places(number)
        except NotInRegistry:
            places = []
        return (
            ", ".join(f"{shown(subject)} version {version}" for subject, version in places[:3]) or "deleted"
        )

    async def _version(
        self, subject: str, at_source: RegisteredSchema, path: _Path, destination_versions: _Known
    ) -> RegisteredSchema:
        """Registers a version of a subject. Returns it as the destination has it.

        A registry that gives its own ids also numbers the versions as they come, and compares each with
        those before it: earlier ones are registered first.
        """
        done = self._registered[subject]
        if self._sync.ids == "translate":
            try:
                numbers = await self._source.versions(at_source.subject)
            except NotInRegistry:  # it was soft-deleted
                numbers = []
            for number in numbers:
                if number < at_source.version and number not in done:
                    earlier = await self._source.version(at_source.subject, number)
                    await super()._version(subject, earlier, path, destination_versions)
                    done.add(number)
        there = await super()._version(subject, at_source, path, destination_versions)
        done.add(at_source.version)
        return there

    async def _at_destination(
        self, subject: str, wanted: RegisteredSchema, *, referred: bool
    ) -> RegisteredSchema:
        if self._sync.ids == "keep":
            await self._import(subject, wanted)
            return replace(wanted, subject=subject)
        number = await self._destination.register(subject, wanted)
        if not referred:
            return replace(wanted, subject=subject, id=number)
        return await self._destination.find(subject, wanted)

    async def _import(self, subject: str, wanted: RegisteredSchema) -> None:
        """Registers a schema with its id and version; a subject takes those in the mode IMPORT alone.

        A subject in another mode than READWRITE, as READONLY, was frozen on purpose: it stays as it is. In
        mode IMPORT a registry would exchange a version that it has: one with another schema is left alone.
        """
        if await self._has_version(subject, wanted):
            return
        try:
            there = await self._destination.register(subject, wanted, wanted.id, wanted.version)
        except RegistryRefused as error:
            if error.code != _NOT_IN_IMPORT_MODE or await self._mode(subject) != _READWRITE:
                raise
            await self._destination.set_mode(_IMPORT, subject)
            try:
                there = await self._destination.register(subject, wanted, wanted.id, wanted.version)
            finally:
                if self._ended:
                    await self._destination.set_mode(_READWRITE, subject)
        if there != wanted.id:
            raise SchemaNotCopied(
                f"the registry of the destination gives id {there} to schema id {wanted.id}: it can't keep"
                " ids — set schemas.ids to translate"
            )

    async def _has_version(self, subject: str, wanted: RegisteredSchema) -> bool:
        """Returns whether the destination has this version. Raises SchemaNotCopied for another schema."""
        try:
            there = await self._destination.version(subject, wanted.version)
        except NotInRegistry:
            return False
        if (there.id, there.fingerprint()) == (wanted.id, wanted.fingerprint()):
            return True
        raise SchemaNotCopied(
            f"version {wanted.version} of {shown(subject)} is schema id {wanted.id} at the source, and schema"
            f" id {there.id} at the destination — set schemas.ids to translate, or delete that version there"
        )

    async def _mode(self, subject: str) -> str:
        """Returns the mode of a subject of the destination; one without its own has that of all."""
        for named in (subject, None):
            try:
                return await self._destination.mode(named)
            except NotInRegistry:
                continue
        return _READWRITE
