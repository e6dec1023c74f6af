"""The schemas that a backup holds, read like those of a registry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from runtime.contract.records.manifest import StoredSchemas
from runtime.contract.records.schemas import RegisteredSchema, Schema
from runtime.contract.spec.schemas import SubjectNames
from runtime.schemas.client import (
    GuidsUnknown,
    NotInRegistry,
    shown,
    summary,
)
from runtime.schemas.versions import SchemaVersion


class BackedUpSchemas:
    """Knows all versions that a backup holds. A version never changes, and none is removed."""

    def __init__(self, name: str, additions: Iterable[StoredSchemas] = ()) -> None:
        self.name = name
        self.names: SubjectNames = "topic_name"
        self.levels: dict[str, str] = {}
        self._versions: defaultdict[str, dict[int, RegisteredSchema]] = defaultdict(dict)
        self._schemas: dict[int, Schema] = {}
        for addition in additions:
            self.add(addition)

    def add(self, addition: StoredSchemas) -> None:
        """Adds what one file of the backup holds."""
        self.names = addition.names
        self.levels |= addition.levels
        for version in addition.versions:
            self._versions[version.subject][version.version] = version
            self._schemas.setdefault(version.id, version)

    def every_version(self) -> Mapping[str, tuple[SchemaVersion, ...]]:
        """Returns the versions of all subjects, in their order."""
        return {
            subject: tuple(summary(versions[number]) for number in sorted(versions))
            for subject, versions in sorted(self._versions.items())
        }

    async def schema(self, number: int) -> Schema:
        if number not in self._schemas:
            raise NotInRegistry(f"the backup has no schema id {number}")
        return self._schemas[number]

    async def number_of(self, guid: UUID) -> int:
        raise GuidsUnknown("a backup has no GUIDs of schemas")

    async def places(self, number: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        return [
            (subject, version)
            for subject, versions in self._versions.items()
            for version, registered in versions.items()
            if registered.id == number
        ]

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        if subject not in self._versions:
            raise NotInRegistry(f"the backup has no versions of {shown(subject)}")
        return sorted(self._versions[subject])

    async def version(self, subject: str, number: int) -> RegisteredSchema:
        registered = self._versions.get(subject, {}).get(number)
        if registered is None:
            raise NotInRegistry(f"the backup has no {shown(subject)} version {number}")
        return registered
