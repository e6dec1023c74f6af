"""Declares each field of a change once: its name in the topology, its type, and where a spec holds it.

The type decides how two values are compared (planner.diff.compare) and how a value is shown
(planner.diff.display). A field that is not declared here is compared and shown as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Any

import msgspec

from planner.model.change import Path
from planner.model.owned import BEFORE, CONFIG
from runtime.contract.spec.jobspec import CopySettings, JobSpec


class FieldType(Enum):
    """The type of a field's values. None is allowed in every type: the field is not set."""

    PLAIN = auto()  # a word, a number or a flag
    DURATION = auto()  # milliseconds
    RATE = auto()  # bytes per second
    PATTERNS = auto()  # a list without an order
    SETTING = auto()  # the text of a Kafka topic setting, which the broker parses
    REPLICATION = auto()  # one number, or the number of each partition where they differ
    SETTINGS = auto()  # a mapping of Spark's or the launcher's settings
    REFERENCE = auto()  # a client setting: text, {"env": VAR} or {"file": path}
    RENAME = auto()  # template text, {"match": regex, "to": text} or {"table": names}
    START = auto()  # a word, {"timestamp": ms} or {"offsets": by topic and partition}
    ORIGIN_COMMITS = auto()  # {"group": name, "every": ms}
    GROUPS = auto()  # what a new flow does with consumer groups
    TOPIC_NAMES = auto()  # a mapping of source topics to destination topics
    ENDPOINT = auto()  # {"host": name, "port": number}
    FLOW_STATES = auto()  # a mapping of flows to their states
    SETTING_NAMES = auto()  # a mapping of topics to names of settings
    COPY = auto()  # the copy settings that are not the defaults


@dataclass(frozen=True, slots=True)
class Field:
    """Declares one field. `read` takes its value from the spec; `unset` is shown in place of None."""

    name: str
    type: FieldType
    read: Callable[[Any], object]
    unset: str | None


NOT_SET = "not set"
OFF = "off"


def _field(
    name: str, kind: FieldType = FieldType.PLAIN, attribute: str | None = None, unset: str = NOT_SET
) -> Field:
    return Field(name, kind, attrgetter(attribute or name), unset)


FLOW = (
    _field("from", attribute="source"),
    _field("to", attribute="destination"),
    _field("topics.include", FieldType.PATTERNS),
    _field("topics.exclude", FieldType.PATTERNS),
    _field("topics.default_exclude"),
    _field("rename", FieldType.RENAME),
    _field("provenance"),
    _field("native_only"),
    _field("shared"),
    _field("start", FieldType.START),
    _field("restart_from", FieldType.START),
    _field("state"),
    _field("reverse_of"),
    _field("promoted", FieldType.PATTERNS),
    _field("configs.sync"),
    _field("configs.exclude", FieldType.PATTERNS),
    _field("groups.include", FieldType.PATTERNS, "groups.selection.include"),
    _field("groups.exclude", FieldType.PATTERNS, "groups.selection.exclude"),
    _field("groups.default_exclude", attribute="groups.selection.default_exclude"),
    _field("groups.sync"),
    _field("groups.every", FieldType.DURATION, "groups.every_ms"),
    _field("groups.mode"),
    _field("acls.sync", attribute="acls_sync"),
    _field("rpo", FieldType.DURATION, "rpo_ms"),
    _field("rate_limit", FieldType.RATE),
    _field("follow", FieldType.DURATION, "follow_every_ms", OFF),
    _field("heartbeats", FieldType.DURATION, "heartbeats_every_ms", OFF),
    _field("checkpoints", FieldType.DURATION, "checkpoints_every_ms", OFF),
    _field("origin_commits", FieldType.ORIGIN_COMMITS, unset=OFF),
    _field("on_source_delete"),
    _field("on_data_loss"),
)


def _endpoint(spec: JobSpec) -> dict[str, object] | None:
    return None if spec.metrics_port is None else {"host": spec.metrics_host, "port": spec.metrics_port}


def _copy(spec: JobSpec) -> dict[str, object]:
    usual = msgspec.structs.asdict(CopySettings())
    return {key: value for key, value in msgspec.structs.asdict(spec.copy).items() if value != usual[key]}


# A job's launch: what can't change while the job runs. LAUNCHER are those of its LaunchSpec.
LAUNCHER = (
    _field("launcher"),
    _field("master"),
    _field("memory"),
    _field("conf", FieldType.SETTINGS),
    _field("options", FieldType.SETTINGS),
)
LAUNCH = (
    _field("launcher", attribute="launch.launcher"),
    _field("master", attribute="launch.master"),
    _field("memory", attribute="launch.memory"),
    Field("slots", FieldType.PLAIN, lambda spec: spec.slots or None, "auto"),
    _field("conf", FieldType.SETTINGS, "launch.conf"),
    _field("options", FieldType.SETTINGS, "launch.options"),
    Field("copy", FieldType.COPY, _copy, None),
    _field("internal.replication"),
    Field("internal.retention", FieldType.DURATION, lambda spec: spec.internal.retention_ms or None, NOT_SET),
)
METRICS = (
    Field("metrics", FieldType.ENDPOINT, _endpoint, OFF),
    _field("metrics.partitions", attribute="metrics_partitions"),
)
FLOWS = (
    Field("flows", FieldType.FLOW_STATES, lambda spec: {one.name: one.state for one in spec.flows}, None),
)
DECLARED = (_field("declared", FieldType.SETTING_NAMES),)

_DECLARED: Mapping[str, Field] = {one.name: one for one in (*FLOW, *LAUNCH, *METRICS, *FLOWS, *DECLARED)}
# Fields that only a change has: of a topic, or those that sum up a new flow.
_SHOWN: Mapping[str, FieldType] = {
    "replication": FieldType.REPLICATION,
    "groups": FieldType.GROUPS,
    "topics": FieldType.TOPIC_NAMES,
}
CLUSTERS = "clusters."
TIMESTAMPS = "internal.timestamps."


def type_of(path: Path) -> FieldType:
    """Returns the type of the field at this path of a change."""
    match path:
        case ("config", _):
            return FieldType.SETTING
        case ("recorded", key) if key.startswith((CONFIG, BEFORE)):
            return FieldType.SETTING
        case (name,) if name in _DECLARED:
            return _DECLARED[name].type
        case (name,) if name.startswith(CLUSTERS):
            return FieldType.REFERENCE
        case (name,):
            return _SHOWN.get(name, FieldType.PLAIN)
        case _:
            return FieldType.PLAIN


def unset_word(path: Path) -> str | None:
    """Returns the word for a field of a flow or a job that is not set; None for other fields."""
    match path:
        case (name,) if name in _DECLARED:
            return _DECLARED[name].unset
        case (name,) if name.startswith((CLUSTERS, TIMESTAMPS)):
            return NOT_SET
        case _:
            return None
