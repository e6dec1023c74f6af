"""`repl restore`: a backup in raw files → the plan that brings it back into a cluster → its execution."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from planner.graph.jobs import destination_spec
from planner.graph.messages import few
from planner.model.address import topic_address
from planner.model.diagnostic import Diagnostic, ExitCode, error, note, warning
from planner.model.observed import (
    SCHEMAS,
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
)
from planner.model.plan import ApplyResult, Mode, Plan
from planner.model.restore import RestoredBackup, RestoredGroup, RestoredSubject, RestoredTopic
from planner.model.topology import AclRule, Cluster, Topology
from planner.observe.cluster import ReadOptions
from planner.plan.restore import HELD, WITHOUT_RETENTION, fitting
from planner.plan.steps.topics import CreateTopic
from planner.state.internal_topics import read_registry
from planner.workflows.applying.apply import execute
from planner.workflows.audit.access import answered
from planner.workflows.edge import Workflow
from planner.workflows.flows.backups import RequestedBackup, time_text
from planner.workflows.flows.restored_schemas import RestoredSchemas
from planner.workflows.interaction import UNATTENDED, Interaction, ProgressHandler, silent
from planner.workflows.observing import answering, read_clusters
from planner.workflows.plans import plan_now, with_broker_refusals
from planner.workflows.preflight import check_allowed, schema_registries
from planner.workflows.requests import RestoreBackupRequest
from planner.workflows.topology import cluster_of, endpoint_of, load_and_lint
from runtime.contract.records.manifest import BackupState, Snapshot, SnapshotOffset, SnapshotTopic
from runtime.contract.spec.files import plain_folder
from runtime.contract.spec.naming import illegal_because, is_internal
from runtime.contract.spec.selection import regex
from runtime.contract.spec.topic_settings import supported
from runtime.files.backup import PartitionCut
from runtime.replay.restore_target import restore_targets
from runtime.replay.target import TargetTopic

_TOPIC = "{topic}"


@Workflow
async def restore(request: RestoreBackupRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Plans a restore, asks, and carries it out."""
    plan = await plan_restore.coroutine(request, interaction.progress)
    return await execute(plan, request, interaction)


@Workflow
async def plan_restore(request: RestoreBackupRequest, progress: ProgressHandler = silent) -> Plan:
    """Returns the plan of a restore. Nothing is written to the backup or the cluster.

    Failure: the backup can't be read or trusted, holds none of the topics that the request names, or the
    cluster does not answer. What is not allowed is an error of the plan.
    """
    loaded = load_and_lint(request)
    topology = loaded.topology
    check_allowed(topology)
    endpoint, cluster = endpoint_of(topology, request.endpoint), cluster_of(topology, request.to)
    backup = RequestedBackup(endpoint, request.flow, request.topics, request.until_ms)
    subjects = frozenset(backup.schemas.every_version())
    details = ClusterDetailsRequest(acls=request.acls, subjects=subjects)
    wanted = {cluster.name: details} if request.acls or subjects else {}
    registries = schema_registries(topology, Path.cwd(), restored=cluster.name) if subjects else {}
    options = ReadOptions(read_registry=read_registry, registries=registries)
    observed = await read_clusters(
        {cluster.name: cluster}, request.timeout_s, lambda _: wanted, progress, options
    )
    (live,) = answering(observed)
    return await _Planned(topology, cluster, request, backup, observed, live).plan()


class _Planned:
    """Makes the plan of a restore from what was read of the backup and of the cluster."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        request: RestoreBackupRequest,
        read: RequestedBackup,
        observed: Observed,
        live: ObservedCluster,
    ) -> None:
        self._topology, self._cluster, self._request = topology, cluster, request
        self._read, self._observed, self._live = read, observed, live
        self._names = {name: request.rename.replace(_TOPIC, name) for name in read.topics}
        self._renamed = any(name != into for name, into in self._names.items())
        self._until = time_text(request.until_ms) if request.until_ms is not None else ""
        self._found: list[Diagnostic] = []

    async def plan(self) -> Plan:
        request, read = self._request, self._read
        self._check_names()
        sources = {into: read.topics[name].topic_id for name, into in self._names.items()}
        spec = destination_spec(self._cluster, Path.cwd())
        existing = await answered(
            restore_targets(spec, self._cluster.name, read.backup.flow, sources, request.timeout_s)
        )
        backup = RestoredBackup(
            read.endpoint.name,
            BackupState(
                folder=plain_folder(read.endpoint.folder),
                flow=read.backup.flow,
                commit=read.backup.commit,
                digest=read.backup.digest,
                client=read.client,
            ),
            self._until,
            self._cluster.name,
            supported(HELD, self._live.defaults),
            tuple(self._topic(name, existing) for name in sorted(read.topics)),
            tuple(self._groups()),
            tuple(self._acls()),
            self._subjects(),
            translated=request.schema_ids == "translate",
        )
        diagnostics = tuple(self._found)
        plan = plan_now(Mode.RESTORE, self._topology, self._observed, backup=backup, diagnostics=diagnostics)
        return plan if plan.errored else await self._verified(plan, backup.topics)

    async def _verified(self, plan: Plan, topics: Iterable[RestoredTopic]) -> Plan:
        """Returns the plan with the broker's objections to the topics as they are in the end."""
        configs = {topic.name: dict(topic.config) for topic in topics}
        creates = tuple(
            structs.replace(step, config=configs[step.topic])
            for step in plan.steps
            if isinstance(step, CreateTopic)
        )
        judged = await with_broker_refusals(replace(plan, steps=creates), self._request.timeout_s)
        return replace(judged, steps=plan.steps)

    def _check_names(self) -> None:
        for name, into in sorted(self._names.items()):
            why = illegal_because(into)
            if why is None and is_internal(into):
                why = f"{into} is a name of repl's own topics"
            if why is not None:
                self._refuse(
                    into, f"{name} can't be restored as {into}: {why}", "choose another --prefix or --rename"
                )

    def _refuse(self, topic: str, what: str, hint: str) -> None:
        self._found.append(
            error(what, hint, address=self._address(topic), code="restore", exit=ExitCode.REFUSED)
        )

    def _warn(self, topic: str, what: str, hint: str) -> None:
        """Warns of a topic, or of the whole restore where none is named."""
        diagnostic = warning(what, hint, address=self._address(topic), code="restore")
        if diagnostic not in self._found:
            self._found.append(diagnostic)

    def _address(self, topic: str) -> str | None:
        return str(topic_address(self._cluster.name, topic)) if topic else None

    def _topic(self, name: str, existing: Mapping[str, TargetTopic]) -> RestoredTopic:
        into, lineage, cuts = self._names[name], self._read.topics[name], self._read.cuts[name]
        in_snapshot = self._read.known[name]
        described = in_snapshot[1] if in_snapshot is not None else None
        partitions = max(lineage.partitions, described.partitions if described is not None else 0)
        ends = tuple(cuts[number].end if number in cuts else 0 for number in range(partitions))
        live = existing.get(into)
        if live is not None:
            self._check_existing(into, live, partitions)
        config, replication = self._settings(into, described)
        if live is None:
            self._check_retention(into, config, cuts.values())
        gaps = [
            f"{name}-{number}: the offsets {gap.low} to {gap.end - 1}"
            for number, position in sorted(lineage.positions.items())
            for gap in position.gaps
            if gap.low < ends[number]
        ]
        if gaps:
            self._warn(
                into,
                f"records are not in the backup: {few(gaps)} ({lineage.name})",
                "they were lost before they were copied",
            )
        others = len(self._read.backup.lineages[name]) - 1
        notes = (
            [f"the topic was made again at its source: the backup holds {others} other topics of this name"]
            if others
            else []
        )
        return RestoredTopic(
            name=into,
            source=name,
            source_id=lineage.topic_id,
            partitions=partitions,
            replication=replication,
            config=config,
            ends=ends,
            records=sum(partition.records for partition in cuts.values()),
            exists=live is not None,
            notes=tuple(notes),
        )

    def _check_existing(self, into: str, live: TargetTopic, partitions: int) -> None:
        if live.foreign:
            self._refuse(
                into,
                f"it exists and holds records ({live.foreign})",
                "restore beside it with --prefix or --rename, or delete it first",
            )
        elif live.partitions != partitions:
            self._refuse(
                into,
                f"it exists with {live.partitions} partitions, and the backup has {partitions}",
                "restore beside it with --prefix or --rename, or delete it first",
            )
        elif live.restored:
            continues = f"{into} holds a part of this restore, which continues"
            self._found.append(note(continues, address=self._address(into)))
        else:
            self._warn(
                into,
                "it exists and is empty: its settings stay as they are",
                "delete it to restore those of the backup",
            )

    def _settings(self, into: str, described: SnapshotTopic | None) -> tuple[dict[str, str], int | None]:
        """Returns the settings and the replication of a topic, as far as this cluster can have them."""
        if described is None:
            self._warn(
                into,
                "no snapshot of the backup describes it: it gets the cluster's own settings",
                "set what it needs after the restore",
            )
            config: dict[str, str] = {}
            replication = None
        else:
            config = fitting(described.config, self._live.defaults)
            if left := sorted(set(described.config) - set(config)):
                self._warn(into, f"{self._cluster.name} has no setting {few(left)}", "these are left out")
            replication = min(described.replication, len(self._live.brokers))
            if replication < described.replication:
                self._warn(
                    into,
                    f"{described.replication} replicas in the backup, {self._cluster.name} has"
                    f" {replication} brokers",
                    "add brokers, then raise its replication",
                )
                least = config.get("min.insync.replicas", "")
                if least.isdecimal() and int(least) > replication:
                    config["min.insync.replicas"] = str(replication)
        if not self._request.retention:
            config |= WITHOUT_RETENTION
        return dict(sorted(config.items())), replication

    def _check_retention(self, into: str, config: Mapping[str, str], cuts: Iterable[PartitionCut]) -> None:
        """Warns of records that the broker deletes as soon as the topic has its own retention."""
        if "delete" not in config.get("cleanup.policy", self._live.defaults.get("cleanup.policy", "delete")):
            return
        kept = config.get("retention.ms", self._live.defaults.get("retention.ms", "-1"))
        newest = [partition.last_timestamp for partition in cuts if partition.last_timestamp >= 0]
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        lasts_ms = int(kept) if kept.isdecimal() and len(kept) < 20 else None  # a broker judges other texts
        if newest and lasts_ms is not None and min(newest) < now_ms - lasts_ms:
            self._warn(
                into,
                "records are older than its retention: the broker deletes them after the restore",
                "keep them with --no-retention",
            )

    def _groups(self) -> Iterator[RestoredGroup]:
        """Yields the groups, with the offsets of the snapshot that also describes the topic."""
        request = self._request
        if request.groups is None and self._renamed:
            return
        wanted = regex(request.groups or ".*")
        offsets: dict[str, list[SnapshotOffset]] = defaultdict(list)
        taken: dict[str, int] = {}
        late: set[str] = set()
        for name, into in sorted(self._names.items()):
            in_snapshot = self._read.known[name]
            if in_snapshot is None:
                continue
            snapshot, _ = in_snapshot
            if request.until_ms is not None and snapshot.at_ms > request.until_ms:
                late.add(name)
                continue
            self._check_unread(snapshot)
            ends = self._read.cuts[name]
            for offset in snapshot.offsets:
                if offset.topic != name or not wanted.matches(offset.group) or offset.partition not in ends:
                    continue
                offsets[offset.group].append(structs.replace(offset, topic=into))
                taken[offset.group] = max(taken.get(offset.group, 0), snapshot.at_ms)
        if late:
            self._warn(
                "",
                f"no snapshot is as old as {self._until}: no group gets offsets in {few(sorted(late))}",
                "set them by hand, for example with kafka-consumer-groups --reset-offsets --to-datetime",
            )
        for group, group_offsets in sorted(offsets.items()):
            yield RestoredGroup(group, tuple(group_offsets), time_text(taken[group]))

    def _subjects(self) -> tuple[RestoredSubject, ...]:
        """Returns the subjects of the topics, and those that they refer to, with what the cluster lacks."""
        flow = self._topology.file_flows.get(self._read.backup.flow)
        wanted = RestoredSchemas(
            self._read.schemas,
            self._names,
            synced=flow is not None and flow.schemas.sync,
            translated=self._request.schema_ids == "translate",
        )
        registry = self._cluster.name in self._topology.registries
        self._found += wanted.diagnostics(self._live, registry=registry)
        readable = registry and SCHEMAS not in self._live.unreadable
        return tuple(wanted.missing(self._live)) if readable else ()

    def _check_unread(self, snapshot: Snapshot) -> None:
        for what, why in sorted(snapshot.unread.items()):
            hint = "give the principal of the backup's job the rights of docs/restore.md"
            if what == "share groups":
                hint = "set them by hand, for example with kafka-share-groups.sh --reset-offsets"
            if what != "acls" or self._request.acls:
                self._warn("", f"the snapshot of {time_text(snapshot.at_ms)} lacks {what}: {why}", hint)

    def _acls(self) -> Iterator[AclRule]:
        """Yields the rules of the restored topics that the cluster lacks."""
        if not self._request.acls:
            return
        if self._live.acls is None:
            what = f"{self._cluster.name} has no authorizer: ACLs are left out"
            self._warn("", what, "set authorizer.class.name on its brokers to use them")
            return
        wanted: set[AclRule] = set()
        wide: set[str] = set()
        for name, in_snapshot in sorted(self._read.known.items()):
            for acl in (in_snapshot[0].acls or ()) if in_snapshot is not None else ():
                rule = AclRule(self._cluster.name, "TOPIC", **structs.asdict(acl))
                if not rule.covers(name):
                    continue
                if rule.pattern == "LITERAL" and rule.resource == name:
                    wanted.add(replace(rule, resource=self._names[name]))
                elif not self._renamed:
                    wanted.add(rule)
                else:
                    wide.add(rule.name)
        if wide:
            what = f"topics are renamed, so rules on more than one topic are left out: {few(sorted(wide))}"
            self._warn("", what, "make rules for the new names by hand")
        yield from sorted(wanted - set(self._live.acls))
