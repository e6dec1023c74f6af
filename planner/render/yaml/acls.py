"""Writes ACL bindings as few entries: clusters, operations and names are joined if all else is equal."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from planner.model.topology import RESOURCES, AclEntry, AclRule
from planner.render.yaml.text import Value
from planner.render.yaml.values import values_of

_KEYS = {kind: key for key, kind in RESOURCES.items()}


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: str
    kind: str
    prefixed: bool
    host: str
    permission: str
    names: tuple[str, ...]
    operations: tuple[str, ...]
    clusters: tuple[str, ...]


def acl_values(rules: Iterable[AclRule]) -> list[dict[str, Value]]:
    """Returns the entries by principal, then by resource."""
    entries = [
        _Entry(
            rule.principal,
            rule.resource_type,
            rule.pattern == "PREFIXED",
            rule.host,
            rule.permission,
            (rule.resource,),
            (rule.operation,),
            (rule.cluster,),
        )
        for rule in set(rules)
    ]
    for part in ("operations", "clusters", "names"):
        entries = _joined(entries, part)
    return [_value(entry) for entry in sorted(entries, key=_order)]


def _order(entry: _Entry) -> tuple[object, ...]:
    return (
        entry.principal,
        entry.kind,
        entry.names,
        entry.clusters,
        entry.permission,
        entry.host,
        entry.prefixed,
    )


def _joined(entries: list[_Entry], part: str) -> list[_Entry]:
    """Joins entries that differ in this part alone."""
    alike: dict[_Entry, set[str]] = {}
    nothing: dict[str, Any] = {part: ()}
    for entry in entries:
        alike.setdefault(replace(entry, **nothing), set()).update(getattr(entry, part))
    joined: list[_Entry] = []
    for rest, values in alike.items():
        all_of_them: dict[str, Any] = {part: tuple(sorted(values))}
        joined.append(replace(rest, **all_of_them))
    return joined


def _value(entry: _Entry) -> dict[str, Value]:
    names: dict[str, Any] = {_KEYS[entry.kind]: entry.names} if entry.kind in _KEYS else {}
    written = AclEntry(
        cluster=entry.clusters,
        principal=entry.principal,
        allow=entry.operations if entry.permission == "ALLOW" else (),
        deny=entry.operations if entry.permission == "DENY" else (),
        **names,
        whole_cluster=entry.kind == "CLUSTER",
        prefixed=entry.prefixed,
        host=entry.host,
    )
    return values_of(written)
