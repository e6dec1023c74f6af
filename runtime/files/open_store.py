"""Opens the store of an endpoint: a folder, or an object store whose library only such an endpoint needs."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.contract.client.stores import Setting, is_store
from runtime.files.store import FileStore, LocalFolder


def opened(address: str, client: Mapping[str, Setting] | None = None) -> FileStore:
    """Returns the store of an endpoint. It connects where it is first used."""
    if is_store(address):
        from runtime.files.object_store import ObjectStore

        return ObjectStore(address, client or {})
    return LocalFolder(address)
