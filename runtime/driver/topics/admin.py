"""This module administers topics and their ACL rules with confluent-kafka. Its blocking calls run in threads.

Settings of topics, which flows read every few seconds, come over the driver's own connections.

Topics are created, grown and changed; ACL rules on them are read, made and removed. The mirror topics and
rules that the job makes are entered into the registry of the destination. The entries have the planner's own
format, so the planner owns what the job makes.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from msgspec import Struct

from runtime.contract.client.secrets import redacted
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import REGISTRY, is_from_kafka
from runtime.contract.spec.topic_settings import ConfigUpdate, TopicSettings
from runtime.driver.slots.channel import post
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.confluent import acl_parts
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.configs import TOPIC, DescribeConfigsRequest
from runtime.kafka.protocol.configs import ConfigEntry as ReadEntry
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import Gathered

_VERSION = 1
_ACL = "acl."


async def has_registry(cluster: KafkaCluster) -> bool:
    """Returns whether the planner has created the registry at the cluster. Raises WireError."""
    return (await cluster.topics([REGISTRY]))[REGISTRY].error is ErrorCode.NONE


def topic_key(cluster: str, topic: str) -> bytes:
    """Returns the registry's key of a topic."""
    return f"topic.{cluster}.{topic}".encode()


def topic_entry(
    *,
    topology: str,
    origin: str,
    source: tuple[str, str] | None = None,
    topic_id: bytes,
    partitions: int,
    replication: int | None = None,
    config: Mapping[str, str],
    at_ms: int,
) -> bytes:
    """Encodes the entry of a topic. `source`: the cluster and the topic from which a mirror is copied."""
    spec = {f"config.{key}": value for key, value in sorted(config.items())}
    spec["partitions"] = str(partitions)
    if replication is not None:
        spec["replication"] = str(replication)
    if is_from_kafka(topic_id):
        spec["id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    if source is not None:
        spec["source.cluster"], spec["source.topic"] = source
    return _registry_entry(topology, spec, origin, at_ms)


def acl_key(rule: AclRule) -> bytes:
    """Returns the registry's key of an ACL rule."""
    return f"{_ACL}{rule.cluster}.{rule.name}".encode()


def acl_entry(rule: AclRule, topology: str, origin: str, at_ms: int, *, announced: bool) -> bytes:
    """Encodes the entry of a rule that a job makes.

    It is `announced` before the rule is made, so that the rule has an owner at any moment.
    """
    spec = {key: value for key, value in asdict(rule).items() if key != "cluster"}
    if announced:
        spec["announced"] = "true"
    return _registry_entry(topology, spec, origin, at_ms)


def _registry_entry(topology: str, spec: Mapping[str, str], origin: str, at_ms: int) -> bytes:
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


T = TypeVar("T")

_SettingValue = tuple[str | None, int]  # the text of a value, and its source

_TIMEOUT_S = 20.0
_PER_REQUEST = 200  # topics in one request
BROKERS_DEFAULT = -1  # replicas of a topic that is created with the cluster's own replication


class TopicToCreate(Struct, frozen=True):
    """This value requests a topic."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int = BROKERS_DEFAULT


class TopicAdmin:
    """A TopicAdmin changes topics of one cluster.

    Its methods return refusals as texts by topic and raise nothing for them. Flows that create topics, or
    read settings, at the same time share a request.
    """

    def __init__(self, client: AdminClient, cluster: KafkaCluster) -> None:
        self._client = client
        self._cluster = cluster
        self._creations = Gathered(self._create_together, _PER_REQUEST)
        self._readings: Gathered[str, None, dict[str, TopicSettings]] = Gathered(
            self._read_together, _PER_REQUEST, resend=True
        )

    async def create(self, topics: Sequence[TopicToCreate]) -> dict[str, str]:
        """Creates topics. An existing topic counts as created. Raises WireError where it was interrupted."""
        failed = await self._creations.ask({one.name: one for one in topics})
        return {one.name: failed[one.name] for one in topics if one.name in failed}

    async def _create_together(self, topics: Mapping[str, TopicToCreate]) -> dict[str, str]:
        wanted = [
            NewTopic(one.name, one.partitions, one.replication, config=dict(one.config))
            for one in topics.values()
        ]
        failed: dict[str, str] = {}
        for some in _groups(wanted):
            failed |= await asyncio.to_thread(self._create, some)
        return failed

    async def grow(self, partitions: Mapping[str, int]) -> dict[str, str]:
        """Raises the partition counts of topics."""
        wanted = [NewPartitions(name, count) for name, count in partitions.items()]
        failed: dict[str, str] = {}
        for some in _groups(wanted):
            failed |= await asyncio.to_thread(self._grow, some)
        return failed

    async def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Returns the settings of those topics whose settings may be read. Raises WireError."""
        wanted = sorted(topics)
        found = await self._readings.ask(dict.fromkeys(wanted)) if wanted else {}
        return {name: found[name] for name in wanted if name in found}

    async def _read_together(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        found: dict[str, TopicSettings] = {}
        for some in _groups(sorted(topics)):
            for topic in await self._cluster.ask_any(DescribeConfigsRequest(TOPIC, some)):
                if topic.error is ErrorCode.NONE:
                    found[topic.name] = _settings(topic.entries)
        return found

    async def edit(self, edits: Mapping[str, ConfigUpdate]) -> dict[str, str]:
        """Changes the settings of topics."""
        failed: dict[str, str] = {}
        for some in _groups(sorted(edits)):
            failed |= await asyncio.to_thread(self._edit, {name: edits[name] for name in some})
        return failed

    def _create(self, topics: list[NewTopic]) -> dict[str, str]:
        futures = self._client.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
        return _failures(futures, but=KafkaError.TOPIC_ALREADY_EXISTS)

    def _grow(self, partitions: list[NewPartitions]) -> dict[str, str]:
        return _failures(self._client.create_partitions(partitions, request_timeout=_TIMEOUT_S))

    def _edit(self, edits: Mapping[str, ConfigUpdate]) -> dict[str, str]:
        resources = []
        for name, edit in edits.items():
            changes = [_config_entry(key, value, AlterConfigOpType.SET) for key, value in edit.set.items()]
            changes += [_config_entry(key, None, AlterConfigOpType.DELETE) for key in sorted(edit.unset)]
            resources.append(ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes))
        futures = self._client.incremental_alter_configs(resources, request_timeout=_TIMEOUT_S)
        return _failures({resource.name: future for resource, future in futures.items()})


def _config_entry(key: str, value: str | None, how: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=how)


def _settings(entries: Iterable[ReadEntry]) -> TopicSettings:
    explicit: dict[str, str] = {}
    inherited: dict[str, str] = {}
    for entry in entries:
        if entry.value is not None:
            (explicit if entry.explicit else inherited)[entry.key] = entry.value
    return TopicSettings(explicit, inherited)


def _failures(futures: Mapping[T, Any], but: int | None = None) -> dict[T, str]:
    """Returns the refusals by topic or rule, except those with the error code `but`."""
    failed: dict[T, str] = {}
    for one, future in futures.items():
        try:
            future.result(_TIMEOUT_S + 5)
        except KafkaException as failure:
            error = failure.args[0]
            if but is None or error.code() != but:
                failed[one] = redacted(error.str())
        except TimeoutError:
            failed[one] = "no answer in time"
    return failed


def _groups(items: Sequence[T]) -> list[list[T]]:
    return [list(items[start : start + _PER_REQUEST]) for start in range(0, len(items), _PER_REQUEST)]


_EVERY_TOPIC_RULE: tuple[Any, ...] = (
    ResourceType.TOPIC,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class AclAdmin:
    """An AclAdmin reads and changes the rules on topics of one cluster."""

    def __init__(self, name: str, client: AdminClient) -> None:
        self._name = name
        self._client = client

    async def rules(self) -> set[AclRule] | None:
        """Returns all rules on topics, or None where the cluster has no authorizer. Raises WireError."""
        return await asyncio.to_thread(self._describe)

    async def create(self, rules: Iterable[AclRule]) -> dict[AclRule, str]:
        """Makes rules. Returns refusals as texts by rule."""
        wanted = {AclBinding(*acl_parts(rule)): rule for rule in rules}
        return await asyncio.to_thread(self._create, wanted)

    async def delete(self, rules: Iterable[AclRule]) -> dict[AclRule, str]:
        """Removes rules. Returns refusals as texts by rule."""
        wanted = {AclBindingFilter(*acl_parts(rule)): rule for rule in rules}
        return await asyncio.to_thread(self._delete, wanted)

    def _describe(self) -> set[AclRule] | None:
        answer = self._client.describe_acls(AclBindingFilter(*_EVERY_TOPIC_RULE), request_timeout=_TIMEOUT_S)
        try:
            found = answer.result(_TIMEOUT_S + 5)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() == KafkaError.SECURITY_DISABLED:
                return None
            raise WireError(f"the ACLs of {self._name} can't be read: {redacted(error.str())}") from failure
        except TimeoutError as late:
            raise WireError(f"the ACLs of {self._name} can't be read: no answer in time") from late
        return {_rule(self._name, one) for one in found}

    def _create(self, wanted: Mapping[AclBinding, AclRule]) -> dict[AclRule, str]:
        futures = self._client.create_acls(list(wanted), request_timeout=_TIMEOUT_S)
        return {wanted[one]: why for one, why in _failures(futures).items()}

    def _delete(self, wanted: Mapping[AclBindingFilter, AclRule]) -> dict[AclRule, str]:
        futures = self._client.delete_acls(list(wanted), request_timeout=_TIMEOUT_S)
        return {wanted[one]: why for one, why in _failures(futures).items()}


def _rule(cluster: str, one: AclBinding) -> AclRule:
    return AclRule(
        cluster,
        ResourceType(one.restype).name,
        one.name,
        "PREFIXED" if one.resource_pattern_type is ResourcePatternType.PREFIXED else "LITERAL",
        one.principal,
        one.host,
        AclOperation(one.operation).name,
        "DENY" if one.permission_type is AclPermissionType.DENY else "ALLOW",
    )


async def make_rules(
    admin: AclAdmin, cluster: KafkaCluster, topology: str, rules: Mapping[AclRule, str]
) -> dict[AclRule, str]:
    """Makes rules, each with its origin, and registers them, so that the planner owns them.

    Returns refusals as texts by rule. Raises WireError.
    """
    await _register(cluster, {rule: _entry_of(rule, topology, rules[rule], announced=True) for rule in rules})
    refused = await admin.create(rules)
    made = {
        rule: None if rule in refused else _entry_of(rule, topology, rules[rule], announced=False)
        for rule in rules
    }
    await _register(cluster, made)
    return refused


async def remove_rules(
    admin: AclAdmin, cluster: KafkaCluster, rules: Collection[AclRule]
) -> dict[AclRule, str]:
    """Removes rules and their registry entries. Returns refusals as texts by rule. Raises WireError."""
    refused = await admin.delete(rules)
    await _register(cluster, {rule: None for rule in rules if rule not in refused})
    return refused


def _entry_of(rule: AclRule, topology: str, origin: str, *, announced: bool) -> bytes:
    return acl_entry(rule, topology, origin, int(time.time() * 1000), announced=announced)


async def _register(cluster: KafkaCluster, entries: Mapping[AclRule, bytes | None]) -> None:
    records = [InternalRecord(acl_key(rule), entries[rule]) for rule in sorted(entries)]
    if records:
        await post(cluster, naming.REGISTRY, records)


async def register_topics(
    cluster: KafkaCluster,
    flow: FlowSpec,
    topology: str,
    origin: str,
    made: Collection[TopicToCreate],
    sources: Mapping[str, str] | None = None,
) -> None:
    """Enters topics into the destination's registry, if the planner has created it: it owns them then.

    `sources` maps the mirror topics among them to their source topics. Raises WireError.
    """
    if not made or not await has_registry(cluster):
        return
    topics = await cluster.topics([one.name for one in made])
    records = [
        InternalRecord(
            topic_key(flow.destination, one.name),
            topic_entry(
                topology=topology,
                origin=origin,
                source=(flow.source, sources[one.name]) if sources is not None else None,
                topic_id=topics[one.name].id,
                partitions=one.partitions,
                replication=flow.replication,
                config=one.config,
                at_ms=int(time.time() * 1000),
            ),
        )
        for one in made
    ]
    await post(cluster, naming.REGISTRY, records)
