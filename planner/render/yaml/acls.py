"""Bindings as few lines as say it all: clusters, operations and names join where everything else is equal."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from planner.model.topology import AclRule
from planner.render.yaml.text import Value

_KEYS = {
    "TOPIC": "topic",
    "GROUP": "group",
    "TRANSACTIONAL_ID": "transactional_id",
    "DELEGATION_TOKEN": "delegation_token",
    "USER": "user",
}


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
    """By principal, then by what it is about."""
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
    """Entries that differ in this part alone become one."""
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
    found: dict[str, Value] = {
        "cluster": _lone(entry.clusters),
        "principal": entry.principal,
        entry.permission.lower(): list(entry.operations),
    }
    if entry.kind == "CLUSTER":
        found["whole_cluster"] = True
    else:
        found[_KEYS[entry.kind]] = _lone(entry.names)
    if entry.prefixed:
        found["prefixed"] = True
    if entry.host != "*":
        found["host"] = entry.host
    return found


def _lone(values: tuple[str, ...]) -> Value:
    return list(values) if len(values) > 1 else values[0]
