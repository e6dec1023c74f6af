"""Declares each field of a change once: its name in the topology, its type, and where a spec holds it.

The type (planner.diff.values) decides how two values are compared (planner.diff.compare) and how a value is
shown. A field that is not declared here is compared and shown as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, get_type_hints

from msgspec import Struct

from planner.diff import values
from planner.model.change import Path
from planner.model.observed import BEFORE, CONFIG
from planner.model.topology import BYTE_RATES, QUOTA_KEYS, Flow, Job
from planner.model.topology.quotas import NO_LIMIT
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.shapes import (
    Key,
    ListShape,
    MapShape,
    OffOrShape,
    Quantity,
    QuantityShape,
    RecordShape,
    SettingsShape,
    record_of,
)


class Field(Struct, frozen=True):
    """Declares one field. `read` takes its value from the spec; `unset` is shown in place of None."""

    name: str
    type: values.FieldType
    read: Callable[[Any], object]
    unset: str | None


NOT_SET = "not set"
OFF = "off"
# Fields of flows and jobs that are not shown where they have this value: the key is not used.
ADDED: Mapping[str, str | None] = {
    "protect": OFF,
    "replication": None,
    "schemas.sync": None,
    "schemas.subjects": None,
    "schemas.ids": None,
    "transform": None,
    "files": None,
    "lines": None,
    "protect.principal": None,
}


# How a flag that the planner derives for the job is shown: its name, and a word for False and for True.
DERIVED: Mapping[str, tuple[str, tuple[str, str]]] = {
    "native_only": ("copied records", ("all", "those first written at the source")),
    "shared": (
        "records of other writers",
        ("reported as foreign_writes", "expected at the destination"),
    ),
}


def _field(
    name: str, kind: values.FieldType = values.PLAIN, attribute: str | None = None, unset: str = NOT_SET
) -> Field:
    return Field(name, kind, attrgetter(attribute or name), unset)


# The attributes of a FlowSpec that have another name in the topology's Flow.
_IN_THE_TOPOLOGY = {"source": "source_cluster", "destination": "destination_cluster"}
# What a plan shows first of a flow; the others follow as they are declared.
_FIRST = (
    *("source", "destination", "topics", "rename", "provenance", "native_only", "shared"),
    *("start", "restart_from", "state", "reverse_of", "promoted"),
)
_TYPE_OF_QUANTITY = {Quantity.DURATION: values.DURATION, Quantity.RATE: values.RATE}
_TYPE_OF_CONVERTER = {"rename": values.RENAME, "start": values.START}


def plain_name(name: str) -> str:
    """Returns the name of an attribute of a spec without its unit."""
    return name.removesuffix("_ms").removesuffix("_bytes")


def unusual(spec: Struct) -> dict[str, Any]:
    """Returns the attributes of a spec that are not the defaults."""
    usual = type(spec)()
    names = (name for name in spec.__struct_fields__ if getattr(spec, name) != getattr(usual, name))
    return {name: getattr(spec, name) for name in names}


def _endpoint(spec: FilesSpec | LinesSpec | None) -> dict[str, object] | None:
    """Returns what is shown of an endpoint: what it has, as far as it is about files of this kind."""
    match spec:
        case FilesSpec():
            hidden = {"endpoint", "recursive", *(() if spec.format == "raw" else ("snapshots_ms",))}
        case LinesSpec():
            hidden = {"endpoint", "layout", "size_bytes", "snapshots_ms", "compact"}
        case None:
            return None
    values = {name: getattr(spec, name) for name in spec.__struct_fields__ if name not in hidden}
    return {plain_name(name): value for name, value in values.items() if value not in (None, False, {})}


# Fields that are not read from the attribute of their name.
_READ: Mapping[str, Field] = {
    "source": _field("from", attribute="source_name"),
    "destination": _field("to", attribute="destination_name"),
    "files": Field("files", values.FILES, lambda flow: _endpoint(flow.files), NOT_SET),
    "lines": Field("lines", values.LINES, lambda flow: _endpoint(flow.lines), NOT_SET),
}


def _flow_fields() -> Iterator[Field]:
    """Yields a field for each attribute of a FlowSpec, named and typed as the topology declares its key.

    What the planner derives for the job, such as `native_only`, is no key: it has its own name, and DERIVED
    says how it is shown.
    """
    keys = {attribute: (name, key, off) for attribute, name, key, off in _keys(record_of(Flow))}
    order = {name: at for at, name in enumerate(_FIRST)}
    attributes = _attributes(FlowSpec)
    for attribute in sorted(attributes, key=lambda name: order.get(name.split(".")[0], len(order))):
        declared = _IN_THE_TOPOLOGY.get(attribute, attribute)
        if declared == "name":
            continue  # two flows of another name are not compared
        if attribute in _READ:
            yield _READ[attribute]
            continue
        if declared in keys:
            name, key, off = keys[declared]
            yield _field(name, _type(key), attribute, ADDED.get(name) or (OFF if off else NOT_SET))
        else:
            yield _field(attribute)


def _type(key: Key) -> values.FieldType:
    if isinstance(key.shape, OffOrShape):
        return values.ORIGIN_COMMITS
    if key.unset:
        return values.TRANSFORM
    if isinstance(key.shape, ListShape):
        return values.PATTERNS
    if isinstance(key.shape, SettingsShape | MapShape):
        return values.SETTINGS
    if isinstance(key.shape, QuantityShape):
        return _TYPE_OF_QUANTITY.get(key.shape.kind, values.PLAIN)
    return _TYPE_OF_CONVERTER.get(key.converter, values.PLAIN)


def _keys(record: RecordShape, name: str = "", attribute: str = "") -> Iterator[tuple[str, str, Key, bool]]:
    """Yields each key of a record with its attribute, its dotted name, and whether it may be `off`."""
    for key in record.keys:
        inner = attribute + key.field
        match key.shape:
            case RecordShape() as section if not key.unset:
                yield from _keys(section, f"{name}{key.name}.", f"{inner}." if key.field else attribute)
            case OffOrShape(shape=section) if not key.field:
                (only,) = section.keys  # `follow: {every: 5s}` is the field `follow`
                yield attribute + only.field, name + key.name, only, True
            case shape:
                yield inner, name + key.name, key, isinstance(shape, OffOrShape)


def _attributes(spec: type[Struct]) -> Iterator[str]:
    """Yields the attributes of a spec in their order, those of its parts with a dot."""
    for name, kind in get_type_hints(spec).items():
        if name not in spec.__struct_fields__:
            continue
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield from (f"{name}.{inner}" for inner in _attributes(kind))
        else:
            yield name


FLOW = tuple(_flow_fields())


def _launch_fields(part: str = "") -> tuple[Field, ...]:
    """Returns a field for each key of a job's launch, of a LaunchSpec or of this part of a spec."""
    keys = (key for key in record_of(Job).keys if key.field in LaunchSpec.__struct_fields__)
    return tuple(_field(key.name, _type(key), part + key.field) for key in keys)


LAUNCHER = _launch_fields()
_OF_JOB = {field.name: field for field in _launch_fields("launch.")}
# What can't change while a job runs, in the order in which a plan shows it.
LAUNCH = (
    *(_OF_JOB.pop(name) for name in ("launcher", "master", "memory")),
    Field("slots", values.PLAIN, lambda spec: spec.slots or None, "auto"),
    *_OF_JOB.values(),
    Field("copy", values.COPY, lambda spec: unusual(spec.copy), None),
    _field("internal.replication"),
    _field("internal.retention", values.DURATION, "internal.retention_ms"),
)
METRICS = (
    Field(
        "metrics",
        values.ENDPOINT,
        lambda spec: None if spec.metrics is None else {"host": spec.metrics.host, "port": spec.metrics.port},
        OFF,
    ),
    Field("metrics.partitions", values.PLAIN, lambda spec: spec.metrics_limit, NOT_SET),
)
FLOWS = (
    Field("flows", values.FLOW_STATES, lambda spec: {flow.name: flow.state for flow in spec.flows}, None),
)


def _protection(spec: JobSpec) -> str | None:
    protection = spec.protection
    if protection is None:
        return None
    return (
        f"{protection.principal}, topics without rules are open"
        if protection.open_without_rules
        else protection.principal
    )


DECLARED = (
    _field("declared", values.SETTING_NAMES),
    Field("protect.principal", values.PLAIN, _protection, NOT_SET),
)

# Fields of a topic, the flow's of the same name too, and those that sum up a new flow.
_SHOWN: Mapping[str, values.FieldType] = {
    "replication": values.REPLICATION,
    "groups": values.GROUPS,
    "topics": values.TOPIC_NAMES,
    **dict.fromkeys(BYTE_RATES, values.RATE),
}
_DECLARED: Mapping[str, Field] = {
    field.name: field for field in (*FLOW, *LAUNCH, *METRICS, *FLOWS, *DECLARED) if field.name not in _SHOWN
}
CLUSTERS = "clusters."
REGISTRIES = "registries."
TIMESTAMPS = "internal.timestamps."


def type_of(path: Path) -> values.FieldType:
    """Returns the type of the field at this path of a change."""
    match path:
        case ("config", _):
            return values.SETTING
        case ("recorded", key) if key.startswith((CONFIG, BEFORE)):
            return values.SETTING
        case ("recorded", key) if key in BYTE_RATES:
            return values.RATE
        case (name,) if name in _DECLARED:
            return _DECLARED[name].type
        case (name,) if name.startswith((CLUSTERS, REGISTRIES)):
            return values.REFERENCE
        case (name,):
            return _SHOWN.get(name, values.PLAIN)
        case _:
            return values.PLAIN


def displayed(path: Path, value: object) -> object:
    """Returns the value of a field as it is shown: text, a list of texts, a number or a flag."""
    return unset_word(path) if value is None else type_of(path).shown(value)


def displayed_values(state: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields of a flow or a job as they are shown; `transform` and `files` where it has them."""
    hidden = (values.TRANSFORM, values.FILES, values.LINES)
    return {
        name: displayed((name,), value)
        for name, value in state.items()
        if value is not None or type_of((name,)) not in hidden
    }


def unset_word(path: Path) -> str | None:
    """Returns the word for a field of a flow, a job or a quota that is not set; None for other fields."""
    match path:
        case (name,) if name in _DECLARED:
            return _DECLARED[name].unset
        case (name,) if name.startswith((CLUSTERS, REGISTRIES, TIMESTAMPS)):
            return NOT_SET
        case (name,) if name in QUOTA_KEYS:
            return NO_LIMIT
        case _:
            return None
