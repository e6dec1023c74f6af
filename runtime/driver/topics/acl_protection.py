"""Protects the mirror topics that the job creates, before their first record (`protect: acl`).

The planner protects the topics that it knows, in the same way, and lifts all of it when the flow is promoted
or failed over: what is made here is registered. Only a plan replaces a rule for User:*; a mirror that such a
rule opens is created without protection, and the flow's notes say so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runtime.contract.client.settings import ClientSettingsError
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
from runtime.driver.clusters import DriverClusters
from runtime.driver.leadership import Leadership
from runtime.driver.topics.acl_admin import make
from runtime.driver.topics.registry import has_registry
from runtime.kafka.errors import WireError


@dataclass(frozen=True, slots=True)
class ProtectingRules:
    """The rules to make, each with its origin in the registry, and why topics are not protected."""

    wanted: Mapping[AclRule, str]
    unprotected: Mapping[str, str]


def protecting_rules(
    flow: FlowSpec, known: ProtectionSpec, rules: Collection[AclRule], topics: Collection[str]
) -> ProtectingRules:
    """Returns the rules that keep foreign principals from writing these mirrors."""
    index = TopicRules(rules)
    wanted: dict[AclRule, str] = {}
    unprotected: dict[str, str] = {}
    for topic in sorted(topics):
        opened = next((rule for rule in index.writing(topic) if rule.principal == EVERYONE), None)
        if opened is not None:
            unprotected[topic] = f"everyone may write it by {opened.name}, which the next repl apply replaces"
        for principal in index.foreign_writers(topic, known.principal):
            wanted[denial(flow.destination, topic, principal)] = flow_origin(flow.name)
        if known.open_without_rules and not index.of(topic):
            origin = protection_origin([flow.name], instead=WITHOUT_RULES)
            found = rules_of_open_topic(flow.destination, topic, known.principal, closed=False)
            wanted |= dict.fromkeys(found, origin)
    missing = {rule: origin for rule, origin in wanted.items() if rule not in rules}
    return ProtectingRules(missing, unprotected)


class MirrorProtection:
    """A MirrorProtection object protects the mirror topics that one flow creates.

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

    async def _protect(self, known: ProtectionSpec, topics: Collection[str]) -> dict[str, str]:
        destination = self._flow.destination
        cluster = await self._clusters.cluster(destination)
        registered = await has_registry(cluster)
        admin = await self._clusters.acls(destination)
        rules = await admin.rules()
        if rules is None or not registered:
            return {}
        found = protecting_rules(self._flow, known, rules, topics)
        refused: dict[AclRule, str] = {}
        if found.wanted:
            await self._leadership.ensure()
            refused = await make(admin, cluster, self._topology, found.wanted)
        return {**found.unprotected, **{rule.resource: why for rule, why in refused.items()}}
