"""The plan as plain trees (dicts, lists, text, numbers), as bytes, and its digest.

A field that holds its default is left out. Addresses are written as people write them. Secrets that are
written out in a cluster's client settings are masked. The bytes hold every field of the plan: the same plan
has the same bytes on every machine.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from planner.model.address import Address
from planner.model.plan import SENSITIVE, Plan
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    RestoreOffsets,
    RestoreRecords,
    Step,
    StopJob,
)
from planner.model.topology import Cluster, looks_secret

STEP_KINDS: Mapping[str, type[Step]] = {
    "create_topic": CreateTopic,
    "grow_partitions": GrowPartitions,
    "alter_configs": AlterConfigs,
    "reassign": Reassign,
    "delete_topic": DeleteTopic,
    "create_acl": CreateAcl,
    "delete_acl": DeleteAcl,
    "alter_quota": AlterQuota,
    "own": Own,
    "disown": Disown,
    "launch_job": LaunchJob,
    "reconfigure_job": ReconfigureJob,
    "stop_job": StopJob,
    "restore_records": RestoreRecords,
    "restore_offsets": RestoreOffsets,
}
KIND_OF: Mapping[type[Step], str] = {kind: name for name, kind in STEP_KINDS.items()}


def plain(value: Any) -> Any:
    """Returns any value of the model as a plain tree."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Address():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case tuple() | list():
            return [plain(one) for one in value]
        case frozenset() | set():
            return sorted(plain(one) for one in value)
        case Cluster():
            return _fields({**_by_name(value), "client": _without_secrets(value)}, type(value))
        case _ if type(value) in KIND_OF:
            return {"step": KIND_OF[type(value)], **_fields(_by_name(value), type(value))}
        case _ if is_dataclass(value):
            return _fields(_by_name(value), type(value))
        case _:
            raise TypeError(f"{type(value).__name__} has no plain form")


def literal_secrets(plan: Plan) -> list[str]:
    """Returns `dc1: sasl.password` for each secret that is written out instead of being a reference."""
    return [
        f"{name}: {key}"
        for name, cluster in sorted(plan.connections.items())
        for key, value in sorted(cluster.client.items())
        if isinstance(value, str) and looks_secret(key)
    ]


def _without_secrets(cluster: Cluster) -> dict[str, Any]:
    return {
        key: SENSITIVE if isinstance(value, str) and looks_secret(key) else value
        for key, value in sorted(cluster.client.items())
    }


def _by_name(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name, _ in _defaults(type(value))}  # type: ignore[arg-type]


def _fields(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    return {name: plain(values[name]) for name, default in _defaults(kind) if values[name] != default}


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Returns each field with its default. MISSING stands for no default and equals no value."""
    return tuple(
        (
            one.name,
            one.default
            if one.default is not MISSING
            else one.default_factory()
            if one.default_factory is not MISSING
            else MISSING,
        )
        for one in fields(kind)
    )


PREFIX = "sha256:"


def digest(plan: Plan) -> str:
    """Returns the name of this plan: `sha256:` and 64 hex digits."""
    return digest_of(body_of(plan))


def body_of(plan: Plan) -> dict[str, Any]:
    """Returns the plan as the plain tree that a plan file holds."""
    body = plain(plan)
    assert isinstance(body, dict)
    return body


def digest_of(body: dict[str, Any]) -> str:
    """Returns the digest of a plan's plain tree."""
    return PREFIX + hashlib.sha256(canonical(body)).hexdigest()


def canonical(body: dict[str, Any]) -> bytes:
    """Returns the bytes that the digest and the signature are made over."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
