"""Keeps the rules on mirror topics as those of their sources while the job runs (`acls: {sync: true}`).

The rules of MirrorMaker apply: ALLOW WRITE is never mirrored, ALLOW ALL becomes READ and DESCRIBE. What is
made is registered, so that the planner owns it. A rule that the flow made is removed when its rule at the
source is gone in two passes in a row, and at every broker: one may answer without rules that it has not read
yet. A rule that existed without the flow is never removed.

Flows with the same interval sync at the same moments and share one read of each cluster.

In a loop of flows, a rule that a flow mirrored from the destination is not mirrored back: it would outlive
its original rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Set
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.registry import OwnershipRecord
from runtime.contract.spec import naming
from runtime.contract.spec.acls import FENCE, PROTECTION, AclMirror, AclRule, flow_origin
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, Route
from runtime.contract.spec.route import CompiledRoute, is_reserved, router_of
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.clusters import DriverClusters
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.topics.admin import has_registry, make_rules, owned_acl, remove_rules
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.timing import RecentReads, until_next
from runtime.ledger.records import READ_FAILURES, InternalTopicScan
from runtime.slot.log import log_event

_SHARED_S = 0.1  # flows that sync within this time use one read


class ClusterRules(Struct, frozen=True):
    """The rules on topics of one cluster, and those of them that topologies made, as its registry says.

    `owned` has the registry's entry of each rule that a topology made: the origin of one that a flow made is
    `flow.NAME`. `registered` is whether the cluster has a registry.
    """

    live: Set[AclRule]
    owned: Mapping[AclRule, OwnershipRecord] = {}
    registered: bool = True


def acl_changes(
    flow: FlowSpec,
    route: CompiledRoute,
    routes: Iterable[Route],
    topics: Mapping[str, str],
    every: Collection[str],
    source: ClusterRules,
    destination: ClusterRules,
) -> tuple[frozenset[AclRule], frozenset[AclRule]]:
    """Returns the rules to make and those to remove at the destination, so that they follow the source's.

    `topics` maps the topics that the flow copies now to their names at the destination, `every` holds all
    topics of the source.
    """
    promoted = NamePatterns(flow.promoted)
    named = {topic: there for topic in every if (there := route.destination_topic(topic)) is not None}
    left = {topic for topic in named if promoted.match(topic) and topic not in topics}
    mirror = AclMirror(route, topics, [topic for topic in every if not is_reserved(topic)], left)
    not_mirrored = _not_mirrored(flow, routes, source.owned)
    wanted = {there for rule in source.live if rule not in not_mirrored for _, there in mirror.of(rule)}
    follows = {there for rule in source.live for _, there in mirror.of(rule)}
    kept = [named[topic] for topic in left]
    gone = {
        rule
        for rule, entry in destination.owned.items()
        if entry.origin == flow_origin(flow.name)
        and rule in destination.live
        and rule not in follows
        and _is_mirrored(rule, flow, route, topics, every)
        and not any(rule.covers(topic) for topic in kept)
    }
    return frozenset(wanted.difference(destination.live)), frozenset(gone)


def _not_mirrored(
    flow: FlowSpec, routes: Iterable[Route], owned: Mapping[AclRule, OwnershipRecord]
) -> frozenset[AclRule]:
    """Returns the rules at the source that are not mirrored.

    They are rules that a flow downstream of the destination or of another topology made, and rules that
    protect mirrors or stop the producers of a wave.
    """
    by_name = {flow_origin(route.name): route for route in routes}
    downstream = {flow.destination}
    while (
        more := {route.destination for route in by_name.values() if route.source in downstream} - downstream
    ):
        downstream |= more

    def stays(rule: AclRule, origin: str) -> bool:
        route = by_name.get(origin)
        protects = origin.startswith((FENCE, PROTECTION)) or _denies_writes(rule)
        return protects or (origin.startswith("flow.") and (route is None or route.source in downstream))

    return frozenset(rule for rule, entry in owned.items() if stays(rule, entry.origin))


def _denies_writes(rule: AclRule) -> bool:
    return rule.permission == "DENY" and rule.operation == "WRITE"


def _is_mirrored(
    rule: AclRule,
    flow: FlowSpec,
    route: CompiledRoute,
    topics: Mapping[str, str],
    every: Collection[str],
) -> bool:
    """Returns whether the flow's mirroring decides over a rule that it made.

    A denial may be one of `protect: acl`, which a plan removes. The rule of a topic that is gone from the
    source stays until the next plan.
    """
    if rule.resource_type != "TOPIC" or (flow.protect == "acl" and _denies_writes(rule)):
        return False
    if rule.pattern == "PREFIXED":
        return any(rule.covers(there) for there in topics.values())
    source_topic = route.source_topic(rule.resource)
    return source_topic in every and rule.resource in topics.values()


class ClusterRulesReader:
    """Reads the rules of each cluster for all flows of the job."""

    def __init__(self, clusters: DriverClusters) -> None:
        self._clusters = clusters
        self._reads: RecentReads[ClusterRules | None] = RecentReads(_SHARED_S)
        self._scans: dict[str, InternalTopicScan] = {}

    async def read(self, name: str) -> ClusterRules | None:
        """Returns the rules of a cluster, or None where it has no authorizer.

        Concurrent callers share one read.

        Raises WireError, ClientSettingsError and READ_FAILURES.
        """
        return await self._reads.read(name, partial(self._read, name))

    async def _read(self, name: str) -> ClusterRules | None:
        live = await self._clusters.topic_rules(name)
        if live is None:
            return None
        cluster = await self._clusters.cluster(name)
        if not await has_registry(cluster):
            return ClusterRules(live, registered=False)
        scan = self._scans.pop(name, None) or InternalTopicScan(cluster, naming.REGISTRY, 0)
        await scan.refresh()
        self._scans[name] = scan  # not where it failed
        owned = (owned_acl(name, key, value) for key, value in scan.fold.items())
        return ClusterRules(live, dict(entry for entry in owned if entry is not None))


class AclSync:
    """Syncs the rules of one flow. What fails is put into `notes` and retried."""

    def __init__(
        self,
        flow: DriverFlow,
        job: JobSpec,
        rules: ClusterRulesReader,
        notes: dict[str, str],
    ) -> None:
        self.notes = notes
        self._flow = flow
        self._job = job
        self._route = router_of(job).routes[flow.spec.name]
        self._rules = rules
        self._gone: frozenset[AclRule] = frozenset()  # at the source, in the last pass

    async def run(self) -> None:
        """Syncs the rules at the interval of `follow`. Raises DriverFenced."""
        every = self._flow.spec.follow_every_ms
        if every is None or not self._flow.spec.acls_sync:
            return
        while True:
            try:
                why = "; ".join((await self._sync())[:5])
            except (WireError, ClientSettingsError, *READ_FAILURES) as error:
                why = str(error)
            if why:
                self.notes["acls"] = why
            else:
                self.notes.pop("acls", None)
            await asyncio.sleep(until_next(every / 1000))

    async def _sync(self) -> list[str]:
        """Makes and removes rules once. Returns what was refused. Raises WireError, DriverFenced."""
        spec, shared = self._flow.spec, self._flow.shared
        at_source = await self._rules.read(spec.source)
        at_destination = await self._rules.read(spec.destination)
        if at_source is None or at_destination is None or not at_destination.registered:
            return []
        entries = at_destination.owned.items()
        owned = {rule: entry for rule, entry in entries if entry.topology == self._job.topology}
        at_destination = ClusterRules(at_destination.live, owned)
        listed = await shared.clusters.listing(spec.source)
        every = [name for name, topic in listed.items() if topic.error is ErrorCode.NONE]
        topics = self._flow.selected(every)
        compare = partial(acl_changes, spec, self._route, self._job.routes, topics, every)
        create, delete = compare(at_source, at_destination)
        gone, self._gone = self._gone & delete, delete
        if gone:
            rules = at_source.live | await shared.clusters.topic_rules_of_each_broker(spec.source)
            gone &= compare(replace(at_source, live=rules), at_destination)[1]
        if not create and not gone:
            return []
        cluster = await shared.clusters.cluster(spec.destination)
        await shared.leadership.ensure()
        origins = dict.fromkeys(sorted(create), flow_origin(spec.name))
        refused = await make_rules(cluster, self._job.topology, origins) if origins else {}
        refused |= await remove_rules(cluster, gone) if gone else {}
        log_event(
            "acls_synced",
            key=spec.name,
            flow=spec.name,
            created=len(create),
            deleted=len(gone),
            refused=len(refused) or None,
        )
        return [f"{rule.name} at {spec.destination}: {why}" for rule, why in sorted(refused.items())]
