"""Protects the mirror topics that the job creates, before their first record (`protect: acl`).

The planner protects the topics that it knows, in the same way, and lifts all of it when the flow is promoted
or failed over: what is made here is registered. Only a plan replaces a rule for User:*; a mirror that such a
rule opens is created without protection, and the flow's notes say so.
"""

from __future__ import annotations

from collections.abc import Collection

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.spec import naming
from runtime.contract.spec.acls import (
    EVERYONE,
    WITHOUT_RULES,
    AclRule,
    TopicRules,
    denial,
    denial_origin,
    protection_origin,
    rules_of_open_topic,
)
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, ProtectionSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.leadership import Leadership
from runtime.driver.topics.acl_admin import make
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import WireError


def protecting_rules(
    flow: FlowSpec, known: ProtectionSpec, rules: Collection[AclRule], topics: Collection[str]
) -> tuple[dict[AclRule, str], list[str]]:
    """Returns the rules to make, each with its origin, and why topics are not protected."""
    index = TopicRules(rules)
    wanted: dict[AclRule, str] = {}
    notes: list[str] = []
    for topic in sorted(topics):
        opened = next((rule for rule in index.writing(topic) if rule.principal == EVERYONE), None)
        if opened is not None:
            notes.append(
                f"{topic} is not protected: everyone may write it by {opened.name}, which the next"
                " repl apply replaces"
            )
        for principal in index.foreign_writers(topic, known.principal):
            wanted[denial(flow.destination, topic, principal)] = denial_origin(flow.name)
        if known.open_without_rules and not index.of(topic):
            origin = protection_origin([flow.name], instead=WITHOUT_RULES)
            found = rules_of_open_topic(flow.destination, topic, known.principal, closed=False)
            wanted |= dict.fromkeys(found, origin)
    return {rule: origin for rule, origin in wanted.items() if rule not in rules}, notes


class MirrorProtection:
    """A MirrorProtection object protects new mirror topics of one flow. `notes` say what it could not do."""

    def __init__(
        self, flow: FlowSpec, job: JobSpec, clusters: DriverClusters, leadership: Leadership
    ) -> None:
        self._flow = flow
        self._topology = job.topology
        self._known = job.protection if flow.protect == "acl" else None
        self._clusters = clusters
        self._leadership = leadership
        self.notes: list[str] = []

    async def protect(self, topics: Collection[str]) -> None:
        """Makes the rules for topics that are about to be created.

        A refusal stops no flow: it is noted, and the next plan protects the topics. Raises DriverFenced.
        """
        if self._known is None or not topics:
            return
        try:
            self.notes = await self._protect(self._known, topics)
        except (WireError, ClientSettingsError) as error:
            self.notes = [f"new topics are not protected: {error}"]

    async def _protect(self, known: ProtectionSpec, topics: Collection[str]) -> list[str]:
        destination = self._flow.destination
        cluster = await self._clusters.cluster(destination)
        registry = (await cluster.topics([naming.REGISTRY]))[naming.REGISTRY]
        admin = await self._clusters.acls(destination)
        rules = await admin.rules()
        if rules is None or registry.error is not ErrorCode.NONE:
            return []
        wanted, notes = protecting_rules(self._flow, known, rules, topics)
        if wanted:
            await self._leadership.ensure()
            refused = await make(admin, cluster, self._topology, wanted)
            notes += [f"{rule.resource} is not protected: {why}" for rule, why in refused.items()]
        return notes
