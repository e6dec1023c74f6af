"""The scratch topology of a live drill: short-lived copies of the flows, in topics that only the drill has.

Every name holds the drill's run: `__drill.RUN.FLOW` is a flow's scratch topic, at both sides, and its group.
Two records name the runs: a file beside the topology's jobs, written before anything is made, and the
registry of each cluster, in which the scratch topology owns its topics. Only what has the name of such a run
is ever removed, so a drill that was killed is cleaned up by the next one.
"""

import datetime
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from planner.graph.routes import route_of
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run_at
from planner.kafka import run as run_workflow
from planner.kafka.librdkafka import admin, error_of, explain
from planner.kafka.log import LogWriter, compacted, read
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.plan import ApplyResult, Mode, Plan
from planner.model.step import Result, Step
from planner.model.topology import Flow, Job, OnRemove, Policies, Selection, Topic, Topology
from planner.plan.steps.jobs import StopJob
from planner.plan.steps.registry import Disown
from planner.plan.steps.topics import DeleteTopic
from planner.state.internal_topics import read_registry
from planner.workflows.applying.apply import execute, launchers
from planner.workflows.audit.access import answered, endpoints_of
from planner.workflows.interaction import UNATTENDED
from planner.workflows.observing import observe
from planner.workflows.plans import observe_and_plan, plan_now
from planner.workflows.requests import ChangeRequest
from planner.workflows.topology import launcher_home
from runtime.audit.ledger import open_cluster
from runtime.batch import Record
from runtime.contract.launching import LaunchError
from runtime.contract.records import ledger
from runtime.contract.spec import naming
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import CompiledRoute
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from runtime.kafka.queries import Read, committed_by

PREFIX = "__drill."
PARTITIONS = 2
RATE_LIMIT = 1_000_000  # bytes a second of each scratch flow
_TIME = "%Y%m%dT%H%M%SZ"
_RUN = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{8}")
_RECORDS = "canaries"
_KEPT_MS = 3_600_000  # for what no drill could remove
_OLD = datetime.timedelta(hours=1)
_MEMORY = "512m"
_REQUEST_S = 30.0
_MOST_DELETES = 1_000_000
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
_WITH_RECORDS = (naming.LEDGER, naming.OFFSET_MAP, naming.PRODUCERS, naming.CHECKPOINTS, naming.STATUS)


@dataclass(frozen=True, slots=True)
class ScratchRun:
    """Names everything that one live drill makes. `id` is its time and a random number."""

    id: str

    @staticmethod
    def new(at: datetime.datetime) -> "ScratchRun":
        return ScratchRun(f"{at.strftime(_TIME)}-{secrets.token_hex(4)}")

    @staticmethod
    def of_topology(name: str, of: str) -> "ScratchRun | None":
        """Returns the run whose scratch topology has this name; None for every other topology."""
        head, _, run = name.rpartition(".drill.")
        return ScratchRun(run) if head == of and _RUN.fullmatch(run) else None

    @property
    def began(self) -> datetime.datetime:
        return datetime.datetime.strptime(self.id[:16], _TIME).replace(tzinfo=datetime.UTC)

    def topology(self, of: str) -> str:
        return f"{of}.drill.{self.id}"

    def name(self, of: str) -> str:
        """Returns the name of a flow's copy, or of the job that runs the copies into a cluster."""
        return f"drill.{self.id}.{of}"

    def topic(self, flow: str) -> str:
        """Returns the scratch topic of a flow. Its scratch group has the same name."""
        return f"__{self.name(flow)}"


def canary_flows(topology: Topology) -> list[Flow]:
    """Returns the flows that a live drill copies beside: the active ones between clusters, by name."""
    return [flow for _, flow in sorted(topology.flows.items()) if flow.state == "active"]


def scratch_topology(topology: Topology, run: ScratchRun) -> Topology:
    """Returns the topology of the drill: for each active flow a copy that knows one scratch topic alone.

    A copy has the flow's provenance, rpo and follow. It has no transform, no schemas, no heartbeats and no
    commits at its source.
    """
    topics: list[Topic] = []
    copies: dict[str, Flow] = {}
    jobs: dict[str, Job] = {}
    for flow in canary_flows(topology):
        name, job, topic = run.name(flow.name), run.name(flow.destination_cluster), run.topic(flow.name)
        topics += [
            Topic(
                topic,
                cluster,
                partitions=PARTITIONS,
                config={
                    "cleanup.policy": "delete",
                    "retention.ms": str(_KEPT_MS),
                    "message.timestamp.type": "CreateTime",  # the latency counts from the producer's time
                },
                on_remove=OnRemove.DELETE,
                source=flow.source,
            )
            for cluster in flow.ends
        ]
        jobs[job] = Job(job, slots=1, memory=_MEMORY, metrics=None)
        only = Selection(include=(re.escape(topic),))
        copies[name] = Flow(
            name,
            *flow.ends,
            only,
            provenance=flow.provenance,
            rpo_ms=flow.rpo_ms,
            follow_every_ms=flow.follow_every_ms,
            groups=GroupsSpec(only.include, every_ms=1_000),
            rate_limit=RATE_LIMIT,
            heartbeats_every_ms=None,
            checkpoints_every_ms=None,
            job=job,
            source=flow.source,
        )
    used = {topic.cluster for topic in topics}
    return replace(
        topology.declaring_nothing(),
        name=run.topology(topology.name),
        clusters={name: cluster for name, cluster in topology.clusters.items() if name in used},
        topics=tuple(topics),
        flows=copies,
        endpoints={},
        jobs=jobs,
        policies=Policies(max_deletes=_MOST_DELETES),
    )


def refuse_touching(topology: Topology, scratch: Topology) -> None:
    """Failure where a flow of the topology would copy a scratch topic: it then were no scratch topic."""
    touching = []
    for flow in topology.job_flows.values():
        route = CompiledRoute(route_of(flow, topology))
        copied = [
            topic.name
            for topic in scratch.topics
            if topic.cluster == flow.source_cluster and route.answer(topic.name).taken
        ]
        if copied and flow.runs:
            touching.append(
                error(
                    f"it would copy scratch topics of a drill, such as {copied[0]}",
                    f"add '{re.escape(PREFIX)}.*' to its topics.exclude, or remove default_exclude: false",
                    address=f"flow.{flow.name}",
                    source=flow.source,
                    exit=ExitCode.REFUSED,
                )
            )
    if touching:
        raise Failure(touching)


def record_of(path: Path, run: ScratchRun) -> Path:
    """Returns the file that names a run, beside the topology's jobs: it survives a kill."""
    return launcher_home(path) / _RECORDS / run.id


def recorded_runs(path: Path) -> set[ScratchRun]:
    """Returns the runs that this machine began and did not clean up."""
    names = {file.name for file in (launcher_home(path) / _RECORDS).glob("*")}
    return {ScratchRun(name) for name in names if _RUN.fullmatch(name)}


def left_runs(topology: Topology, path: Path, now: datetime.datetime) -> list[ScratchRun]:
    """Returns the runs of this topology that are to be removed, the oldest first.

    Those that began on this machine have ended: the caller holds the lock of its drills. A drill of another
    machine, which the registry names, may still run, unless it is an hour old.
    """
    registered = {
        run
        for endpoint in endpoints_of(topology.clusters.values()).values()
        for entry in run_at(endpoint, read_registry)
        if (run := ScratchRun.of_topology(entry.topology, topology.name)) is not None
    }
    return removable(registered, recorded_runs(path), now)


def removable(
    registered: Iterable[ScratchRun], recorded: Iterable[ScratchRun], now: datetime.datetime
) -> list[ScratchRun]:
    """Returns the recorded runs, and of the registered ones those that are an hour old; the oldest first."""
    old = {run for run in registered if now - run.began > _OLD}
    return sorted(old | set(recorded), key=lambda run: run.id)


def apply_scratch(scratch: Topology, request: ChangeRequest) -> None:
    """Plans and applies the scratch topology. Failure names what the guards or the brokers refuse."""
    plan = scratch_plan(scratch, request.timeout_s)
    _require_done(run_workflow(execute(plan, request, UNATTENDED, approved=True, wait_for=())))


def scratch_plan(scratch: Topology, timeout_s: float) -> Plan:
    """Returns the plan, checked by the brokers. Failure where it has errors or something can't be read."""
    plan = run_workflow(observe_and_plan(scratch, timeout_s))
    if plan.errored:
        raise Failure(plan.diagnostics)
    if plan.unknown:
        raise Failure([error(f"{what} can't be read: {why}") for what, why in sorted(plan.unknown.items())])
    return plan


def _require_done(done: ApplyResult) -> None:
    if failed := done.summary.of(Result.FAILED):
        raise Failure([error(f"{step_id}: {outcome.why}") for step_id, outcome in failed.items()])
    if not done.complete:
        raise Failure(error("not every step of the scratch topology was carried out", "run it again"))


def remove_scratch(
    topology: Topology, run: ScratchRun, request: ChangeRequest, flows: Collection[str] = ()
) -> None:
    """Removes what one run made: its jobs, topics, groups and records, and the run's file last.

    `flows` are all flows that the run has copied, where the caller knows them: less is read then.
    Failure names what is left. It may be called again: what is gone already is passed over.
    """
    owned = replace(
        topology.declaring_nothing(),
        name=run.topology(topology.name),
        policies=Policies(max_deletes=_MOST_DELETES),
    )
    plan = plan_now(Mode.DESTROY, owned, run_workflow(observe(owned, request.timeout_s)))
    refuse_foreign(plan.steps, run)
    stopped = {step.job for step in plan.steps if isinstance(step, StopJob)}
    jobs = {run.name(name) for name in topology.clusters}
    home = launcher_home(request.path) / "jobs"
    launcher = launchers(home)(LaunchSpec(), "")
    try:
        for job in sorted(jobs - stopped):  # started, and not registered because the drill was killed
            if (home / job).exists() and launcher.find(job).runs:
                launcher.stop(job, _REQUEST_S)
    except LaunchError as failure:
        raise Failure(error(f"a job of the drill is left: {failure.what}", failure.hint)) from None
    _require_done(run_workflow(execute(plan, request, UNATTENDED, approved=True)))
    for endpoint in endpoints_of(topology.clusters.values()).values():
        client = admin(endpoint)
        # The registry does not name topics where the drill was killed in between.
        topics, groups = _names_at(client, run)
        if topics:
            _await(endpoint, client.delete_topics(topics, operation_timeout=_REQUEST_S))
        if groups:
            _await(endpoint, client.delete_consumer_groups(groups, request_timeout=_REQUEST_S))
        forget(endpoint, run, flows)
    for job in jobs:
        shutil.rmtree(home / job, ignore_errors=True)
    record_of(request.path, run).unlink(missing_ok=True)


def _names_at(client: AdminClient, run: ScratchRun) -> tuple[list[str], list[str]]:
    """Returns the topics and the groups of a cluster that are named after the run."""
    listed = client.list_consumer_groups(request_timeout=_REQUEST_S).result(_REQUEST_S)
    if listed.errors:
        raise Failure(error(f"the groups of a cluster can't be listed: {explain(listed.errors[0])}"))

    def of_run(names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if name.startswith(run.topic("")))

    topics = client.list_topics(timeout=_REQUEST_S).topics
    return of_run(topics), of_run(str(group.group_id) for group in listed.valid)


def refuse_foreign(steps: Iterable[Step], run: ScratchRun) -> None:
    """Failure where a removal would delete a topic, or change anything else, that is not named after the run.

    Nothing is changed then. The registry is a topic that others may write.
    """
    foreign = [
        str(step.address)
        for step in steps
        if (isinstance(step, DeleteTopic) and not step.topic.startswith(run.topic("")))
        or (isinstance(step, StopJob) and not step.job.startswith(run.name("")))
        or not isinstance(step, DeleteTopic | StopJob | Disown)
    ]
    if foreign:
        what = f"the registry says that a drill made {', '.join(sorted(foreign))}, and no drill names it so"
        raise Failure(error(what, "repl history shows who wrote it", exit=ExitCode.REFUSED))


def _await(endpoint: ClusterEndpoint, deletes: Mapping[str, Future[None]]) -> None:
    """Waits for deletes. What is gone already is no failure."""
    problems = []
    for name, deleted in deletes.items():
        try:
            deleted.result(_REQUEST_S)
        except (KafkaException, TimeoutError) as failure:
            cause = error_of(failure)
            if cause is None or cause.code() not in _GONE:
                problems.append(error(f"{name} at {endpoint.cluster} is left: {explain(failure)}"))
    if problems:
        raise Failure(problems)


def left_at(endpoint: ClusterEndpoint, run: ScratchRun, topology: str) -> list[str]:
    """Returns what a cluster still holds of a run: topics, groups, and entries of the registry."""
    where = f"at {endpoint.cluster}"
    topics, groups = _names_at(admin(endpoint), run)
    entries = [entry for entry in run_at(endpoint, read_registry) if entry.topology == run.topology(topology)]
    return [
        *(f"topic {name} {where}" for name in topics),
        *(f"group {name} {where}" for name in groups),
        *(f"{entry.address} in the registry {where}" for entry in entries),
    ]


def committed_offsets(endpoint: ClusterEndpoint, group: str) -> dict[TopicPartition, int]:
    """Returns the offsets that a group has committed at a cluster.

    librdkafka's admin client can't be asked: it ends the process where a broker answers NOT_COORDINATOR.
    """

    async def read() -> Read:
        async with open_cluster(endpoint, _REQUEST_S) as cluster:
            return await committed_by(cluster, [group])

    answer = run_workflow(answered(read()))
    if group in answer.failed:
        raise Failure(error(f"group {group} at {endpoint.cluster} can't be read: {answer.failed[group]}"))
    return {at: committed.offset for at, committed in answer.offsets.get(group, {}).items()}


def forget(endpoint: ClusterEndpoint, run: ScratchRun, flows: Collection[str]) -> None:
    """Writes tombstones for the records of a run's flows and jobs.

    Its jobs have stopped, so nothing else writes these keys any more. Of the ledger and the offset map, only
    the partitions of `flows` are read, and all of them without `flows`: what an earlier attempt has removed
    does not tell the flows of a left run any more.
    """

    async def write_tombstones(client: ClusterClient) -> None:
        log = LogWriter(client)
        try:
            for topic in (await client.ask(AnyMetadataRequest(list(_WITH_RECORDS)))).topics:
                partitions = 0 if topic.error else len(topic.partitions)
                numbers: Iterable[int] = range(partitions)
                if topic.name in (naming.LEDGER, naming.OFFSET_MAP) and flows and partitions:
                    numbers = {ledger.partition_of(run.name(name), partitions) for name in flows}
                for partition in sorted(numbers):
                    keys = keys_of_run(topic.name, await read(client, topic.name, partition), run)
                    await log.append(
                        topic.name, [(key, None) for key in keys], seconds=_REQUEST_S, partition=partition
                    )
        finally:
            log.close()

    try:
        run_at(endpoint, write_tombstones, _REQUEST_S)
    except ClusterFailure as failure:
        what = f"records of the drill in internal topics at {endpoint.cluster} are left: {failure.why}"
        raise Failure(error(what)) from None


def keys_of_run(topic: str, records: Iterable[Record], run: ScratchRun) -> list[bytes]:
    """Returns the keys of an internal topic whose newest records are of a run's flows or jobs."""
    prefix = f'"{run.name("")}'.encode()  # so the names of a run's flows and jobs begin in JSON
    return [
        key
        for key, record in compacted(records).items()
        if prefix in ((record.value or b"") if topic == naming.PRODUCERS else key)
    ]
