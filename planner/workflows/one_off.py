"""One-off Spark applications, those that evaluate a flow's transform, and those that restore a backup.

Spark's analyzer checks transforms before a plan shows them. `repl try` shows what a transform makes of
records, evaluated by Spark as a slot does it. Request and outcome of an application travel as files.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from planner.graph.jobs import destination_spec
from planner.graph.messages import few
from planner.graph.routes import file_route, router_of
from planner.kafka import ClusterClient, ClusterEndpoint
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, Failure, WorkProgress, error
from planner.model.observed import Observed
from planner.model.plan import Plan
from planner.model.step import DONE, StepResult, failed
from planner.model.topology import Flow, Topology
from planner.plan.steps.restores import RestoreOffsets, RestoreRecords, RestoreSchemas, RestoreStep
from planner.state import internal_topics
from planner.workflows.audit.access import cluster_endpoint
from planner.workflows.edge import Workflow
from planner.workflows.interaction import (
    ProgressEvent,
    ProgressHandler,
    silent,
    under_way,
)
from planner.workflows.preflight import check_registries
from planner.workflows.requests import TryFlowRequest
from planner.workflows.samples import sample_of
from planner.workflows.topology import job_flow_of, load_topology
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.manifest import BackupState
from runtime.contract.results.transforms import (
    CheckRequest,
    SqlOutcome,
    TransformProblem,
    TrialReport,
    TryRequest,
    decode_outcome,
    encode,
)
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.route import Router
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.contract.spec.transform import TransformSpec
from runtime.schemas.client import NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from runtime.schemas.stored import BackedUpSchemas

if TYPE_CHECKING:
    from runtime.replay.request import RestoredIds, RestorePartition


async def on_spark(
    main: Path,
    request: bytes,
    prefix: str,
    progress: ProgressHandler,
    arguments: Sequence[str] = (),
    where: JobSpec | None = None,
    deadline_s: float | None = None,
    variables: Collection[str] | None = None,
) -> bytes:
    """Runs an application and returns its outcome. It runs here, or where the job `where` runs.

    Lines that begin with `prefix` are reported, those with a count as such. `variables` are all that it sees
    of the environment. Failure when the application can't be started, dies, or has not ended after
    `deadline_s`. Those that read the records of whole topics have no deadline.
    """
    from runtime.contract.launching import LaunchError
    from runtime.launch.command import run_once

    command = prefix.strip(": ")

    def show(line: str) -> None:
        if count := _COUNT.fullmatch(line):
            progress(WorkProgress(command, count[1], int(count[2]), int(count[3]), count[4]))
        else:
            progress(line)

    with (
        tempfile.TemporaryDirectory(prefix="repl-once-") as folder,
        under_way(progress, [command], "Spark is starting"),
    ):
        request_file, outcome_file = Path(folder) / "request.json", Path(folder) / "outcome.json"
        request_file.write_bytes(request)
        try:
            await run_once(
                main,
                ["--request", str(request_file), "--out", str(outcome_file), *arguments],
                said=show,
                prefix=prefix,
                where=where,
                deadline_s=deadline_s,
                variables=variables,
            )
        except LaunchError as failure:
            for line in failure.log:
                progress(f"  {line}")
            raise Failure(error(failure.what, failure.hint)) from None
        return outcome_file.read_bytes()


_COUNT = re.compile(r"(\w+) (\d+) of (\d+) (\w+)")


_CODE = "transform"
_EXPRESSION_S = 1.0
_checked: set[str] = set()  # what this process has checked


async def check_transforms(
    topology: Topology,
    observed: Observed | None = None,
    progress: ProgressHandler = silent,
    only: str | None = None,
) -> None:
    """Failure where Spark refuses a transform that no job runs yet: of all flows, or of the flow `only`."""
    wanted = {
        name: spec
        for name, flow in topology.job_flows.items()
        if only in (None, name)
        and (spec := flow.transform) is not None
        and not _runs(name, spec, observed)
        and repr((spec, _file_format(topology, name))) not in _checked
    }
    if not wanted:
        return
    files = {name: form for name in wanted if (form := _file_format(topology, name)) is not None}
    await _evaluated(CheckRequest(wanted, files), wanted, topology, progress)
    _checked.update(repr((spec, files.get(name))) for name, spec in wanted.items())


async def _evaluated(
    request: CheckRequest | TryRequest,
    transforms: Mapping[str, TransformSpec],
    topology: Topology,
    progress: ProgressHandler,
    variables: Collection[str] = (),
) -> SqlOutcome:
    """Lets Spark evaluate transforms, by flow. Failure: it refuses one of them, or can't be started.

    Most of the time is that of Spark's start; each expression adds a second to the deadline.
    """
    from runtime import sql
    from runtime.contract.launching import LaunchError
    from runtime.launch.command import deadline_of

    try:
        deadline_s = deadline_of(os.environ)
    except LaunchError as failure:
        raise Failure(error(failure.what, failure.hint)) from None
    deadline_s += _EXPRESSION_S * sum(len(transform.expressions) for transform in transforms.values())
    main = Path(sql.__file__).with_name("main.py")
    try:
        answer = await on_spark(
            main, encode(request), "sql: ", progress, deadline_s=deadline_s, variables=variables
        )
    except Failure as failure:
        flows = few([str(flow_address(name)) for name in transforms])
        raise Failure(
            replace(problem, summary=f"the transform of {flows} was not checked: {problem.summary}")
            for problem in failure.diagnostics
        ) from None
    outcome = decode_outcome(answer)
    if outcome.problems:
        raise Failure(tuple(diagnostics_of(outcome.problems, topology)))
    return outcome


def _file_format(topology: Topology, flow: str) -> Literal["json", "parquet"] | None:
    """Returns the format of the files in which a flow writes decoded values; None for another flow."""
    declared = topology.file_flows.get(flow)
    endpoint = topology.endpoints.get(declared.destination_cluster) if declared is not None else None
    return endpoint.format if endpoint is not None and endpoint.format in ("json", "parquet") else None


def _runs(flow: str, transform: TransformSpec, observed: Observed | None) -> bool:
    """Returns whether a job of the flow's destination was started with exactly this transform."""
    if observed is None:
        return False
    for cluster in observed.live.values():
        for job in cluster.jobs:
            running = (
                {copied.name: copied.transform for copied in job.spec.flows} if job.spec is not None else {}
            )
            if running.get(flow) == transform:
                return True
    return False


def diagnostics_of(problems: list[TransformProblem], topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each problem, at the flow that has it."""
    for problem in problems:
        flow = topology.job_flows[problem.flow]
        place = f" (line {problem.line}, column {problem.column})" if problem.line else ""
        yield error(
            f"{problem.part}{place}: {problem.why}",
            "columns are key, value, headers, topic, partition, offset, timestamp and timestamp_type",
            address=str(flow_address(problem.flow)),
            source=flow.source,
            code=_CODE,
        )


@Workflow
async def try_transform(request: TryFlowRequest, progress: ProgressHandler = silent) -> TrialReport:
    """Returns what would become of records. It only reads, and the flow need not run.

    Failure: the flow has no transform, Spark refuses it or can't be started, or no records can be read.
    """
    topology = load_topology(request)
    flow = job_flow_of(topology, request.flow)
    transform = flow.transform
    if transform is None:
        raise Failure(
            error(
                f"flow.{flow.name} has no transform: its records travel as they are",
                "name a flow with a transform, or show records with repl read",
                source=flow.source,
            )
        )
    check_registries(flow)  # Spark gets the secrets of these alone, and not what this machine allows
    if request.sample is not None:
        records, source = list(sample_of(request.sample))[: request.limit], str(request.sample)
    else:
        records, source = await _newest(topology, flow, request), flow.source_cluster
    if not records:
        return TrialReport(flow=flow.name, source=source, transform=transform, results=[])
    settings = [value for registry in transform.registries for value in registry.client.values()]
    variables = {value["env"] for value in settings if isinstance(value, dict) and "env" in value}
    outcome = await _evaluated(
        TryRequest(flow.name, transform, records), {flow.name: transform}, topology, progress, variables
    )
    return TrialReport(flow=flow.name, source=source, transform=transform, results=outcome.results)


async def _newest(topology: Topology, flow: Flow, request: TryFlowRequest) -> list[ConsumerRecord]:
    from planner.workflows.audit.access import answered  # a plan loads this module
    from runtime.audit.read.records import read_newest

    into_files = topology.file_flows.get(flow.name)
    router = Router([file_route(into_files)]) if into_files is not None else router_of(topology)
    reach = cluster_endpoint(topology.clusters[flow.source_cluster])
    return await answered(
        read_newest(
            reach,
            lambda topic: router.destination_topic(flow.name, topic) is not None,
            request.limit,
            request.timeout_s,
        )
    )


_AGAIN = "apply again: it continues where it was"


class SparkRestorer:
    """Carries out the steps of a restore: records on Spark, offsets of groups from this process.

    One Spark application runs at a time, on this machine, which must see the folder of the backup.
    """

    def __init__(self, plan: Plan, registries: Mapping[str, RegistrySpec], progress: ProgressHandler) -> None:
        self._plan = plan
        self._registries = registries
        self._progress = progress
        self._one_at_a_time = asyncio.Lock()

    async def restore(self, endpoint: ClusterEndpoint, steps: Sequence[RestoreStep]) -> dict[str, StepResult]:
        """Carries out steps of one kind."""
        if offsets := [step for step in steps if isinstance(step, RestoreOffsets)]:
            return await self._offsets(endpoint, offsets)
        if schemas := [step for step in steps if isinstance(step, RestoreSchemas)]:
            return await self._schemas(schemas)
        topics = [naming.LEDGER, naming.OFFSET_MAP]
        async with ClusterClient(endpoint) as client:
            await internal_topics.ensure(client, topics, self._plan.topology.internal)
        async with self._one_at_a_time:
            return await self._records(endpoint, [step for step in steps if isinstance(step, RestoreRecords)])

    async def _records(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]
    ) -> dict[str, StepResult]:
        from runtime import replay as application
        from runtime.audit.ledger import AuditFailure
        from runtime.files.manifest import EndpointUnavailable, ManifestProblem
        from runtime.replay.request import RestoreRequest, decode_outcome, encode_request

        try:
            ids, parts = await self._ids(steps), await self._parts(endpoint, steps)
        except (EndpointUnavailable, ManifestProblem) as problem:
            return {step.id: failed(f"the backup: {problem}") for step in steps}
        except (RegistryUnavailable, SchemaNotCopied) as problem:
            return {step.id: failed(str(problem)) for step in steps}
        except AuditFailure as failure:
            return {step.id: failed(f"{failure.cluster}: {failure.why}; {_AGAIN}") for step in steps}
        request = RestoreRequest(
            backup=steps[0].backup,  # a plan restores one backup
            name=endpoint.cluster,
            cluster=self._spec(endpoint),
            parts=parts,
            ids=ids,
        )
        main = Path(application.__file__).with_name("main.py")
        progress = self._counting(len(parts))
        try:
            text = await on_spark(main, encode_request(request), "restore: ", progress)
        except Failure as failure:
            why = "; ".join(diagnostic.summary for diagnostic in failure.diagnostics)
            return {step.id: failed(f"{why}; {_AGAIN}") for step in steps}
        outcome = decode_outcome(text)
        if outcome.result is None:
            why = f"{outcome.cluster}: {outcome.why}; {_AGAIN}" if outcome.cluster else outcome.why
            return {step.id: failed(why) for step in steps}
        problems: dict[str, str] = {}
        for part in outcome.result:
            if part.unread:
                problems.setdefault(part.into, part.unread)
        return {step.id: failed(problems[step.topic]) if step.topic in problems else DONE for step in steps}

    def _counting(self, partitions: int) -> ProgressHandler:
        """Returns a handler that also counts the partitions that are restored: each says so in a line."""
        from runtime.replay.request import RESTORED

        restored = 0

        def progress(event: ProgressEvent) -> None:
            nonlocal restored
            self._progress(event)
            if isinstance(event, str) and event.endswith(RESTORED):
                restored += 1
                self._progress(WorkProgress("restore", "restored", restored, partitions, "partitions"))

        return progress

    async def _ids(self, steps: Sequence[RestoreRecords]) -> dict[str, "RestoredIds"]:
        """Returns the ids that the cluster's registry gave, by topic, where they are translated."""
        from runtime.replay.schemas import restored_ids

        if not steps[0].translated:
            return {}
        source = await self._backed_up(steps[0].backup)
        with closing(SchemaRegistry(self._registries[steps[0].cluster])) as registry:
            return {
                step.topic: await restored_ids(source, registry, step.restored.source, step.topic)
                for step in steps
            }

    async def _parts(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]
    ) -> list["RestorePartition"]:
        """Returns the partitions to restore. Raises AuditFailure."""
        from runtime.audit.ledger import AuditFailure
        from runtime.replay.request import RestorePartition
        from runtime.replay.target import target_topics

        cluster = endpoint.cluster
        targets = await target_topics(self._spec(endpoint), cluster, [step.topic for step in steps])
        if missing := [step.topic for step in steps if step.topic not in targets]:
            raise AuditFailure(cluster, f"there is no topic {missing[0]}", _AGAIN)
        return [
            RestorePartition(
                step.backup.flow,
                step.restored.source,
                number,
                step.topic,
                targets[step.topic].max_message_bytes,
                topic_id=step.restored.source_id,
                end=end,
            )
            for step in steps
            for number, end in enumerate(step.restored.ends)
        ]

    async def _backed_up(self, backup: BackupState) -> BackedUpSchemas:
        """Returns the schemas of a backup. Raises EndpointUnavailable, ManifestProblem."""
        from runtime.files.schemas import SchemaFolder

        folder = SchemaFolder(backup.folder, backup.flow, backup.client)
        return BackedUpSchemas(backup.folder, await asyncio.to_thread(folder.read))

    async def _schemas(self, steps: Sequence[RestoreSchemas]) -> dict[str, StepResult]:
        """Registers schemas, with the ids that they have in the backup or those of the registry."""
        from runtime.files.manifest import EndpointUnavailable, ManifestProblem

        try:
            source = await self._backed_up(steps[0].backup)  # a plan restores one backup
        except (EndpointUnavailable, ManifestProblem) as problem:
            return {step.id: failed(f"the backup: {problem}") for step in steps}
        ids: Literal["keep", "translate"] = "translate" if steps[0].translated else "keep"
        with closing(SchemaRegistry(self._registries[steps[0].cluster])) as registry:
            copier = SchemaCopier(source, registry, SchemaSync(sync=True, ids=ids), ended=True)

            results: dict[str, StepResult] = {}
            for step in steps:  # one by one: steps may register the same schema that others refer to
                try:
                    await copier.copy_subject(
                        step.source_subject, step.versions, step.subject_name, step.compatibility
                    )
                    results[step.id] = DONE
                except (NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaNotCopied) as failure:
                    results[step.id] = failed(str(failure))
        return results

    async def _offsets(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreOffsets]
    ) -> dict[str, StepResult]:
        """Commits the offsets of these groups, translated by the offset maps of the restored topics."""
        from runtime.audit.ledger import AuditFailure
        from runtime.replay.restore_target import restore_offsets

        results: dict[str, StepResult] = {}
        for flow in sorted({step.flow for step in steps}):
            some = [step for step in steps if step.flow == flow]
            wanted = [offset for step in some for offset in step.offsets]
            try:
                problems = await restore_offsets(self._spec(endpoint), endpoint.cluster, flow, wanted)
            except AuditFailure as failure:
                problems = {step.group: f"{failure.cluster}: {failure.why}" for step in some}
            for step in some:
                why = problems.get(step.group, "")
                results[step.id] = failed(why) if why else DONE
        return results

    def _spec(self, endpoint: ClusterEndpoint) -> ClusterSpec:
        """Returns how the application reaches the cluster, pinned to the one that was planned for."""
        declared = destination_spec(self._plan.connections[endpoint.cluster], Path.cwd())
        return msgspec.structs.replace(declared, id=self._plan.clusters[endpoint.cluster] or declared.id)
