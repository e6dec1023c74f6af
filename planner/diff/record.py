"""Writes and reads what the registry remembers of an object (`RegistryEntry.spec`).

A topic: `partitions`, `replication`, `config.<key>` and `id` (the topic's id); a mirror topic also
`source.cluster` and `source.topic`; a declared one that a flow fills also `mirrored`; `before.<key>` while a
failback lifts a limit. An ACL: the fields of its rule, `announced` until it is made, and `replaced` where
`protect: acl` has taken it away.
"""

import hashlib
from dataclasses import replace
from typing import assert_never

import msgspec

from planner.model.address import flow_address, job_address
from planner.model.desired import Declared, DesiredAcl, DesiredTopic, MirroredBy
from planner.model.owned import (
    BEFORE,
    CONFIG,
    DECLARED,
    ID,
    MIRRORED,
    REPLACED,
    RegistryEntry,
    acl_spec,
)
from runtime.contract.spec.jobspec import FlowSpec, JobSpec

PARTITIONS = "partitions"
REPLICATION = "replication"
SOURCE_CLUSTER = "source.cluster"
SOURCE_TOPIC = "source.topic"


def topic_spec(topic: DesiredTopic, topic_id: str | None) -> dict[str, str]:
    spec = {CONFIG + key: value for key, value in sorted(topic.config.items())}
    if topic.lifted is not None:
        spec |= {BEFORE + key: value for key, value in sorted(topic.lifted.before.items())}
    if topic.partitions is not None:
        spec[PARTITIONS] = str(topic.partitions)
    if topic.replication is not None:
        spec[REPLICATION] = str(topic.replication)
    if topic_id:
        spec[ID] = topic_id
    match topic.origin:
        case MirroredBy(source_cluster=cluster, source_topic=name):
            spec[SOURCE_CLUSTER] = cluster
            spec[SOURCE_TOPIC] = name
        case Declared() if topic.mirrored:
            spec[MIRRORED] = ",".join(sorted(topic.mirrored))
        case Declared():
            pass
        case _:
            assert_never(topic.origin)
    return spec


def topic_entry(topic: DesiredTopic, topology: str, topic_id: str | None, *, created: bool) -> RegistryEntry:
    return RegistryEntry(
        address=topic.address,
        topology=topology,
        spec=topic_spec(topic, topic_id),
        protect=topic.protect,
        on_remove=topic.on_remove,
        origin=origin_text(topic.origin),
        created=created,
    )


def acl_entry(acl: DesiredAcl, topology: str, *, created: bool) -> RegistryEntry:
    return RegistryEntry(
        address=acl.address,
        topology=topology,
        spec=acl_spec(acl.rule) | ({REPLACED: "true"} if acl.replaced else {}),
        origin=origin_text(acl.origin),
        created=created,
    )


ANNOUNCED = "announced"


def announced(entry: RegistryEntry) -> RegistryEntry:
    """Marks the entry of an object that is about to be created: an interrupted apply leaves it owned."""
    return replace(entry, spec={**entry.spec, ANNOUNCED: "true"})


def is_announced(entry: RegistryEntry | None) -> bool:
    """Returns whether the entry was written before its object was created, which may never have happened."""
    return entry is not None and ANNOUNCED in entry.spec


def origin_text(origin: Declared | MirroredBy | str) -> str:
    match origin:
        case Declared():
            return DECLARED
        case MirroredBy(flow=flow):
            return f"flow.{flow}"
        case _:
            return origin


def flow_of(entry: RegistryEntry) -> str | None:
    """Returns the name of the flow that mirrors this object; None for a declared object."""
    return entry.origin.removeprefix("flow.") if entry.origin.startswith("flow.") else None


JOB = "job"
STATE = "state"
SPEC = "spec"
LAUNCH = "launch"


def flow_entry(flow: FlowSpec, job: str, topology: str) -> RegistryEntry:
    """Returns the entry of a flow as it is applied now, for the registry at its destination."""
    spec = {JOB: job, STATE: flow.state, SPEC: _json(flow)}
    return RegistryEntry(flow_address(flow.name), topology, spec, created=True)


def job_entry(spec: JobSpec, topology: str) -> RegistryEntry:
    """Returns the entry of a job: that it is to run, and how it was started."""
    return RegistryEntry(
        job_address(spec.job), topology, {STATE: "running", LAUNCH: _json(spec.launch)}, created=True
    )


def recorded_flow(entry: RegistryEntry | None) -> FlowSpec | None:
    """Returns the recorded flow; None where there is none, or a newer release wrote it."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.spec.get(SPEC, ""), type=FlowSpec)
    except msgspec.DecodeError:
        return None


def digest(spec: JobSpec | FlowSpec) -> str:
    """Returns the digest of a spec for a fingerprint. Equal specs have equal digests."""
    return hashlib.sha256(_json(spec).encode()).hexdigest()[:16]


def _json(value: msgspec.Struct) -> str:
    """Returns the JSON of every field, with defaults, so that equal values have the same text."""
    return msgspec.json.encode(_whole(value), order="deterministic").decode()


def _whole(value: object) -> object:
    match value:
        case msgspec.Struct():
            fields = {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return fields if tag is None else {"type": tag, **fields}
        case dict():
            return {key: _whole(one) for key, one in value.items()}
        case list():
            return [_whole(one) for one in value]
        case _:
            return value
