"""Reads the subjects of schema registries for all flows of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from runtime.kafka.timing import Gathered
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.versions import SchemaVersion, with_referred

Subjects = Mapping[str, tuple[SchemaVersion, ...]]


class SubjectsReader:
    """Flows that read the same registry at the same time share one read.

    It begins after each of them has called: a producer registers a schema before it writes, so the result
    holds the schemas of all records that a caller has read before.
    """

    def __init__(self, registry: Callable[[str], SchemaRegistry]) -> None:
        self._registry = registry
        self._reads: dict[tuple[str, bool], Gathered[str, None, Subjects]] = {}

    async def read(self, name: str, *, deleted: bool = False) -> Subjects:
        """Returns all subjects of a registry with their versions; with `deleted` also soft-deleted ones.

        Raises the errors of SchemaRegistry.
        """
        read = partial(self._read, name, deleted)
        reads = self._reads.setdefault((name, deleted), Gathered(read, 1, resend=True))
        return await reads.ask({name: None})

    async def _read(self, name: str, deleted: bool, _: Mapping[str, None]) -> Subjects:
        listed = await self._registry(name).every_version(deleted=deleted)
        return listed if deleted else with_referred(listed)
