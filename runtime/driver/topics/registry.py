"""Encodes what a job enters into the registry of the destination: mirror topics and ACL rules that it made.

The entries have the planner's own format, so the planner owns what the job makes.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal, NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.acls import AclRule, flow_origin
from runtime.contract.spec.naming import REGISTRY, is_from_kafka
from runtime.contract.spec.transform import quarantine_origin
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode

_VERSION = 1
_ACL = "acl."


async def has_registry(cluster: KafkaCluster) -> bool:
    """Returns whether the planner has created the registry at the cluster. Raises WireError."""
    return (await cluster.topics([REGISTRY]))[REGISTRY].error is ErrorCode.NONE


def mirror_key(cluster: str, topic: str) -> bytes:
    """Returns the registry's key of a mirror topic."""
    return f"topic.{cluster}.{topic}".encode()


def mirror_entry(
    *,
    topology: str,
    flow: str,
    source: tuple[str, str],
    topic_id: bytes,
    partitions: int,
    replication: int | None = None,
    config: Mapping[str, str],
    at_ms: int,
) -> bytes:
    """Encodes the entry of a mirror topic. `source` is the cluster's name and the topic's."""
    spec = _topic_spec(topic_id, partitions, replication, config)
    spec["source.cluster"], spec["source.topic"] = source
    return _entry(topology, spec, flow_origin(flow), at_ms)


def quarantine_entry(
    *,
    topology: str,
    flow: str,
    topic_id: bytes,
    partitions: int,
    replication: int | None = None,
    config: Mapping[str, str],
    at_ms: int,
) -> bytes:
    """Encodes the entry of a quarantine topic."""
    spec = _topic_spec(topic_id, partitions, replication, config)
    return _entry(topology, spec, quarantine_origin(flow), at_ms)


def _topic_spec(
    topic_id: bytes, partitions: int, replication: int | None, config: Mapping[str, str]
) -> dict[str, str]:
    spec = {f"config.{key}": value for key, value in sorted(config.items())}
    spec["partitions"] = str(partitions)
    if replication is not None:
        spec["replication"] = str(replication)
    if is_from_kafka(topic_id):
        spec["id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return spec


def acl_key(rule: AclRule) -> bytes:
    """Returns the registry's key of an ACL rule."""
    return f"{_ACL}{rule.cluster}.{rule.name}".encode()


def acl_entry(rule: AclRule, topology: str, origin: str, at_ms: int, *, announced: bool) -> bytes:
    """Encodes the entry of a rule that a job makes: `announced` before it is made, so that it has an owner
    at any moment.
    """
    spec = {key: value for key, value in asdict(rule).items() if key != "cluster"}
    if announced:
        spec["announced"] = "true"
    return _entry(topology, spec, origin, at_ms)


def _entry(topology: str, spec: Mapping[str, str], origin: str, at_ms: int) -> bytes:
    return msgspec.json.encode(
        {
            "v": _VERSION,
            "topology": topology,
            "spec": spec,
            "protect": False,
            "on_remove": "keep",
            "origin": origin,
            "created": True,
            "plan": "",
            "at": at_ms,
        }
    )


class _AclSpec(msgspec.Struct, frozen=True):
    resource_type: str
    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]


class _AclEntry(msgspec.Struct, frozen=True):
    v: Literal[1]
    topology: str
    spec: _AclSpec
    origin: str
    created: bool


class OwnedAcl(NamedTuple):
    """A rule of the registry, with its topology and its origin (`flow.NAME` for one that a flow made)."""

    rule: AclRule
    topology: str
    origin: str


_acl = msgspec.json.Decoder(_AclEntry)


def owned_acl(cluster: str, key: bytes, value: bytes) -> OwnedAcl | None:
    """Returns the rule of an entry that its topology created; None for other entries.

    An entry that can't be read, or whose key is not that of its rule, is none: any writer of the topic can
    write one.
    """
    if not key.startswith(_ACL.encode()):
        return None
    try:
        entry = record_values.decode(_acl, value)
    except UnreadableValue:
        return None
    rule = AclRule(cluster, **msgspec.structs.asdict(entry.spec))
    if not entry.created or acl_key(rule) != key:
        return None
    return OwnedAcl(rule, entry.topology, entry.origin)
