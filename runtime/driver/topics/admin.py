"""This module administers topics and their ACL rules over the driver's own connections.

Topics are created, grown and changed; ACL rules on them are read, made and removed. The mirror topics and
rules that the job makes are entered into the registry of the destination. The entries have the planner's own
format, so the planner owns what the job makes.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence

from runtime.contract.records import registry
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.records.registry import OwnershipRecord
from runtime.contract.spec import naming
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import REGISTRY, is_from_kafka
from runtime.contract.spec.topic_settings import ConfigUpdate, TopicSettings
from runtime.driver.slots.channel import post
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, Refusal, WireError
from runtime.kafka.protocol.administration import AclBinding, DescribeAclsRequest
from runtime.kafka.protocol.changes import (
    AlterConfigsRequest,
    ConfigAlteration,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    NewTopic,
    RefusedRules,
    RefusedTopics,
)
from runtime.kafka.protocol.configs import DecodedConfigs, Described
from runtime.kafka.protocol.request import Request
from runtime.kafka.queries import in_parts, topic_configs
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import Gathered, now_ms

_ACL = "acl."


async def has_registry(cluster: KafkaCluster) -> bool:
    """Returns whether the planner has created the registry at the cluster. Raises WireError."""
    return (await cluster.topics([REGISTRY]))[REGISTRY].error is ErrorCode.NONE


def topic_key(cluster: str, topic: str) -> bytes:
    """Returns the registry's key of a topic."""
    return f"topic.{cluster}.{topic}".encode()


def topic_spec(
    *,
    source: tuple[str, str] | None = None,
    topic_id: bytes,
    partitions: int,
    replication: int | None = None,
    config: Mapping[str, str],
) -> dict[str, str]:
    """Returns a topic as the registry records it. `source`: the cluster and the topic of a mirror."""
    spec = {f"config.{key}": value for key, value in sorted(config.items())}
    spec["partitions"] = str(partitions)
    if replication is not None:
        spec["replication"] = str(replication)
    if is_from_kafka(topic_id):
        spec["id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    if source is not None:
        spec["source.cluster"], spec["source.topic"] = source
    return spec


def acl_key(rule: AclRule) -> bytes:
    """Returns the registry's key of an ACL rule."""
    return f"{_ACL}{rule.cluster}.{rule.name}".encode()


def owned_acl(cluster: str, key: bytes, value: bytes) -> tuple[AclRule, OwnershipRecord] | None:
    """Returns the rule and the content of an entry that its topology created; None for other entries.

    An entry that can't be read, or whose key is not that of its rule, is none: any writer of the topic can
    write one.
    """
    if not key.startswith(_ACL.encode()):
        return None
    try:
        entry = registry.decode(value)
    except UnreadableValue:
        return None
    rule = AclRule.recorded(cluster, entry.spec)
    if rule is None or not entry.created or acl_key(rule) != key:
        return None
    return rule, entry


_TIMEOUT_S = 20.0
_TIMEOUT_MS = int(_TIMEOUT_S * 1000)
_PER_REQUEST = 200  # topics in one request
# Settings that no caller of `recent_settings` wanted for so long are not read again. Flows of a large cluster
# use one listing of it for half a minute, and read no settings meanwhile.
WATCHED_S = 120.0
_DECODED_BYTES = 256 << 20  # of responses, of which only the digests are kept
_MOST_POOLED = 1_000


class TopicAdmin:
    """A TopicAdmin changes topics of one cluster.

    Its methods return refusals as texts by topic and raise nothing for them. Flows that create topics, or
    read settings, at the same time share a request. Settings that stay the same are the same object.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._creations = Gathered(self._create_together, _PER_REQUEST)
        self._readings: Gathered[str, None, dict[str, TopicSettings]] = Gathered(
            self._read_together, _PER_REQUEST, resend=True
        )
        self._recent: dict[str, TopicSettings] = {}
        self._recent_at = float("-inf")
        self._watched: dict[str, float] = {}  # topics of callers of `recent_settings`, and when they called
        self._reading = asyncio.Lock()
        self._decoded = DecodedConfigs(_DECODED_BYTES, digests=True)
        self._described: dict[str, tuple[Described, TopicSettings]] = {}  # of the watched topics
        self._pool: dict[tuple[tuple[str, str | None], ...], dict[str, str]] = {}

    async def create(self, topics: Sequence[NewTopic]) -> dict[str, str]:
        """Creates topics. An existing topic counts as created. Raises WireError where it was interrupted."""
        failed = await self._creations.ask({topic.name: topic for topic in topics})
        return {topic.name: failed[topic.name] for topic in topics if topic.name in failed}

    async def _create_together(self, topics: Mapping[str, NewTopic]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for some in in_parts(list(topics), _PER_REQUEST):
            wanted = [topics[name] for name in some]
            failed |= await self._change(CreateTopicsRequest(wanted, _TIMEOUT_MS), some)
        return failed

    async def grow(self, partitions: Mapping[str, int]) -> dict[str, str]:
        """Raises the partition counts of topics."""
        failed: dict[str, str] = {}
        for some in in_parts(list(partitions), _PER_REQUEST):
            counts = {name: partitions[name] for name in some}
            failed |= await self._change(CreatePartitionsRequest(counts, _TIMEOUT_MS), some)
        return failed

    async def edit(self, edits: Mapping[str, ConfigUpdate]) -> dict[str, str]:
        """Changes the settings of topics."""
        failed: dict[str, str] = {}
        for some in in_parts(sorted(edits), _PER_REQUEST):
            updates = [ConfigAlteration.of(name, edits[name].set, sorted(edits[name].unset)) for name in some]
            failed |= await self._change(AlterConfigsRequest(updates), some)
        return failed

    async def _change(self, request: Request[RefusedTopics], topics: Sequence[str]) -> dict[str, str]:
        try:
            refused = await self._cluster.ask_controller(request, _TIMEOUT_S)
        except WireError as failure:
            return dict.fromkeys(topics, str(failure))
        return {
            topic: refusal.text
            for topic, refusal in refused.items()
            if refusal.error is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    async def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Returns the settings of those topics whose settings may be read. Raises WireError."""
        wanted = sorted(topics)
        settings = await self._readings.ask(dict.fromkeys(wanted)) if wanted else {}
        return {name: settings[name] for name in wanted if name in settings}

    async def recent_settings(self, topics: Iterable[str], max_age_s: float) -> dict[str, TopicSettings]:
        """Returns settings as `settings` does, at most `max_age_s` old. Raises WireError.

        It is for callers that look at their topics periodically. One read is of the topics of all of them, so
        they share it, and responses that brokers repeat are not decoded again. Topics that no caller asked
        for before are read in a request of their own: a flow that starts does not read the settings of all
        others.
        """
        loop = asyncio.get_running_loop()
        wanted, now = list(topics), loop.time()
        new = [name for name in wanted if name not in self._watched]
        read = await self.settings(new)
        self._recent |= read  # not before: another flow may have read all of them meanwhile
        self._watched.update(dict.fromkeys(wanted, now))
        if len(new) < len(wanted):
            async with self._reading:
                if self._recent_at < now - max_age_s:
                    began = loop.time()
                    await self._read_watched(now)
                    self._recent_at = began
        return {name: self._recent[name] for name in wanted if name in self._recent}

    async def _read_watched(self, now: float) -> None:
        self._watched = {name: at for name, at in self._watched.items() if now - at < WATCHED_S}
        names = frozenset(self._watched)
        self._decoded.keep_for(names)
        for gone in self._described.keys() - names:
            del self._described[gone]
        settings: dict[str, TopicSettings] = {}
        async for topic in topic_configs(self._cluster, sorted(names), decoded=self._decoded):
            if topic.error is not ErrorCode.NONE:
                continue
            known = self._described.get(topic.name)
            if known is None or known[0] is not topic:
                made = self._settings_of(topic)
                known = topic, made if known is None or known[1] != made else known[1]
                self._described[topic.name] = known
            settings[topic.name] = known[1]
        others = {name: self._recent[name] for name in self._watched.keys() - names if name in self._recent}
        self._recent = {**others, **settings}

    async def _read_together(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        described = topic_configs(self._cluster, sorted(topics))
        return {
            topic.name: self._settings_of(topic) async for topic in described if topic.error is ErrorCode.NONE
        }

    def _settings_of(self, topic: Described) -> TopicSettings:
        """Returns the settings of a topic. Most topics have the same ones, and share the mappings."""
        explicit = tuple((entry.key, entry.value) for entry in topic.entries if entry.explicit)
        inherited = tuple((entry.key, entry.value) for entry in topic.entries if not entry.explicit)
        return TopicSettings(self._pooled(explicit), self._pooled(inherited))

    def _pooled(self, entries: tuple[tuple[str, str | None], ...]) -> dict[str, str]:
        pooled = self._pool.get(entries)
        if pooled is None:
            if len(self._pool) >= _MOST_POOLED:
                self._pool.clear()
            pooled = self._pool[entries] = {key: value for key, value in entries if value is not None}
        return pooled


_TOPIC_RESOURCE = 2


async def topic_rules(name: str, cluster: KafkaCluster, broker: int | None = None) -> set[AclRule] | None:
    """Returns all rules on topics, as any or this broker knows them; None without an authorizer.

    Raises WireError.
    """
    request = DescribeAclsRequest(_TOPIC_RESOURCE)
    bindings = await (
        cluster.ask_any(request) if broker is None else cluster.call(broker, request, within=_TIMEOUT_S)
    )
    if isinstance(bindings, Refusal):
        if bindings.error is ErrorCode.SECURITY_DISABLED:
            return None
        raise WireError(f"the ACLs of {name} can't be read: {bindings.text}")
    rules = (binding.rule(name) for binding in bindings)
    return {rule for rule in rules if rule is not None}


async def _change_rules(
    cluster: KafkaCluster, request: Request[RefusedRules], rules: Sequence[AclRule]
) -> dict[AclRule, str]:
    """Returns refusals as texts by rule, of a request for exactly these rules."""
    try:
        refusals = await cluster.ask_controller(request, _TIMEOUT_S)
    except WireError as failure:
        return dict.fromkeys(rules, str(failure))
    return {rule: refusal.text for rule, refusal in zip(rules, refusals, strict=True) if refusal is not None}


async def make_rules(
    cluster: KafkaCluster, topology: str, rules: Mapping[AclRule, str]
) -> dict[AclRule, str]:
    """Makes rules, each with its origin, and registers them, so that the planner owns them.

    Returns refusals as texts by rule. Raises WireError.
    """
    at_ms = now_ms()
    announced = {
        rule: acl_entry(rule, topology, origin, at_ms, announced=True) for rule, origin in rules.items()
    }
    await _register(cluster, announced)
    listed = sorted(rules)
    request = CreateAclsRequest([AclBinding.of(rule) for rule in listed])
    refused = await _change_rules(cluster, request, listed)
    made = {
        rule: None if rule in refused else acl_entry(rule, topology, origin, at_ms, announced=False)
        for rule, origin in rules.items()
    }
    await _register(cluster, made)
    return refused


async def remove_rules(cluster: KafkaCluster, rules: Collection[AclRule]) -> dict[AclRule, str]:
    """Removes rules and their registry entries. Returns refusals as texts by rule. Raises WireError."""
    listed = sorted(rules)
    request = DeleteAclsRequest([AclBinding.of(rule) for rule in listed])
    refused = await _change_rules(cluster, request, listed)
    await _register(cluster, {rule: None for rule in rules if rule not in refused})
    return refused


def acl_entry(rule: AclRule, topology: str, origin: str, at_ms: int, *, announced: bool) -> bytes:
    """Encodes the entry of a rule that a job makes. It is `announced` before the rule is made."""
    spec = {**rule.spec, registry.ANNOUNCED: "true"} if announced else rule.spec
    return registry.encode(
        OwnershipRecord(topology=topology, spec=spec, origin=origin, created=True, at_ms=at_ms)
    )


async def _register(cluster: KafkaCluster, entries: Mapping[AclRule, bytes | None]) -> None:
    records = [InternalRecord(acl_key(rule), entries[rule]) for rule in sorted(entries)]
    if records:
        await post(cluster, naming.REGISTRY, records)


async def register_topics(
    cluster: KafkaCluster,
    flow: FlowSpec,
    topology: str,
    origin: str,
    made: Collection[NewTopic],
    sources: Mapping[str, str] | None,
) -> None:
    """Enters topics into the destination's registry, if the planner has created it: it owns them then.

    `sources` maps the mirror topics among them to their source topics. Raises WireError.
    """
    if not made or not await has_registry(cluster):
        return
    topics = await cluster.topics([topic.name for topic in made])
    at_ms = now_ms()
    records = []
    for topic in made:
        spec = topic_spec(
            source=(flow.source, sources[topic.name]) if sources is not None else None,
            topic_id=topics[topic.name].id,
            partitions=topic.partitions,
            replication=flow.replication,
            config=topic.config,
        )
        entry = OwnershipRecord(topology=topology, spec=spec, origin=origin, created=True, at_ms=at_ms)
        records.append(InternalRecord(topic_key(flow.destination, topic.name), registry.encode(entry)))
    await post(cluster, naming.REGISTRY, records)
