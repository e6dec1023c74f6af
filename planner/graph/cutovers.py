"""Cutovers over the live topics: which topics each wave moves, and what stops its producers at the source.

The fence of a wave is a part of the desired state, so that a plan shows it, an apply sets it, and the
registry remembers what it made. It is taken away when the wave is no longer `fenced`.

A rule that denies WRITE keeps no reader off, and a job only reads the topics at its source. One case is
different: with `allow.everyone.if.no.acl.found`, a topic that has its first rule is closed to all that no
rule allows. Such a topic gets rules that allow everything but WRITE.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
from msgspec import Struct

from planner.graph.acl_protection import job_principal
from planner.graph.messages import counted, few
from planner.graph.replication_graph import ReplicationGraph
from planner.model.address import Address, Kind
from planner.model.desired import DesiredAcl, DesiredQuota, FencedBy, PlannedWave
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.forecast import ASSUMED_RATE, copy_rate
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.topology import AclRule, Cutover, Fence, Flow, QuotaEntity, Topology, Wave
from planner.model.topology.quotas import DEFAULT_ENTITY
from runtime.contract.spec.acls import EVERYONE, NOT_WRITE, TopicRules, denial
from runtime.contract.spec.selection import NamePatterns

FENCED_RATE = 1  # bytes a second: Kafka has no quota of 0
RATE = "producer_byte_rate"


class WaveTopics(Struct, frozen=True):
    """A wave with its topics at the source, by flow, and those of them that have moved.

    `others` are the topics that each flow of the cutover copies for other waves, or for none. `waiting` are
    the other waves that have not moved, in their order: topics of theirs may be created at any time.
    """

    cutover: Cutover
    wave: Wave
    topics: Mapping[str, tuple[str, ...]]
    moved: Mapping[str, frozenset[str]]
    others: Mapping[str, tuple[str, ...]]
    waiting: tuple[str, ...] = ()

    @property
    def fenced_by(self) -> FencedBy:
        """Returns the origin of the rules or quotas of its fence."""
        return FencedBy(self.cutover.name, self.wave.name)

    @property
    def names(self) -> list[str]:
        """Returns all its topics, sorted."""
        return sorted({topic for topics in self.topics.values() for topic in topics})

    @property
    def left(self) -> dict[str, tuple[str, ...]]:
        """Returns the topics that have not moved, by flow; flows without any are left out."""
        left = {
            flow: tuple(topic for topic in topics if topic not in self.moved[flow])
            for flow, topics in self.topics.items()
        }
        return {flow: topics for flow, topics in left.items() if topics}

    @property
    def is_moved(self) -> bool:
        return bool(self.names) and not self.left


def waves_of(cutover: Cutover, topology: Topology, taken: Mapping[str, Collection[str]]) -> list[WaveTopics]:
    """Returns the waves of a cutover in their order.

    `taken` are the topics at the source that each flow copies or has copied. A topic belongs to the first
    wave that matches it.
    """
    patterns = [(wave.name, NamePatterns(wave.topics)) for wave in cutover.waves]
    wave_of = {
        (flow, topic): next((name for name, pattern in patterns if pattern.match(topic)), None)
        for flow in cutover.flows
        for topic in sorted(taken.get(flow, ()))
    }
    waves: list[WaveTopics] = []
    for wave in cutover.waves:
        topics: dict[str, list[str]] = defaultdict(list)
        for (flow, topic), name in wave_of.items():
            if name == wave.name:
                topics[flow].append(topic)
        waves.append(
            WaveTopics(
                cutover,
                wave,
                {flow: tuple(names) for flow, names in topics.items()},
                {
                    flow: frozenset(topic for topic in names if not topology.flows[flow].copies(topic))
                    for flow, names in topics.items()
                },
                {
                    flow: tuple(
                        topic
                        for (other, topic), name in wave_of.items()
                        if other == flow and name != wave.name and topology.flows[flow].copies(topic)
                    )
                    for flow in cutover.flows
                },
            )
        )
    left = [wave.wave.name for wave in waves if not wave.is_moved]
    return [
        msgspec.structs.replace(wave, waiting=tuple(name for name in left if name != wave.wave.name))
        for wave in waves
    ]


def source_of(cutover: Cutover, topology: Topology) -> str:
    """Returns the cluster that the clients leave."""
    return topology.flows[cutover.flows[0]].source_cluster


def live_waves(graph: ReplicationGraph) -> list[WaveTopics]:
    """Returns the waves of every cutover whose source could be read."""
    topology = graph.topology
    waves: list[WaveTopics] = []
    for cutover in topology.cutovers:
        source = source_of(cutover, topology)
        names = graph.names.get(source)
        if names is None:
            continue
        taken = {
            flow: [topic for topic in names if graph.router.routes[flow].answer(topic).taken]
            for flow in cutover.flows
        }
        waves += waves_of(cutover, topology, taken)
    return waves


def fence_rules(graph: ReplicationGraph) -> Iterator[DesiredAcl]:
    """Yields the rules that keep producers from writing the topics of fenced waves."""
    for wave in live_waves(graph):
        if not (wave.wave.fenced and wave.cutover.fence is Fence.ACL):
            continue
        source = source_of(wave.cutover, graph.topology)
        origin = wave.fenced_by
        open_topics = _open_topics(wave, graph, graph.cluster(source))
        for topic in wave.names:
            rules = [denial(source, topic, principal) for principal in wave.wave.producers or (EVERYONE,)]
            if topic in open_topics:
                allowed = NOT_WRITE if not wave.wave.producers else ("ALL",)
                rules += (
                    replace(rules[0], principal=EVERYONE, operation=operation, permission="ALLOW")
                    for operation in allowed
                )
            yield from (DesiredAcl(rule, origin, wave.wave.source) for rule in rules)


def _open_topics(wave: WaveTopics, graph: ReplicationGraph, source: ObservedCluster | None) -> frozenset[str]:
    """Returns the topics that everyone may use because no rule speaks of them."""
    declared = graph.topology.clusters[source_of(wave.cutover, graph.topology)]
    if source is None or not declared.allow_everyone_if_no_acl_found:
        return frozenset()
    rules = _rules_of_others(source)
    return frozenset(topic for topic in wave.names if not rules.of(topic))


def _rules_of_others(cluster: ObservedCluster) -> TopicRules:
    """Returns the live rules without those that fences made."""
    made = {entry.address.name for entry in cluster.owned if entry.is_fence and entry.created}
    return TopicRules(rule for rule in cluster.acls or () if rule.name not in made)


def fence_limits(
    graph: ReplicationGraph, declared: Mapping[tuple[str, QuotaEntity], DesiredQuota]
) -> Iterator[DesiredQuota]:
    """Yields the quotas that stop the producers of fenced waves. Other declared limits of theirs stay."""
    for cutover in graph.topology.cutovers:
        source = source_of(cutover, graph.topology)
        for wave in cutover.waves:
            if not wave.fenced or cutover.fence is not Fence.QUOTA or source not in graph.names:
                continue
            for entity in wave.limited:
                other = declared.get((source, entity))
                values = {**(other.values if other is not None else {}), RATE: FENCED_RATE}
                origin = other.origin if other is not None else FencedBy(cutover.name, wave.name)
                yield DesiredQuota(source, entity, values, origin, wave.source)


def planned_waves(graph: ReplicationGraph) -> Iterator[PlannedWave]:
    """Yields how large each wave is, and how long what it copies first takes."""
    topology = graph.topology
    synced = {cutover.name: _synced_groups(cutover, graph) for cutover in topology.cutovers}
    for wave in live_waves(graph):
        source = graph.cluster(source_of(wave.cutover, topology))
        if source is None:
            continue
        sizes = (
            {topic: source.sizes.get(topic, 0) for topic in wave.names} if source.sizes is not None else None
        )
        running = {
            flow: lag for flow in wave.topics if (lag := _lag_of(topology.flows[flow], graph)) is not None
        }
        copies = []  # of each flow that copies first: how long it takes, and how fast it copies
        for name, topics in wave.left.items():
            if name not in running:
                rate = copy_rate(topology.flows[name], ASSUMED_RATE)
                copies.append((sum((sizes or {}).get(topic, 0) for topic in topics) * 1000 // rate, rate))
        copy_ms, rate = max(copies, default=(0, ASSUMED_RATE))  # the flows copy at the same time
        size = sum(sizes.values()) if sizes is not None else None
        groups = [
            group for group, read in synced[wave.cutover.name].items() if not read.isdisjoint(wave.names)
        ]
        yield PlannedWave(
            cutover=wave.cutover.name,
            wave=wave.wave.name,
            source=source.name,
            fence=wave.cutover.fence,
            fenced=wave.wave.fenced,
            topics=len(wave.names),
            left=sum(map(len, wave.left.values())),
            partitions=sum(source.topics[topic].partitions for topic in wave.names if topic in source.topics),
            size=size,
            groups=tuple(sorted(groups)),
            rate=rate,
            behind=sum(running.values()) if running else None,
            copy_ms=copy_ms if sizes is not None else None,
        )


def _synced_groups(cutover: Cutover, graph: ReplicationGraph) -> dict[str, frozenset[str]]:
    """Returns the groups at the source that a flow of the cutover syncs, with the topics that they read.

    Groups in which flows commit never move.
    """
    source, own_groups = graph.cluster(source_of(cutover, graph.topology)), graph.topology.own_groups
    selectors = [graph.topology.flows[name].groups.selector for name in cutover.flows]
    return {
        group: topics
        for group, topics in ((source.group_topics or {}) if source is not None else {}).items()
        if group not in own_groups and any(selector.answer(group).taken for selector in selectors)
    }


def _lag_of(flow: Flow, graph: ReplicationGraph) -> int | None:
    """Returns the records that the job of a flow had not copied when it last reported; None if none runs."""
    destination = graph.cluster(flow.destination_cluster)
    job = destination.job(flow.job) if destination is not None else None
    return job.lag.get(flow.name) if job is not None and job.live else None


def cutovers(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields what is wrong with the waves that have not moved, and what their clients must know."""
    waves = live_waves(graph)
    for wave in waves:
        source = graph.cluster(source_of(wave.cutover, graph.topology))
        if wave.is_moved and not wave.wave.fenced:
            continue
        if wave.is_moved and (source is None or recorded_fence(wave, graph.topology, source.owned)):
            if source is not None and wave.cutover.fence is Fence.ACL:
                yield from _stopped_flows(wave, graph, source)
            continue
        if not wave.names:
            yield _about(
                warning,
                wave,
                f"the wave {wave.wave.name} has no topics: its patterns match none that the flows copy, or"
                " earlier waves take them",
                "correct its topics",
                "wave-empty",
            )
        yield from _groups_not_moved(wave, graph)
        if source is not None and wave.cutover.fence is Fence.ACL:
            yield from _fence_by_rules(wave, graph, source)
        if source is not None and wave.cutover.fence is Fence.QUOTA:
            yield from _fence_by_quotas(wave, graph, source)
    yield from _split_groups(waves, graph)
    yield from _shared_producers(waves)


def recorded_fence(
    wave: WaveTopics, topology: Topology, owned: Iterable[RegistryEntry]
) -> list[RegistryEntry]:
    """Returns what the registry of a source remembers of the fence of a wave: an apply has begun to make it.

    The quota of a producer may be remembered as a declared one, which it changes, or as the fence of another
    wave of the same producer. An entry of another wave counts for this wave too, as soon as this wave is
    `fenced`.
    """
    origin = wave.fenced_by.text
    limited = set(fence_addresses(wave, topology)) if wave.cutover.fence is Fence.QUOTA else set()
    return [
        entry
        for entry in owned
        if entry.origin == origin
        or (
            entry.address in limited
            and entry.limits.get(RATE) == FENCED_RATE
            and (wave.wave.fenced or not entry.is_fence)
        )
    ]


def is_fenced(
    wave: WaveTopics, topology: Topology, owned: Iterable[RegistryEntry], shown: Collection[str]
) -> bool:
    """Returns whether an apply has made the fence of a wave, or a part of it, and it is at the source.

    `shown` are the names of `fences_of` there. A rule that existed before the fence does not count, because
    no apply made it.
    """
    return any(entry.address.name in shown for entry in recorded_fence(wave, topology, owned))


def fences_of(
    fence: Fence, acls: Iterable[AclRule], quotas: Mapping[str, Mapping[str, float]]
) -> frozenset[str]:
    """Returns the names of the rules of a cluster, or of the entities that a fence limits there."""
    if fence is Fence.ACL:
        return frozenset(rule.name for rule in acls)
    return frozenset(entity for entity, limits in quotas.items() if limits.get(RATE) == FENCED_RATE)


def made_by_others(wave: WaveTopics, source: ObservedCluster) -> list[RegistryEntry]:
    """Returns the rules of a wave's fence that existed before the fence: they stay when it is removed."""
    origin = wave.fenced_by.text
    shown = fences_of(wave.cutover.fence, source.acls or (), source.quotas)
    return [
        entry
        for entry in source.owned
        if entry.origin == origin and not entry.created and entry.address.name in shown
    ]


def _fence_by_rules(
    wave: WaveTopics, graph: ReplicationGraph, source: ObservedCluster
) -> Iterator[Diagnostic]:
    if source.acls is None:
        if "acls" not in source.unreadable:
            yield _about(
                _severity(wave),
                wave,
                f"{source.name} has no authorizer, so fence: acl can't stop the producers of the wave"
                f" {wave.wave.name}",
                "write fence: quota and name the producers, or fence: none and stop them yourself",
                "fence-no-authorizer",
            )
        return
    yield from _stopped_flows(wave, graph, source)
    declared = graph.topology.clusters[source.name]
    rules = _rules_of_others(source)
    unread = [
        topic
        for topic in wave.names
        if not any(
            rule.permission == "ALLOW" and rule.operation in ("READ", "ALL") for rule in rules.of(topic)
        )
    ]
    if unread and not declared.allow_everyone_if_no_acl_found:
        yield _about(
            _severity(wave),
            wave,
            f"no rule at {source.name} lets anyone read {counted(unread)}. Either the brokers have"
            " allow.everyone.if.no.acl.found, and the fence would keep readers and the job off; or only super"
            " users write it, whom no rule stops",
            f"declare clusters.{source.name}.allow_everyone_if_no_acl_found: true where the brokers have it;"
            " else write fence: quota or none",
            "fence-readers",
        )


def _stopped_flows(
    wave: WaveTopics, graph: ReplicationGraph, source: ObservedCluster
) -> Iterator[Diagnostic]:
    """Yields a diagnostic where the rules of a wave would keep a job from copying into its topics."""
    into = sorted(
        {
            edge.flow
            for edge in graph.live.edges
            if edge.destination.cluster == source.name and edge.destination.topic in wave.names
        }
    )
    if into and stops_jobs(wave, graph.topology):
        yield _about(
            _severity(wave),
            wave,
            f"the fence of the wave {wave.wave.name} would stop {counted(into, 'flow')}, which copies into"
            f" its topics at {source.name}",
            "promote or pause that flow first; or name the producers of the wave, and clusters."
            f"{source.name}.principal; once the wave has moved, take its key fenced out",
            "fence-stops-flow",
        )


def stops_jobs(wave: WaveTopics, topology: Topology) -> bool:
    """Returns whether the rules of a wave's fence would keep a job from writing its topics at the source."""
    job = job_principal(topology.clusters[source_of(wave.cutover, topology)])
    everyone = not wave.wave.producers or job is None
    return wave.cutover.fence is Fence.ACL and (everyone or job in wave.wave.producers)


def _severity(wave: WaveTopics) -> Callable[..., Diagnostic]:
    """Returns how a fence that can't work is reported: a wave that is not fenced keeps no other plan off."""
    return error if wave.wave.fenced else warning


def _fence_by_quotas(
    wave: WaveTopics, graph: ReplicationGraph, source: ObservedCluster
) -> Iterator[Diagnostic]:
    job = job_principal(graph.topology.clusters[source.name])
    declared = {quota.entity for quota in graph.topology.quotas if quota.cluster == source.name}
    made = {entry.address.name for entry in source.owned if entry.is_fence}
    for producer, entity in zip(wave.wave.producers, wave.wave.limited, strict=True):
        if producer == job:
            yield _about(
                _severity(wave),
                wave,
                f"{producer} is the principal of the jobs at {source.name}: the fence would stop them",
                "name the producers of the wave alone",
                "fence-stops-flow",
            )
        if outranking := sorted(
            name
            for name, limits in source.quotas.items()
            if RATE in limits and outranks(QuotaEntity.named(name), entity)
        ):
            yield _about(
                warning,
                wave,
                f"Kafka applies the quotas {few(outranking)} of {source.name} before the one of {entity}:"
                " where they apply, the fence does not stop the producers",
                "remove them while the wave moves, or name their users and client ids as producers",
                "fence-outranked",
            )
        if source.quotas.get(entity.name) and entity not in declared and entity.name not in made:
            yield _about(
                _severity(wave),
                wave,
                f"{entity} has a quota at {source.name} that this topology does not declare: the fence could"
                " not restore it",
                "declare it under quotas",
                "fence-overwrites",
            )


def outranks(other: QuotaEntity, fenced: QuotaEntity) -> bool:
    """Returns whether Kafka may apply another entity's quota to a producer in place of the fenced one's.

    It applies that of a user with a client id first, then that of a user, then that of a client id.
    """
    if other.user is None or other.ip is not None:
        return False
    if fenced.user is not None:
        return other.client_id is not None and other.user == fenced.user
    return other.client_id in (None, DEFAULT_ENTITY, fenced.client_id)


def _groups_not_moved(wave: WaveTopics, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    if not wave.wave.groups:
        return
    for flow in sorted(wave.left):
        declared = graph.topology.flows[flow]
        if not declared.groups.sync:
            yield _about(
                warning,
                wave,
                f"flow.{flow} has groups: {{sync: false}}: no group of the wave {wave.wave.name} is moved,"
                " and its consumers begin at the destination as auto.offset.reset says",
                f"write groups: {{sync: true}} for flow {flow}",
                "wave-groups",
            )


def _split_groups(waves: Sequence[WaveTopics], graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Warns of groups that read topics of two waves: their consumers would need both clusters at once."""
    for cutover in graph.topology.cutovers:
        of_cutover = [wave for wave in waves if wave.cutover.name == cutover.name]
        for wave, named, groups in _split(of_cutover, _synced_groups(cutover, graph)):
            yield _about(
                warning,
                wave,
                f"topics of the waves {named} are read by {counted(groups, 'group')}: after the first wave"
                " its consumers need both clusters",
                "put the topics that a group reads into one wave",
                "wave-splits-group",
            )


def _shared_producers(waves: Sequence[WaveTopics]) -> Iterator[Diagnostic]:
    """Warns of producers of two waves that a quota stops: it is for all topics that they write."""
    for cutover in {wave.cutover.name: wave.cutover for wave in waves}.values():
        if cutover.fence is not Fence.QUOTA:
            continue
        of_cutover = [wave for wave in waves if wave.cutover.name == cutover.name]
        named: dict[str, list[WaveTopics]] = defaultdict(list)
        for wave in of_cutover:
            for producer in wave.wave.producers:
                named[producer].append(wave)
        for producer, shared in sorted(named.items()):
            left = [wave for wave in shared if not wave.is_moved]
            if len(shared) > 1 and left:
                yield _about(
                    warning,
                    left[0],
                    f"{producer} is a producer of {' and '.join(wave.wave.name for wave in shared)}:"
                    " the quota of the first of these waves stops it for the topics of all",
                    "put the topics that a producer writes into one wave",
                    "wave-splits-producer",
                )


def split_transactions(
    waves: Sequence[WaveTopics], written: Mapping[str, Collection[str]]
) -> Iterator[Diagnostic]:
    """Warns of producers that write topics of two waves in transactions: none can span two clusters.

    `waves` are those of one cutover, and `written` the topics of each transactional id.
    """
    for wave, named, ids in _split(waves, written):
        yield _about(
            warning,
            wave,
            f"topics of the waves {named} are written by {counted(ids, 'transactional id')}: no transaction"
            " can span two clusters",
            "put the topics that a producer writes in one transaction into one wave",
            "wave-splits-transaction",
        )


def _split(
    waves: Sequence[WaveTopics], used: Mapping[str, Collection[str]]
) -> Iterator[tuple[WaveTopics, str, list[str]]]:
    """Yields who uses topics of several waves: a wave that has not moved, the names of all, and the users."""
    wave_of = {topic: wave.wave.name for wave in waves for topic in wave.names}
    split: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for user, topics in used.items():
        names = {wave_of[topic] for topic in topics if topic in wave_of}
        if len(names) > 1:
            split[tuple(sorted(names))].append(user)
    for named, users in sorted(split.items()):
        left = [wave for wave in waves if wave.wave.name in named and not wave.is_moved]
        if left:
            yield left[0], " and ".join(named), users


def _about(
    build: Callable[..., Diagnostic], wave: WaveTopics, summary: str, hint: str, code: str
) -> Diagnostic:
    return build(summary, hint, address=f"cutover.{wave.cutover.name}", source=wave.wave.source, code=code)


def fence_addresses(wave: WaveTopics, topology: Topology) -> list[Address]:
    """Returns the addresses of the ACLs or quotas that fence a wave."""
    source = source_of(wave.cutover, topology)
    match wave.cutover.fence:
        case Fence.ACL:
            rules: list[AclRule] = [
                denial(source, topic, principal)
                for topic in wave.names
                for principal in wave.wave.producers or (EVERYONE,)
            ]
            return [Address(Kind.ACL, source, rule.name) for rule in rules]
        case Fence.QUOTA:
            return [Address(Kind.QUOTA, source, entity.name) for entity in wave.wave.limited]
        case Fence.NONE:
            return []
