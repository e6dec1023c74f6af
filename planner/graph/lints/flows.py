"""Lints of flows and jobs: their states, what a flow includes, and what both sides' Kafka versions lack.

A job has one destination, and its Spark ports have a shared secret. A reverse flow fits its original. Guards
judge the transitions of states later. Flows into files: what a job can run, and what is written twice.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from planner.graph.messages import counted, flow_diagnostic, flow_refused, listed, nearest
from planner.graph.replication_graph import ReplicationGraph, TopicNode
from planner.graph.topics import DesiredTopics
from planner.model.address import job_address
from planner.model.desired import Declared
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.observed import FEATURE_SHARE, SHARE, STREAMS, BrokerFeature, ObservedCluster
from planner.model.topology import Flow, Job, Topology, at_home
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.selection import NamePatterns, SelectionResult, written_out
from runtime.contract.spec.topic_settings import NEVER, lacks

_SECURED = ("spark.authenticate", "spark.network.crypto.enabled")


def jobs(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for a job with several destinations: a transaction can't span clusters."""
    destinations: dict[str, dict[str, str]] = {}
    for flow in sorted(topology.flows.values(), key=lambda declared: declared.name):
        destinations.setdefault(flow.job, {}).setdefault(flow.destination_cluster, flow.name)
    for name, flow_into in sorted(destinations.items()):
        if len(flow_into) > 1:
            (cluster, first), (other, second), *_ = flow_into.items()
            yield error(
                f"job {name} would write to {cluster} (flow.{first}) and to {other} (flow.{second}): a job"
                " has one destination",
                f"give flow.{second} another job, or leave out job: the flow then runs in job {other}",
                address=str(job_address(name)),
                source=topology.flows[second].source,
                code="job-destinations",
            )
    for job in sorted(topology.jobs.values(), key=lambda declared: declared.name):
        yield from _unauthenticated(job)


def _unauthenticated(job: Job) -> Iterator[Diagnostic]:
    """Warns about Spark ports without authentication: whatever connects to them may run code in the job."""
    settings = {key: value.strip().lower() for key, value in job.conf.items()}
    off = [key for key in _SECURED if settings.get(key, "true") == "false"]
    if off:
        yield warning(
            f"{' and '.join(off)}: off; anything that connects to the ports of its driver and executors can "
            "read their data and run code in them",
            "remove it from conf; on a standalone cluster give Master, Workers and the job's machine "
            "a secret (docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-unauthenticated",
        )
    elif job.launcher == "standalone" and "spark.authenticate" not in settings:
        yield note(
            "the job starts only where spark-defaults.conf holds the secret of its standalone cluster",
            "write conf: {spark.authenticate: true} once Master, Workers and the job's machine have it "
            "(docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-secret",
        )


def states(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each reverse flow that does not fit its original."""
    first: dict[str, str] = {}
    for flow in sorted(topology.flows.values(), key=lambda declared: declared.name):
        if flow.reverse_of is None:
            continue
        original = topology.flows[flow.reverse_of]
        yield from _pair(flow, original)
        if flow.reverse_of in first:
            yield flow_refused(
                flow,
                f"flow.{flow.name} reverses {flow.reverse_of}, as {first[flow.reverse_of]} does already",
                "keep one of them",
                "reverse-twice",
            )
        first.setdefault(flow.reverse_of, flow.name)


def _pair(flow: Flow, original: Flow) -> Iterator[Diagnostic]:
    """Checks one reverse flow against its original."""
    if original.reverse_of is not None:
        yield flow_refused(
            flow,
            f"flow.{flow.name} reverses {original.name}, which is a reverse flow itself",
            f"to fail over again, set the state of {original.reverse_of}",
            "reverse-of-reverse",
        )
    if original.runs and flow.runs:
        yield flow_refused(
            flow,
            f"flow.{flow.name} reverses {original.name} while that is {original.state}: each would copy what"
            " the other wrote",
            f"set {original.name} to promoted or failed_over, or, once all records are copied back, set"
            " this flow to promoted",
            "reverse-running",
        )


def selections(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields warnings for flows whose source could be read."""
    at: dict[str, list[str]] = {}
    for node in sorted(graph.live.nodes):
        at.setdefault(node.cluster, []).append(node.topic)
    for flow in graph.flows:
        if flow.runs and flow.reverse_of not in graph.topology.flows:
            yield from _unmatched(flow, graph, at.get(flow.source_cluster, []))
        yield from _left_out(flow, graph)


def reserved_names(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for each flow that writes out a reserved topic."""
    for flow in graph.topology.flows.values():
        named = [name for entry in flow.topics.include if (name := written_out(entry)) is not None]
        reserved = [name for name in named if is_reserved(name)]
        if reserved:
            yield flow_diagnostic(
                error,
                flow,
                f"{counted(reserved)} can't be copied: the name is reserved",
                "remove it from include; group offsets and heartbeats are copied without it",
                "reserved-topic",
            )


def _unmatched(flow: Flow, graph: ReplicationGraph, topics: Sequence[str]) -> Iterator[Diagnostic]:
    for entry in flow.topics.include:
        name = written_out(entry)
        if name is not None and is_reserved(name):
            continue
        if name is not None and TopicNode(flow.source_cluster, name) in graph.live.nodes:
            continue
        if _matches_any(NamePatterns((entry,)), topics):
            continue
        close = nearest(entry, topics)
        meant = f"did you mean {close}? " if close is not None else ""
        later = "is found as soon as it appears" if flow.follow_every_ms else "is found by the next apply"
        if name is not None:
            yield flow_diagnostic(
                warning,
                flow,
                f"there is no topic {name} at {flow.source_cluster}",
                f"{meant}it {later}; until then nothing of it is copied",
                "absent-topic",
            )
        else:
            yield flow_diagnostic(
                warning,
                flow,
                f"{entry!r} matches no topic of {flow.source_cluster}",
                f"{meant}a regex matches whole names; a topic that fits {later}",
                "include-matches-nothing",
            )


def _matches_any(patterns: NamePatterns, topics: Sequence[str]) -> bool:
    """Returns whether any of the sorted topics matches. Only those are tried that begin as the regex does."""
    for prefix in patterns.prefixes:
        at = bisect_left(topics, prefix)
        while at < len(topics) and topics[at].startswith(prefix):
            if patterns.match(topics[at]):
                return True
            at += 1
    return False


def _left_out(flow: Flow, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    hidden = graph.live.left_out.get((flow.name, SelectionResult.DENIED))
    if hidden:
        yield flow_diagnostic(
            warning,
            flow,
            f"include matches {counted(hidden)} of {flow.source_cluster}, which the default denials exclude",
            "to copy a topic, write its name under include, or set default_exclude: false;"
            " to silence this, name it under exclude",
            "hidden-by-default",
        )
    returning = graph.live.left_out.get((flow.name, SelectionResult.RETURNS))
    if returning:
        yield flow_diagnostic(
            note,
            flow,
            f"not copied back: {counted(returning)} of {flow.source_cluster}, mirrored from"
            f" {flow.destination_cluster}",
            "to copy a topic all the same, write its name under include",
            "comes-back",
        )


def groups_without_data(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for a named group that reads only topics which the flow does not copy.

    Such a group would never get an offset.
    """
    for flow, copied, cluster in _syncing(graph):
        read, named = cluster.group_topics or {}, flow.groups.selector.written_out
        lost = [group for group in named if read.get(group) and not copied & read[group]]
        if lost:
            topics = sorted({topic for group in lost for topic in read[group]})
            yield flow_diagnostic(
                error,
                flow,
                f"group sync without data: the flow copies no topic that {counted(lost, 'group')} committed"
                f" offsets for: {listed(topics)}",
                "include these under topics, or remove the group from groups",
                "group-without-data",
            )


def hidden_groups(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields a note about groups that read copied topics and are kept out by the default denials."""
    for flow, copied, cluster in _syncing(graph):
        selector = flow.groups.selector
        hidden = [
            group
            for group, topics in (cluster.group_topics or {}).items()
            if topics & copied and selector.answer(group) is SelectionResult.DENIED
        ]
        if hidden:
            yield flow_diagnostic(
                note,
                flow,
                f"groups match {counted(hidden, 'group')}, which the default denials exclude:"
                " no offset is synced",
                "to sync a group, write its name under groups, or set default_exclude: false there;"
                " to silence this, name it under exclude",
                "group-hidden-by-default",
            )


def share_groups(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Says what becomes of the positions of share groups when a flow ends."""
    for flow, groups in _of_kind(SHARE, graph):
        which = f"of share group{'s' if len(groups) > 1 else ''} {listed(groups)}"
        clusters = map(graph.cluster, flow.ends)
        lacks = next(
            (
                f"broker {lack.broker} of {cluster.name} can't tell or set them ({lack.why})"
                for cluster in clusters
                if cluster is not None and (lack := cluster.lack(FEATURE_SHARE))
            ),
            "",
        )
        if lacks:
            yield flow_diagnostic(
                warning,
                flow,
                f"start offsets {which} do not move to {flow.destination_cluster}: {lacks}",
                "upgrade it to Kafka 4.2 or newer; to silence this, name the group under exclude of groups",
                "share-groups-stay",
            )
        else:
            yield flow_diagnostic(
                note,
                flow,
                f"start offsets {which} move to {flow.destination_cluster}: records behind a start offset are"
                " delivered again there, also acknowledged ones",
                "",
                "share-groups",
            )


def streams_groups(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields a note about streams groups: their offsets follow, their state does not follow by itself."""
    for flow, groups in _of_kind(STREAMS, graph):
        yield flow_diagnostic(
            note,
            flow,
            f"offsets of streams group{'s' if len(groups) > 1 else ''} {listed(groups)} move to"
            f" {flow.destination_cluster} like those of consumer groups; state is in changelog topics, which"
            " follow only where a flow copies them",
            "",
            "streams-groups",
        )


def _of_kind(kind: str, graph: ReplicationGraph) -> Iterator[tuple[Flow, Sequence[str]]]:
    """Yields flows that sync groups of a kind which read copied topics, with those groups."""
    for flow, copied, cluster in _syncing(graph):
        selector = flow.groups.selector
        reading = sorted(
            group
            for group, topics in cluster.group_kinds.get(kind, {}).items()
            if topics & copied and selector.answer(group).taken
        )
        if reading:
            yield flow, reading


def _syncing(graph: ReplicationGraph) -> Iterator[tuple[Flow, frozenset[str], ObservedCluster]]:
    """Yields flows that sync groups, with their copied topics and their source."""
    for flow in graph.flows:
        cluster = graph.cluster(flow.source_cluster)
        if cluster is not None and flow.groups.sync and flow.runs:
            copied = frozenset(edge.source.topic for edge in graph.live.by_flow.get(flow.name, ()))
            yield flow, copied, cluster


def flows_without_topics(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for a flow that syncs groups and can never take a topic."""
    for flow in graph.topology.flows.values():
        route = graph.router.routes[flow.name]
        if flow.groups.sync and not route.open_ended and not route.written_out:
            yield flow_diagnostic(
                error,
                flow,
                "group sync without data: every included topic is excluded or reserved",
                "include the topics that the groups read, or set groups: {sync: false}",
                "group-without-data",
            )


def missing_features(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Says of each flow what a cluster of it lacks: an error where the flow could not run."""
    for flow in graph.flows:
        if not flow.runs:
            continue
        for name, is_source in ((flow.source_cluster, True), (flow.destination_cluster, False)):
            cluster = graph.cluster(name)
            for lack in cluster.lacking if cluster is not None else ():
                consequence = lack.as_source if is_source else lack.as_destination
                if consequence and (flow.groups.sync or not lack.for_groups):
                    yield _lacking(flow, name, lack, consequence)


def _lacking(flow: Flow, cluster: str, lack: BrokerFeature, consequence: str) -> Diagnostic:
    needed = lack.required
    return flow_diagnostic(
        error if needed else note,
        flow,
        f"broker {lack.broker} of {cluster} lacks {lack.name} (Kafka {lack.since}):"
        f" {consequence} ({lack.why})",
        f"upgrade {cluster} to Kafka {lack.since} or newer" if needed else "",
        code="version-required" if needed else "version-lacks",
    )


def missing_settings(wanted: DesiredTopics, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Says which settings of topics the version of a cluster lacks."""
    for topic in wanted.desired:
        cluster = graph.cluster(topic.cluster)
        if cluster is None or not isinstance(topic.origin, Declared):
            continue
        lacking = sorted(key for key in topic.config.keys() - topic.mirrored if lacks(cluster.defaults, key))
        if lacking:
            yield error(
                f"{counted(lacking, 'setting')} is unknown to the version of Kafka at {topic.cluster}",
                "take it out of config of the topic",
                address=str(topic.address),
                source=topic.source,
                code="setting-unknown",
            )
    for flow in graph.flows:
        there = graph.cluster(flow.destination_cluster)
        sources = {edge.source for edge in graph.live.by_flow.get(flow.name, ())}
        settings = [wanted.settings[node] for node in sources if node in wanted.settings]
        explicit = {key for topic in settings for key in topic.explicit} - NEVER
        left_out = {key for key in explicit if lacks(there.defaults if there is not None else {}, key)}
        if left_out:
            yield flow_diagnostic(
                note,
                flow,
                f"{counted(left_out, 'setting')} of its topics at {flow.source_cluster} is unknown to the"
                f" version of Kafka at {flow.destination_cluster}: mirrors go without",
                "",
                code="setting-left-out",
            )


def endpoints(topology: Topology) -> Iterator[Diagnostic]:
    """Yields the lints of all endpoints and of the flows that go to them."""
    flows = [flow for _, flow in sorted(topology.file_flows.items())]
    used = {flow.source_cluster if flow.from_files else flow.destination_cluster for flow in flows}
    for name, endpoint in sorted(topology.endpoints.items()):
        if name not in used:
            yield warning(
                f"no flow goes to the endpoint {name}, and none comes from it",
                "name it in the to or the from of a flow, or remove it",
                source=endpoint.source,
                code="unused-endpoint",
            )
    yield from _jobs_of_files(topology, flows)
    yield from _written_twice([flow for flow in flows if not flow.from_files])


def _jobs_of_files(topology: Topology, flows: list[Flow]) -> Iterator[Diagnostic]:
    """Yields an error for a job that can't have a home, or that has slots for another kind of flow."""
    first: dict[str, Flow] = {}
    others = {flow.job: name for name, flow in sorted(topology.flows.items())}
    for flow in flows:
        home = first.setdefault(flow.job, flow)
        if flow.job in others:
            yield error(
                f"job {flow.job} would run flow.{flow.name} with files, and flow.{others[flow.job]} between"
                " clusters",
                f"give flow.{flow.name} a job of its own: job: {flow.name}-files",
                address=str(job_address(flow.job)),
                source=flow.source,
                code="job-of-files",
            )
        elif (cluster := at_home(home).source_cluster) != (other := at_home(flow).source_cluster):
            yield error(
                f"job {flow.job} would be at home at {cluster} (flow.{home.name}) and at {other}"
                f" (flow.{flow.name}): its internal topics are at one cluster",
                f"give flow.{flow.name} another job: job: {flow.name}-files",
                address=str(job_address(flow.job)),
                source=flow.source,
                code="job-of-files",
            )


def _written_twice(flows: list[Flow]) -> Iterator[Diagnostic]:
    """Warns of two flows that write the same topic of the same cluster to one endpoint."""
    first: dict[tuple[str, str, str], str] = {}
    for flow in flows:
        for pattern in flow.topics.include:
            key = flow.destination_cluster, flow.source_cluster, pattern
            other = first.setdefault(key, flow.name)
            if other != flow.name:
                yield flow_diagnostic(
                    warning,
                    flow,
                    f"flow.{other} and flow.{flow.name} both write {pattern} of {flow.source_cluster} to"
                    f" {flow.destination_cluster}: a reader of the folder sees its records twice",
                    "let one of them take it, or give one an endpoint of its own",
                    "written-twice",
                )
