"""Keeps the mirror topics of one flow at the destination: created, grown, with the settings of their sources.

`discover` compares the topics of both sides; it is pure. `MirrorTopicManager` carries out the changes. Each
change first confirms the driver's leadership (R10).

A mirror topic that the job creates is protected before its first record (`protect: acl`). The planner
protects the topics that it knows, in the same way, and lifts all of it when the flow is promoted or failed
over: what is made here is registered. Only a plan replaces a rule for User:*; a mirror that such a rule opens
is created without protection, and the flow's notes say so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import LimitedTopic
from runtime.contract.spec import naming
from runtime.contract.spec.acls import (
    EVERYONE,
    WITHOUT_RULES,
    AclRule,
    TopicRules,
    denial,
    flow_origin,
    protection_origin,
    rules_of_open_topic,
)
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, ProtectionSpec
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.spec.topic_settings import (
    MAX_MESSAGE_BYTES,
    ConfigUpdate,
    MirrorRule,
    TopicSettings,
    supported,
)
from runtime.contract.spec.transform import quarantine_origin, quarantine_settings, quarantine_topic
from runtime.driver.clusters import DriverClusters, await_leaders
from runtime.driver.leadership import Leadership
from runtime.driver.topics.admin import (
    has_registry,
    make_rules,
    register_topics,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.changes import BROKERS_DEFAULT, NewTopic
from runtime.slot.log import log_event


def protecting_rules(
    flow: FlowSpec, protection: ProtectionSpec, rules: Collection[AclRule], topics: Collection[str]
) -> tuple[dict[AclRule, str], dict[str, str]]:
    """Returns the rules to make, which keep foreign principals from writing these mirrors.

    Each has its origin in the registry. Returns also the topics that can't be protected, with the reason.
    """
    index = TopicRules(rules)
    wanted: dict[AclRule, str] = {}
    unprotected: dict[str, str] = {}
    for topic in sorted(topics):
        opened = next((rule for rule in index.writing(topic) if rule.principal == EVERYONE), None)
        if opened is not None:
            unprotected[topic] = f"everyone may write it by {opened.name}, which the next repl apply replaces"
        for principal in index.foreign_writers(topic, protection.principal):
            wanted[denial(flow.destination, topic, principal)] = flow_origin(flow.name)
        if protection.open_without_rules and not index.of(topic):
            origin = protection_origin([flow.name], instead=WITHOUT_RULES)
            denials = rules_of_open_topic(flow.destination, topic, protection.principal, closed=False)
            wanted |= dict.fromkeys(denials, origin)
    return {rule: origin for rule, origin in wanted.items() if rule not in rules}, unprotected


class MirrorProtection:
    """Protects the mirror topics that one flow creates.

    `unprotected` maps topics to the reason why they could not be protected. They are tried again.
    """

    def __init__(
        self, flow: FlowSpec, job: JobSpec, clusters: DriverClusters, leadership: Leadership
    ) -> None:
        self._flow = flow
        self._topology = job.topology
        self._known = job.protection if flow.protect == "acl" else None
        self._clusters = clusters
        self._leadership = leadership
        self.unprotected: dict[str, str] = {}

    def retain_only(self, topics: Collection[str]) -> None:
        """Forgets the topics that could not be protected, except these."""
        self.unprotected = {topic: why for topic, why in self.unprotected.items() if topic in topics}

    async def protect(self, new: Collection[str] = ()) -> None:
        """Makes the rules for topics that are about to be created, and for those that are not protected yet.

        A refusal stops no flow: the next plan protects the topics. Raises DriverFenced.
        """
        topics = {*self.unprotected, *new}
        if self._known is None or not topics:
            return
        try:
            self.unprotected = await self._protect(self._known, topics)
        except (WireError, ClientSettingsError) as error:
            self.unprotected = dict.fromkeys(topics, str(error))

    async def _protect(self, protection: ProtectionSpec, topics: Collection[str]) -> dict[str, str]:
        destination = self._flow.destination
        cluster = await self._clusters.cluster(destination)
        registered = await has_registry(cluster)
        rules = await self._clusters.topic_rules(destination)
        if rules is None or not registered:
            return {}
        wanted, unprotected = protecting_rules(self._flow, protection, rules, topics)
        if wanted:
            await self._leadership.ensure()
            refused = await make_rules(cluster, self._topology, wanted)
            unprotected |= {rule.resource: why for rule, why in refused.items()}
        return unprotected


MOST_PARTITIONS = 10_000  # of a mirror that a job makes: KRaft takes no more in a request
_SHARED_S = 1.0  # settings of topics at a source that flows read at the same moment
_REREAD_S = 60.0  # settings of mirrors, which only this product should change


class MirrorTopic(Struct, frozen=True):
    """A MirrorTopic names a source topic and its topic at the destination.

    `change` is what must be done with the latter before the topic is copied.
    """

    topic: str
    destination_topic: str
    partitions: int
    change: Literal["", "create", "grow"] = ""


def discover(
    taken: Mapping[str, str],
    source: Mapping[str, int],
    destination: Mapping[str, int],
    copied: Collection[str],
    *,
    replace_lost: bool = False,
) -> tuple[list[MirrorTopic], list[str]]:
    """Returns the mirrors that a flow needs, and notes that name the topics that are left out, and why.

    `taken` maps the flow's source topics to their names at the destination. `source` and `destination` map
    topics to their partition counts. `copied` are the source topics that have progress in the ledger: their
    mirror is not created again after it was deleted, unless data loss is accepted (R4). A topic that appears
    later, and has the same name at the destination, takes no mirror from them.

    A source is another system, perhaps of another owner. A name that no topic of Kafka can have is not sent
    to the destination, where it could fail the requests for all others (R7). Nor are so many partitions made
    that they would burden its brokers, unless a plan does it.
    """
    owners: dict[str, str] = {}
    illegal = {topic: why for topic in taken if (why := naming.illegal_because(taken[topic])) is not None}
    mirrors: list[MirrorTopic] = []
    notes: list[str] = []
    for topic in sorted(taken.keys() - illegal.keys(), key=lambda topic: (topic not in copied, topic)):
        name = taken[topic]
        owner = owners.setdefault(name, topic)
        if owner != topic:
            notes.append(f"{topic} is not copied: {owner} has the name {name} at the destination")
            continue
        change: Literal["", "create", "grow"] = ""
        have, partitions = destination.get(name), source[topic]
        if have is None and topic in copied and not replace_lost:
            notes.append(f"{name} was deleted at the destination and is not created again by itself")
        elif have is None and partitions > MOST_PARTITIONS:
            notes.append(f"{topic} is not copied: {_too_many(partitions)}")
            continue
        elif have is None:
            change = "create"
        elif have < partitions > MOST_PARTITIONS:
            notes.append(f"{name} does not grow: {_too_many(partitions)}")
            partitions = have
        elif have < partitions:
            change = "grow"
        mirrors.append(MirrorTopic(topic, name, partitions, change))
    if illegal:
        more = f" (and {len(illegal) - 1} more such topics)" if len(illegal) > 1 else ""
        notes.append(f"{min(illegal)} is not copied: {illegal[min(illegal)]}{more}")
    return mirrors, notes


def _too_many(partitions: int) -> str:
    limit = f"a job makes a topic of at most {MOST_PARTITIONS:,} by itself"
    return f"it has {partitions:,} partitions at the source, and {limit}: repl apply makes more"


def selected_topics(
    flow: FlowSpec, router: Router, topics: Iterable[str], draining: Collection[str] = ()
) -> dict[str, str]:
    """Returns the topics that the flow copies now, with their names at the destination."""
    names = ((topic, router.destination_topic(flow.name, topic)) for topic in topics)
    return not_promoted(flow, {topic: name for topic, name in names if name is not None}, draining)


def not_promoted(flow: FlowSpec, taken: Mapping[str, str], draining: Collection[str]) -> dict[str, str]:
    """Returns the topics without those that were promoted on their own and are drained."""
    promoted = NamePatterns(flow.promoted)
    return {topic: name for topic, name in taken.items() if topic in draining or not promoted.match(topic)}


class MirrorTopicManager:
    """A MirrorTopicManager changes the mirror topics of one flow, and the quarantine topics beside them.

    `failed` maps topics to the reason why a change of them failed. `done` counts the mirrors created, grown
    and edited as `topics`, `partitions` and `configs`.

    A quarantine topic that is missing is created, also after it was deleted. Its settings are not changed
    later: an operator or the topology may have decided about its records. Only this product should change
    those of mirrors, so they are read again once a minute.
    """

    def __init__(
        self, flow: FlowSpec, job: JobSpec, router: Router, clusters: DriverClusters, leadership: Leadership
    ) -> None:
        self._flow = flow
        self._topology = job.topology
        self._router = router
        self._clusters = clusters
        self._leadership = leadership
        self._settings: dict[str, TopicSettings] = {}  # of the topics at the destination
        self._stale: set[str] = set()
        self._read_at = -_REREAD_S
        self._supported: frozenset[str] = frozenset()
        self._protection = MirrorProtection(flow, job, clusters, leadership)
        self._quarantines = flow.transform is not None and flow.transform.quarantines
        self._declared = {topic: frozenset(keys) for topic, keys in job.declared.items()}
        self._rule = MirrorRule(flow.configs.sync, flow.configs.exclude, flow.provenance == "headers")
        self._shared_rule = MirrorRule("off", [], headers=False)
        self._copied_back: dict[str, bool] = {}
        # The settings of a source's topic and of its mirror, by mirror, which were found to need no change:
        self._compared: dict[str, tuple[TopicSettings, TopicSettings]] = {}
        self.failed: dict[str, str] = {}
        self.done: Counter[str] = Counter()

    async def update(self, mirrors: Sequence[MirrorTopic]) -> bool:
        """Creates, grows and edits mirrors. Returns whether any has other settings now, or failed.

        Failures are kept in `failed`, by the mirror's name. Raises WireError, DriverFenced.
        """
        self._retain_only(mirrors)
        self.failed, before = {}, dict(self._settings)
        await self._protection.protect()
        source = await self._clusters.admin(self._flow.source)
        source_settings = await source.recent_settings((mirror.topic for mirror in mirrors), _SHARED_S)
        await self._create([mirror for mirror in mirrors if mirror.change == "create"], source_settings)
        await self._grow([mirror for mirror in mirrors if mirror.change == "grow"])
        await self._read_settings([mirror.destination_topic for mirror in mirrors])
        await self._edit(mirrors, source_settings)
        beside = [mirror for mirror in mirrors if not naming.is_internal(mirror.topic)]
        if beside and self._quarantines:
            await self._create_quarantine(beside)
        return bool(self.failed) or self._settings != before

    def _retain_only(self, mirrors: Sequence[MirrorTopic]) -> None:
        """Forgets what was read of other mirrors: their topics have left the flow."""
        topics = {mirror.topic for mirror in mirrors}
        names = {mirror.destination_topic for mirror in mirrors}
        if self._quarantines:
            names |= {quarantine_topic(name) for name in names}
        self._stale &= names
        self._protection.retain_only(names)
        for kept, left in (
            (self._settings, self._settings.keys() - names),
            (self._compared, self._compared.keys() - names),
            (self._copied_back, self._copied_back.keys() - topics),
        ):
            for name in left:
                del kept[name]

    @property
    def unprotected(self) -> dict[str, str]:
        """Returns why new mirrors could not be protected from foreign writers, by their name."""
        return self._protection.unprotected

    def quarantine(self, mirror: str) -> LimitedTopic | None:
        """Returns the quarantine topic of a mirror; None where there is none, or while it is not known."""
        topic = quarantine_topic(mirror)
        return self.limited(topic) if self._quarantines and topic not in self.failed else None

    def is_ready(self, mirror: str) -> bool:
        """Returns whether a mirror may be copied into: its limits are known, and its quarantine's are."""
        without = not self._quarantines or naming.is_internal(mirror)
        has_limits = mirror not in self.failed and self.limited(mirror) is not None
        return has_limits and (without or self.quarantine(mirror) is not None)

    def limited(self, topic: str) -> LimitedTopic | None:
        """Returns a topic of the destination with its limits, or None while its settings are not known."""
        settings = self._settings.get(topic)
        if settings is None:
            return None
        in_sync = settings.effective("min.insync.replicas")
        return LimitedTopic(topic, settings.max_message_bytes, int(in_sync or 1))

    async def _read_settings(self, topics: Collection[str]) -> None:
        """Reads the settings of topics that are not known, and once a minute those of all."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at >= _REREAD_S:
            self._read_at, self._stale = now, set(self._settings)
        names = [name for name in topics if name in self._stale or name not in self._settings]
        if names:
            read = await (await self._clusters.admin(self._flow.destination)).settings(names)
            self._settings |= {
                name: settings for name, settings in read.items() if settings != self._settings.get(name)
            }
            self._stale.difference_update(names)

    async def _create(
        self, create: Sequence[MirrorTopic], source_settings: Mapping[str, TopicSettings]
    ) -> None:
        """Creates mirrors with all their settings at once.

        With the default retention, old records would be deleted immediately.
        """
        wanted = {}
        for mirror in create:
            name, settings = mirror.destination_topic, source_settings.get(mirror.topic)
            if settings is None:
                self.failed[name] = f"the settings of {mirror.topic} can't be read at the source"
            else:
                wanted[name] = mirror.partitions, self._rule.wanted(settings)
        if not wanted:
            return
        await self._protection.protect(
            [
                mirror.destination_topic
                for mirror in create
                if not naming.is_internal(mirror.destination_topic) and not self._is_copied_back(mirror.topic)
            ]
        )
        sources = {mirror.destination_topic: mirror.topic for mirror in create}
        await self._make(wanted, flow_origin(self._flow.name), sources)

    async def _make(
        self,
        wanted: Mapping[str, tuple[int, Mapping[str, str]]],
        origin: str,
        sources: Mapping[str, str] | None = None,
    ) -> list[NewTopic]:
        """Creates topics with so many partitions and such settings, and registers those that it returns.

        `sources` has the topics of mirrors. Settings that the destination's Kafka lacks are left out. Those
        of the ledger's topic show which it has; where they can't be read, all are tried.
        """
        admin = await self._clusters.admin(self._flow.destination)
        if not self._supported:
            described = await admin.settings([naming.LEDGER])
            self._supported = frozenset(
                key for settings in described.values() for key in (*settings.explicit, *settings.inherited)
            )
        replicas = self._flow.replication or BROKERS_DEFAULT
        topics = [
            NewTopic(name, partitions, replicas, supported(config, self._supported))
            for name, (partitions, config) in wanted.items()
        ]
        await self._leadership.ensure()
        failed = await admin.create(topics)
        self.failed |= failed
        for topic in topics:
            self._settings.pop(topic.name, None)
        made = [topic for topic in topics if topic.name not in failed]
        self.done["topics"] += len(made) if sources is not None else 0
        cluster = await self._await_leaders({topic.name: topic.partitions for topic in made})
        registered = [topic for topic in made if not naming.is_internal(topic.name)]
        await register_topics(cluster, self._flow, self._topology, origin, registered, sources)
        return made

    async def _await_leaders(self, partitions: Mapping[str, int]) -> KafkaCluster:
        """Waits until metadata lists the partitions with their leaders, and returns the destination."""
        destination = await self._clusters.cluster(self._flow.destination)
        self._clusters.invalidate(self._flow.destination)
        await await_leaders(destination, partitions)
        return destination

    async def _create_quarantine(self, mirrors: Sequence[MirrorTopic]) -> None:
        """Creates the quarantine topics that are missing, and reads the settings of all."""
        cluster = await self._clusters.cluster(self._flow.destination)
        beside = {quarantine_topic(mirror.destination_topic): mirror for mirror in mirrors}
        topics = await cluster.topics(beside, fresh=True)
        missing = {}
        for name, mirror in beside.items():
            settings = self._settings.get(mirror.destination_topic)
            if settings is not None and topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                largest = settings.effective(MAX_MESSAGE_BYTES)
                missing[name] = mirror.partitions, quarantine_settings(largest)
        if missing:
            made = await self._make(missing, quarantine_origin(self._flow.name))
            failed = {name: why for name, why in self.failed.items() if name in missing}
            log_event(
                "quarantine_created",
                key=self._flow.name,
                flow=self._flow.name,
                topics=", ".join(topic.name for topic in made),
                error="; ".join(f"{name}: {why}" for name, why in failed.items()) or None,
            )
        await self._read_settings([name for name in beside if name not in self.failed])

    async def _grow(self, grow: Sequence[MirrorTopic]) -> None:
        if not grow:
            return
        admin = await self._clusters.admin(self._flow.destination)
        await self._leadership.ensure()
        wanted = {mirror.destination_topic: mirror.partitions for mirror in grow}
        self.failed |= await admin.grow(wanted)
        grown = {name: count for name, count in wanted.items() if name not in self.failed}
        self.done["partitions"] += len(grown)
        await self._await_leaders(grown)

    def _is_copied_back(self, topic: str) -> bool:
        """Returns whether two flows copy the topic in both directions."""
        if topic not in self._copied_back:
            self._copied_back[topic] = self._router.is_one(self._flow.name, topic)
        return self._copied_back[topic]

    def _rule_of(self, topic: str) -> MirrorRule:
        """Returns the rule for a topic's settings.

        Where two flows copy a topic in both directions, each would follow the other, and a limit with room
        for headers would grow without end. Such topics use a rule that syncs no settings and adds no room for
        headers.
        """
        return self._shared_rule if self._is_copied_back(topic) else self._rule

    async def _edit(
        self, mirrors: Collection[MirrorTopic], source_settings: Mapping[str, TopicSettings]
    ) -> None:
        """Changes mirrors whose settings differ.

        A failback changes none: the topics that it copies back to keep their settings.
        """
        if self._flow.reverse_of is not None:
            return
        edits: dict[str, ConfigUpdate] = {}
        for mirror in mirrors:
            name = mirror.destination_topic
            at_source, there = source_settings.get(mirror.topic), self._settings.get(name)
            if at_source is None or there is None:
                continue
            compared = self._compared.get(name)
            if compared is not None and compared[0] is at_source and compared[1] is there:
                continue
            declared = self._declared.get(name, frozenset())
            edit = self._rule_of(mirror.topic).edit(at_source, there, declared)
            if edit:
                edits[name] = edit
            else:
                self._compared[name] = at_source, there
        if not edits:
            return
        admin = await self._clusters.admin(self._flow.destination)
        await self._leadership.ensure()
        refused = await admin.edit(edits)
        self.failed |= refused
        self.done["configs"] += len(edits.keys() - refused.keys())
        self._settings |= await admin.settings(edits)
