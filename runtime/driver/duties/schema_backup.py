"""Keeps the schemas of a backup's records beside its raw files.

Producers register a schema before they write. So the versions that are read after the records of a round hold
every schema that these need, also one that was soft-deleted since, and they are stored before the round is
committed. A round waits for a registry that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from runtime.contract.records.manifest import (
    StoredSchemas,
    UnreadableCommit,
    decode_schemas,
    encode,
)
from runtime.contract.records.schemas import RegisteredSchema
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.flows.rounds import finished
from runtime.files.schemas import SchemaFolder
from runtime.kafka.errors import Disconnected
from runtime.schemas.client import (
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
    summary,
)
from runtime.schemas.stored import BackedUpSchemas
from runtime.schemas.subjects import subjects_of_topic
from runtime.schemas.versions import SchemaVersion, with_referenced
from runtime.slot.log import log_event

_MOST_BYTES = 8 << 20  # of texts in one file
_AT_A_TIME = 100  # versions, or subjects with their compatibility, that are read
_LEVELS_EVERY_S = 30.0  # between two looks at the compatibility of subjects without new versions


class SchemaBackup:
    """Stores the schemas of one flow into raw files. It knows what the folder has once it has read it.

    `ensure` is called before each write: it raises where this driver is fenced.
    """

    def __init__(
        self,
        spec: FlowSpec,
        files: FilesSpec,
        clusters: DriverClusters,
        ensure: Callable[[], Awaitable[None]],
    ) -> None:
        self._spec = spec
        self._clusters = clusters
        self._ensure = ensure
        self._folder = SchemaFolder(files.folder, spec.name, files.client)
        self._known: dict[str, dict[int, SchemaVersion]] | None = None
        self._files = 0
        self._levels: dict[str, str] = {}  # that the folder has
        self._levels_due = 0.0
        self._turn = 0

    def forget(self) -> None:
        """Reads the folder again before the next round: another driver may have written it."""
        self._known, self._levels_due = None, 0.0

    async def run(self, topics: Iterable[str]) -> None:
        """Stores what the folder lacks of the subjects of these topics, and of those that they refer to.

        It may be cancelled between two files. Raises Disconnected where the registry does not answer,
        ManifestTaken, ManifestProblem and EndpointUnavailable.
        """
        if not self._spec.schemas.sync:
            return
        await self._read()
        registry = self._clusters.schema_registry(self._spec.source)
        try:
            subjects = await self._clusters.subjects.read(self._spec.source, deleted=True)
            wanted = self._wanted(subjects, topics)
            missing = [
                (subject, version)
                for subject in wanted
                for version in subjects[subject]
                if not self._has(subject, version)
            ]
            for first in range(0, len(missing), _AT_A_TIME):
                await self._store(registry, missing[first : first + _AT_A_TIME])
            await self._store_levels(registry, wanted)
        except (RegistryUnavailable, RegistryRefused, NotInRegistry) as error:
            raise Disconnected("schema registry", str(error), sent=False) from None

    async def _read(self) -> None:
        if self._known is None:
            additions = await asyncio.to_thread(self._folder.read)
            self._known, self._levels = {}, {}
            self._note(additions)
            self._files = len(additions)

    def _note(self, additions: Sequence[StoredSchemas]) -> None:
        assert self._known is not None
        for subject, versions in BackedUpSchemas("", additions).every_version().items():
            self._known.setdefault(subject, {}).update({version.number: version for version in versions})
        for addition in additions:
            self._levels |= addition.levels

    def _has(self, subject: str, version: SchemaVersion) -> bool:
        """Returns whether the folder has a version. Raises RegistryUnavailable where it has another one.

        Records of the backup have the ids of the schemas that it holds, so none is replaced.
        """
        assert self._known is not None
        stored_version = self._known.get(subject, {}).get(version.number)
        if stored_version is not None and stored_version != version:
            raise RegistryUnavailable(
                f"{shown(subject)} version {version.number} (id {version.id}) is another schema than the one"
                f" in the backup (id {stored_version.id}): if the registry was made anew, give the flow"
                " another name"
            )
        return stored_version is not None

    def _wanted(self, subjects: Mapping[str, tuple[SchemaVersion, ...]], topics: Iterable[str]) -> list[str]:
        names = self._spec.schemas.subjects
        if names == "record_name":  # no subject tells its topic
            return sorted(subjects)
        ordered = sorted(subjects)
        of_topics = [subject for topic in topics for subject in subjects_of_topic(ordered, topic, names)]
        return sorted(with_referenced(of_topics, subjects))

    async def _store(self, registry: SchemaRegistry, missing: list[tuple[str, SchemaVersion]]) -> None:
        read = await asyncio.gather(
            *(registry.version(subject, listed.number, deleted=True) for subject, listed in missing)
        )
        for (subject, listed), registered in zip(missing, read, strict=True):
            if (registered.subject, summary(registered)) != (subject, listed):
                what = f"{shown(subject)} version {listed.number}"
                raise RegistryUnavailable(f"{what} is another schema than when it was listed")
        subjects = sorted({subject for subject, _ in missing})
        levels = await self._new_levels(registry, subjects)
        piece: list[RegisteredSchema] = []
        size = 0
        for version in read:
            piece.append(version)
            size += len(version.text)
            if size > _MOST_BYTES:
                await finished(self._add(piece, levels))
                piece, size = [], 0
        if piece:
            await finished(self._add(piece, levels))

    async def _store_levels(self, registry: SchemaRegistry, subjects: Sequence[str]) -> None:
        """Stores changes of the compatibility without a new version, of some subjects at a time in turn."""
        now = asyncio.get_running_loop().time()
        if now < self._levels_due:
            return
        self._levels_due = now + _LEVELS_EVERY_S
        if self._turn >= len(subjects):
            self._turn = 0
        some = subjects[self._turn : self._turn + _AT_A_TIME]
        self._turn += _AT_A_TIME
        if levels := await self._new_levels(registry, some):
            await finished(self._add([], levels))

    async def _new_levels(self, registry: SchemaRegistry, subjects: Sequence[str]) -> dict[str, str]:
        """Returns the compatibility of subjects where it is not the stored one; "" where it was removed."""
        levels = await registry.own_compatibilities(subjects)
        return {
            subject: level
            for subject, level in zip(subjects, levels, strict=True)
            if level != self._levels.get(subject, "")
        }

    async def _add(self, versions: list[RegisteredSchema], levels: Mapping[str, str]) -> None:
        addition = StoredSchemas(
            flow=self._spec.name,
            number=self._files + 1,
            names=self._spec.schemas.subjects,
            versions=versions,
            levels=dict(levels),
        )
        try:
            decode_schemas(encode(addition))  # what can't be read again is not written
        except UnreadableCommit as error:
            raise RegistryUnavailable(f"it answers what no registry says: {shown(str(error))}") from None
        await self._ensure()
        await asyncio.to_thread(self._folder.add, addition)
        self._files += 1
        self._note([addition])
        log_event("schemas_stored", key=self._spec.name, flow=self._spec.name, versions=len(versions))
