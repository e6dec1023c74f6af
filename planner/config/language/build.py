"""Builds the topology's dataclasses from the keys that were read, with a default for each absent key.

Defaults are inherited from the topology first, then from the language. The fields of a dataclass take the
values of their keys; only the values of the keys that name a converter are converted by hand.
"""

import dataclasses
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any

from msgspec import structs

from planner.config.files import read_bytes, read_text
from planner.config.language.reader import ParsedRecord
from planner.config.language.scalars import spark_bytes, value_as_text
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import (
    FILE_FLOW_KEYS,
    LINES_FLOW_KEYS,
    Cluster,
    DrillSample,
    FileEndpoint,
    Job,
    Quota,
    Requirement,
    Rule,
    Topic,
    Topology,
    looks_secret,
)
from runtime.contract.client.secrets import SENSITIVE
from runtime.contract.spec import shapes
from runtime.contract.spec.flow import Earliest, Latest, Start
from runtime.contract.spec.rename import Rename, Table, Template
from runtime.contract.spec.shapes import Key, OffOrShape, defaults_of_fields, record_of


def with_inherited(root: ParsedRecord) -> ParsedRecord:
    """Returns a topology that was read, with what its parts inherit, before it is checked and built.

    It has every part. An entry that was wrong stays as a name with the value INVALID, so that references to
    it are not errors.
    """
    defaults = root.get("defaults")
    endpoints = dict(root.get("endpoints") or {})
    flows = [_with_named_source(flow, endpoints) for flow in root.get("flows") or ()]
    topics = root.get("topics") or ()
    of_lines = _of_lines(flows, topics, root.get("clusters") or ())
    for_topics, for_flows = (defaults.get("topic"), defaults.get("flow")) if defaults else (None, None)
    parts: dict[str, Any] = {
        **{part: root.get(part) or {} for part in ("clusters", "jobs", "registries")},
        **{part: root.get(part) or () for part in ("acls", "quotas", "cutovers")},
        "endpoints": endpoints,
        "topics": tuple(inherited(topic, for_topics) for topic in (*topics, *of_lines)),
        "flows": tuple(_with_defaults(flow, for_flows, endpoints) for flow in flows),
    }
    return ParsedRecord(root.record, root.source, {**root.values, **parts}, root.places)


def is_endpoint(end: str, flow: ParsedRecord, topology: ParsedRecord) -> bool:
    """Returns whether an end of a flow, `from` or `to`, is an endpoint."""
    named = flow.get(end)
    return named is not None and named.text in topology["endpoints"]


_NAMELESS = "?"


def _with_named_source(flow: ParsedRecord, endpoints: dict[str, Any]) -> ParsedRecord:
    """Returns a flow with the name of its source: files that stand in it become an endpoint of its name.

    `./` is the folder of the topology's file.
    """
    source, name = flow.get("from"), flow.get("name")
    if not isinstance(source, ParsedRecord):
        return flow
    if name is None:  # which is an error already
        name = _NAMELESS
    values = dict(source.values)
    folder = values.get("file")
    if isinstance(folder, str) and (folder == "." or folder.startswith("./")):
        values["file"] = str((Path(source.place("file").file).parent / folder).resolve())
    if "format" not in source.places:
        values["format"] = "text"
    places = {**source.places, "name": source.source}
    endpoints.setdefault(name, ParsedRecord(record_of(FileEndpoint), source.source, values, places))
    reference = ScalarNode(name, False, source.source)
    return ParsedRecord(flow.record, flow.source, {**flow.values, "from": reference}, flow.places)


def _of_lines(
    flows: Iterable[ParsedRecord], topics: Iterable[ParsedRecord], clusters: Collection[str]
) -> list[ParsedRecord]:
    """Returns an entry for each topic that takes records of files and that no entry declares."""
    declared = {(at.text, topic.get("name")) for topic in topics for at in topic.get("cluster") or ()}
    missing: list[ParsedRecord] = []
    for flow in flows:
        destination, taken = flow.get("to"), flow.get("topics")
        name = taken.get("to") if isinstance(taken, ParsedRecord) else None
        if name is None or destination is None or destination.text not in clusters:
            continue
        if (destination.text, name) in declared:
            continue
        declared.add((destination.text, name))
        place = flow.place("topics")
        values = {"name": name, "cluster": (destination,)}
        missing.append(ParsedRecord(record_of(Topic), place, values, dict.fromkeys(values, place)))
    return missing


def _with_defaults(
    flow: ParsedRecord, default: ParsedRecord | None, endpoints: Collection[str]
) -> ParsedRecord:
    """Returns the flow with its inherited keys. A flow with files inherits only the keys that it has."""
    for side, keys in (("to", FILE_FLOW_KEYS), ("from", LINES_FLOW_KEYS)):
        end = flow.get(side)
        if default is not None and end is not None and end.text in endpoints:
            values = {name: value for name, value in default.values.items() if name in keys}
            places = {name: place for name, place in default.places.items() if name in keys}
            default = ParsedRecord(default.record, default.source, values, places)
    return inherited(flow, default)


def inherited(written: ParsedRecord, default: ParsedRecord | None) -> ParsedRecord:
    """Returns the record with the defaults added: maps by key, settings by name, other values as a whole."""
    if default is None:
        return written
    result = ParsedRecord(written.record, written.source, dict(written.values), dict(written.places))
    for name, value in default.values.items():
        if name not in written.places:
            result.values[name] = value
            result.places[name] = default.places[name]
            continue
        mine = written.values.get(name)
        if isinstance(mine, ParsedRecord) and isinstance(value, ParsedRecord) and mine.record is value.record:
            result.values[name] = inherited(mine, value)
        elif isinstance(written.record.by_name[name].shape, shapes.SettingsShape) and isinstance(mine, dict):
            result.values[name] = {**value, **mine}
    return result


_PLAIN = frozenset({str, int, float, bool, NoneType})
_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*(.*?)\s*", re.DOTALL)


def topology_of(root: ParsedRecord) -> Topology:
    """Returns the topology, sorted by name: the order of keys, entries and files means nothing."""
    flows = sorted((built(flow) for flow in root["flows"]), key=lambda flow: flow.name)
    with_files = {
        flow["name"]
        for flow in root["flows"]
        if is_endpoint("from", flow, root) or is_endpoint("to", flow, root)
    }
    topics: list[Topic] = [topic for record in root["topics"] for topic in built_for_each(record)]
    acls = [acl for entry in root["acls"] for acl in built(entry).acls()]
    quotas: list[Quota] = [quota for record in root["quotas"] for quota in built_for_each(record)]
    topology = Topology(
        name=root["name"],
        clusters={name: built(root["clusters"][name], name=name) for name in sorted(root["clusters"])},
        topics=tuple(sorted(topics, key=lambda topic: (topic.cluster, topic.name))),
        acls=tuple(sorted(acls, key=lambda acl: acl.rule)),
        quotas=tuple(sorted(quotas, key=lambda quota: (quota.cluster, quota.entity.name))),
        flows={flow.name: flow for flow in flows if flow.name not in with_files},
        file_flows={
            flow.name: structs.replace(flow, origin_commits=None) for flow in flows if flow.name in with_files
        },
        cutovers=tuple(built(cutover) for cutover in root["cutovers"]),
        endpoints={name: built(root["endpoints"][name], name=name) for name in sorted(root["endpoints"])},
        registries={name: built(root["registries"][name], name=name) for name in sorted(root["registries"])},
        jobs={
            name: built(root["jobs"][name], name=name) if name in root["jobs"] else Job(name)
            for name in sorted({*root["jobs"], *(flow.job for flow in flows)})
        },
        **{part: built(root[part]) for part in ("internal", "policies", "drill") if part in root.values},
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
    """Returns the rename rule of a parsed value: a template, a regex or a map of names."""
    match value:
        case str():
            return Template(value)
        case ParsedRecord():
            rename: Rename = built(value)
            return rename
        case _:
            return Table(dict(sorted(value.items())))


def requirement(subject: str, text: str, source: SourceLocation | None) -> Requirement:
    """Returns a comparison such as ">=3". Raises NotReadable where its value is none for this subject."""
    comparison = _COMPARISON.fullmatch(text)
    assert comparison is not None
    operator: Any = comparison[1] or "=="
    return Requirement(subject, operator, value_as_text(subject, comparison[2]), source)


def _requirements(require: dict[str, ScalarNode]) -> tuple[Requirement, ...]:
    return tuple(
        requirement(subject, require[subject].text, require[subject].source) for subject in sorted(require)
    )


def _bootstrap(addresses: tuple[str, ...]) -> str:
    return ",".join(part.strip() for text in addresses for part in text.split(","))


def _start(value: Any) -> Start:
    if not isinstance(value, ParsedRecord):
        return Latest() if value == "latest" else Earliest()
    start: Start = built(value)
    return start


def _schema(value: Any) -> str | None:
    """Returns the text of a schema. A file must lie beside the topology: no other file is read.

    A descriptor set becomes text: the name of its message, and what the message needs of it, in base64.
    """
    if not isinstance(value, ParsedRecord):
        return value if value is None else str(value)
    place = value.place("file")
    folder = Path(place.file).parent
    file = folder / value["file"]
    if not file.resolve().is_relative_to(folder.resolve()):
        what = f"the schema {value['file']} lies outside of the topology's folder"
        raise Failure(error(what, f"copy it to {folder}", source=place))
    if (message := value.get("message")) is None:
        return read_text(file).strip()
    from runtime.sql.formats.protobuf_descriptors import needed_descriptors  # few topologies need it

    descriptors = needed_descriptors(read_bytes(file), message)
    return f"{message} {b64encode(descriptors).decode()}"


def _samples(named: Mapping[str, Any]) -> tuple[DrillSample, ...]:
    """Returns the samples by topic. A file must lie beside the topology; only a drill reads it."""
    samples = []
    for topics in sorted(named):
        reference = named[topics]
        if not isinstance(reference, ScalarNode):
            continue  # it was wrong, which is reported already
        folder = Path(reference.source.file).parent
        if not (folder / reference.text).resolve().is_relative_to(folder.resolve()):
            what = f"the sample {reference.text} lies outside of the topology's folder"
            raise Failure(error(what, f"copy it to {folder}", source=reference.source))
        samples.append(DrillSample(topics, reference.text, reference.source))
    return tuple(samples)


def _rules(written: Iterable[ParsedRecord]) -> tuple[Rule, ...]:
    return tuple(
        dataclasses.replace(built(rule), source=rule.place("deny" if "deny" in rule.places else "warn"))
        for rule in written
    )


CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "bootstrap": _bootstrap,
    "rename": rename_of,
    "requirements": _requirements,
    "rules": _rules,
    "samples": _samples,
    "schema": _schema,
    "size": spark_bytes,
    "start": _start,
}


def _arguments(fields: ParsedRecord) -> dict[str, Any]:
    """Returns the values of a record by the fields of its dataclass."""
    arguments: dict[str, Any] = {}
    for key in fields.record.keys:
        if key.name not in fields.values:
            if key.field and isinstance(key.shape, OffOrShape) and not key.unset:
                arguments[key.field] = key.shape.shape.declared_by()  # type: ignore[misc]  # without the key it is on, with its defaults
            continue
        value = fields.values[key.name]
        if key.field:
            arguments[key.field] = _converted(key, value)
        else:
            arguments |= _section(key, value)
    declared = fields.record.declared_by
    if declared is not None and "source" in defaults_of_fields(declared):
        arguments["source"] = fields.place("name")
    return arguments


def _section(key: Key, value: ParsedRecord | None) -> dict[str, Any]:
    """Returns the fields of a section. One that is off has None as its first field."""
    if value is not None:
        return _arguments(value)
    assert isinstance(key.shape, OffOrShape)
    return {key.shape.shape.keys[0].field: None}


def _converted(key: Key, value: Any) -> Any:
    if key.converter:
        return CONVERTERS[key.converter](value)
    return tuple(map(_item, value)) if isinstance(value, tuple) else _item(value)


def _item(item: Any) -> Any:
    match item:
        case ScalarNode():
            return item.text
        case ParsedRecord():
            return built(item)
        case _:
            return item


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
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Cluster | FileEndpoint):
        client = {
            key: SENSITIVE if isinstance(setting, str) and looks_secret(key) else setting
            for key, setting in value.client.items()
        }
        kind = {} if isinstance(value, Cluster) else {"is": type(value).__name__}
        return {**kind, **_plain_fields(value), "client": client}
    return {"is": type(value).__name__, **_plain_fields(value)}


def _plain_fields(value: Any) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in defaults_of_fields(value.__class__) if name != "digest"}
    return {
        name: _plain(part)
        for name, part in fields.items()
        if not (name == "source" and (part is None or isinstance(part, SourceLocation)))
    }
