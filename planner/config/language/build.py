"""Builds the topology's dataclasses from what was read.

The fields of a dataclass take the values of their keys; only the values of the keys that name a converter are
converted by hand.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any

from planner.config.language.defaults import TopologyParts
from planner.config.language.fields import NamedReference, ParsedRecord
from planner.config.settings import value_as_text
from planner.model.diagnostic import SourceLocation
from planner.model.shapes import OffOrShape, RecordKeyShape
from planner.model.topology import (
    Cluster,
    Job,
    Requirement,
    SecretRef,
    StartAt,
    Topic,
    Topology,
    looks_secret,
)
from runtime.contract.spec.rename import Rename, Table, Template

_PLAIN = frozenset({str, int, bool, NoneType})
_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*(.*?)\s*", re.DOTALL)


def topology_of(parts: TopologyParts) -> Topology:
    """Returns the topology, sorted by name: the order of keys, entries and files means nothing."""
    flows = sorted((built(flow) for flow in parts.flows), key=lambda flow: flow.name)
    topics: list[Topic] = [one for topic in parts.topics for one in built_for_each(topic)]
    acls = [acl for entry in parts.acls for acl in built(entry).acls()]
    topology = Topology(
        name=parts.root["name"],
        clusters={name: built(parts.clusters[name], name=name) for name in sorted(parts.clusters)},
        topics=tuple(sorted(topics, key=lambda topic: (topic.cluster, topic.name))),
        acls=tuple(sorted(acls, key=lambda acl: acl.rule)),
        flows={flow.name: flow for flow in flows},
        jobs={
            name: built(parts.jobs[name], name=name) if name in parts.jobs else Job(name)
            for name in sorted({*parts.jobs, *(flow.job for flow in flows)})
        },
        internal=built(parts.root["internal"]),
        policies=built(parts.root["policies"]),
    )
    return dataclasses.replace(topology, digest=_digest(topology))


def built(fields: ParsedRecord, **more: Any) -> Any:
    """Returns the object that a record declares. `fields` is complete and without mistakes."""
    declared: Any = fields.record.declared_by
    return declared(**_arguments(fields), **more)


def built_for_each(fields: ParsedRecord) -> list[Any]:
    """Returns one object for every item of the record's list that says where it is."""
    declared: Any = fields.record.declared_by
    arguments = _arguments(fields)
    (name,) = (key.field for key in fields.record.keys if key.each)
    return [declared(**{**arguments, name: item}) for item in arguments[name]]


def rename_of(value: Any) -> Rename:
    """Returns the rename rule of what was read: a template, a regex or a map of names."""
    match value:
        case str():
            return Template(value)
        case ParsedRecord():
            rename: Rename = built(value)
            return rename
        case _:
            return Table(tuple(sorted(value.items())))


def requirement(subject: str, text: str, source: SourceLocation | None) -> Requirement:
    """Returns a comparison such as ">=3". Raises NotReadable where its value is none for this subject."""
    found = _COMPARISON.fullmatch(text)
    assert found is not None
    operator: Any = found[1] or "=="
    return Requirement(subject, operator, value_as_text(subject, found[2]), source)


def _requirements(require: dict[str, NamedReference]) -> tuple[Requirement, ...]:
    return tuple(
        requirement(subject, require[subject].text, require[subject].source) for subject in sorted(require)
    )


def _bootstrap(addresses: tuple[str, ...]) -> str:
    return ",".join(part.strip() for text in addresses for part in text.split(","))


def _start(value: Any) -> Any:
    return built(value) if isinstance(value, ParsedRecord) else StartAt(value)


CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "bootstrap": _bootstrap,
    "rename": rename_of,
    "requirements": _requirements,
    "start": _start,
}


def _arguments(fields: ParsedRecord) -> dict[str, Any]:
    """Returns the values of a record by the fields of its dataclass."""
    found: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key in fields.record.keys:
        if key.name not in fields.values:
            continue
        value = fields.values[key.name]
        outer, _, rest = key.field.partition(".")
        if not key.field:
            found |= _section(key, value)
        elif rest:
            inner.setdefault(outer, {})[rest] = _converted(key, value)
        else:
            found[key.field] = _converted(key, value)
    if (declared := fields.record.declared_by) is not None:
        usual = _fields_of(declared)
        for name, values in inner.items():
            found[name] = dataclasses.replace(usual[name].default, **values)
        if "source" in usual:
            found["source"] = fields.place("name")
    return found


@cache
def _fields_of(declared: Any) -> dict[str, Any]:
    return {one.name: one for one in dataclasses.fields(declared)}


def _section(key: RecordKeyShape, value: ParsedRecord | None) -> dict[str, Any]:
    """Returns the fields of a section. One that is off has None as its first field."""
    if value is not None:
        return _arguments(value)
    assert isinstance(key.shape, OffOrShape)
    return {key.shape.shape.keys[0].field: None}


def _converted(key: RecordKeyShape, value: Any) -> Any:
    if key.converter:
        return CONVERTERS[key.converter](value)
    match value:
        case NamedReference():
            return value.text
        case ParsedRecord():
            return built(value)
        case tuple():
            return tuple(one.text if isinstance(one, NamedReference) else one for one in value)
        case _:
            return value


def _digest(topology: Topology) -> str:
    """Returns the digest of a topology: equal for equal content, whatever the order of keys and of files.

    Places do not count, nor what literal secrets are.
    """
    content = json.dumps(_plain(topology), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Cluster):
        client = {key: _plain_setting(key, one) for key, one in value.client.items()}
        return {**_plain_fields(value), "client": client}
    return {"is": type(value).__name__, **_plain_fields(value)}


def _plain_fields(value: Any) -> dict[str, Any]:
    found = {name: getattr(value, name) for name in _fields_of(value.__class__)}
    return {name: _plain(one) for name, one in found.items() if name != "digest" and not _is_place(name, one)}


def _is_place(name: str, value: object) -> bool:
    return name == "source" and (value is None or isinstance(value, SourceLocation))


def _plain_setting(key: str, value: str | SecretRef) -> Any:
    if isinstance(value, SecretRef):
        return {value.kind: value.name}
    return "(sensitive value)" if looks_secret(key) else value
