"""The digest of a topology: equal for equal content, whatever the order of keys and the split into files."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from planner.model.diagnostic import SourceLocation
from planner.model.topology import Cluster, SecretRef, Topology, looks_secret


def digest_of(topology: Topology) -> Topology:
    """The topology with its digest. Places do not count, nor what literal secrets are."""
    content = json.dumps(_plain(topology), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return dataclasses.replace(topology, digest=hashlib.sha256(content.encode()).hexdigest())


def _plain(value: Any) -> Any:
    if isinstance(value, Cluster):
        return {**_fields(value), "client": {key: _setting(key, one) for key, one in value.client.items()}}
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **_fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    found = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return {name: _plain(one) for name, one in found.items() if name != "digest" and not _is_place(name, one)}


def _is_place(name: str, value: object) -> bool:
    return name == "source" and (value is None or isinstance(value, SourceLocation))


def _setting(key: str, value: str | SecretRef) -> Any:
    if isinstance(value, SecretRef):
        return {value.kind: value.name}
    return "(sensitive value)" if looks_secret(key) else value
