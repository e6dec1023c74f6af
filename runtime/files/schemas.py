"""The schemas of a backup: numbered files beside the manifest of its flow, which are only added.

A file holds the versions that the backup lacked, and is written before the commit of the records that need
them. All methods block: the driver calls them in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.contract.client.stores import Setting
from runtime.contract.records import manifest
from runtime.contract.records.manifest import StoredSchemas, UnreadableCommit
from runtime.contract.spec.files import OWN_FOLDER
from runtime.files.manifest import ManifestProblem, as_unavailable
from runtime.files.open_store import opened


class SchemaFolder:
    """The schemas of one flow below the endpoint's folder."""

    def __init__(self, endpoint: str, flow: str, client: Mapping[str, Setting] | None = None) -> None:
        self._store = opened(endpoint, client)
        self._flow = flow
        self._folder = f"{OWN_FOLDER}/{flow}/schemas"

    def read(self) -> list[StoredSchemas]:
        """Returns all additions in their order. Raises ManifestProblem, EndpointUnavailable."""
        with as_unavailable(self._store):
            names = sorted(name for name in self._store.names(self._folder) if name.endswith(".json"))
            texts = self._store.read_all([f"{self._folder}/{name}" for name in names])
        return [
            self._decoded(name, number, text)
            for number, (name, text) in enumerate(zip(names, texts, strict=True), 1)
        ]

    def _decoded(self, name: str, number: int, text: bytes) -> StoredSchemas:
        path = self._store.path(f"{self._folder}/{name}")
        try:
            schemas = manifest.decode_schemas(text)
        except UnreadableCommit as error:
            raise ManifestProblem(f"{path} can't be read: {error}; restore it from a copy") from error
        if (name, schemas.number, schemas.flow) != (_name(number), number, self._flow):
            raise ManifestProblem(
                f"{path} is not file {number} of these schemas: restore the folder from a copy"
            )
        return schemas

    def add(self, addition: StoredSchemas) -> None:
        """Writes an addition behind the last one. Raises ManifestTaken, EndpointUnavailable."""
        with as_unavailable(self._store):
            self._store.add(f"{self._folder}/{_name(addition.number)}", manifest.encode(addition))


def _name(number: int) -> str:
    return f"{number:08}.json"
