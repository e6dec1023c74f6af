"""What workflows need of Spark: the launchers of jobs, the spec of a flow's job, and one-off applications.

The request and the outcome of a one-off application travel as files. Each machine has a folder for its jobs.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from planner.apply.context import JobLauncher, Launchers, LaunchFailed
from planner.graph.jobs import destination_spec
from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import Failure, error
from planner.model.observed import Unreachable
from planner.model.plan import Plan
from planner.model.step import DONE, RequestResult, RestoreOffsets, RestoreRecords, failed
from planner.model.topology import Flow, Topology
from planner.state import log
from planner.workflows.interaction import ProgressHandler
from planner.workflows.one_off import on_spark
from planner.workflows.plans import see
from planner.workflows.topology import folder_of
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import ClusterSpec, JobSpec, LaunchSpec
from runtime.launch.launcher import Launcher, LaunchError, LaunchState

HOME = "REPL_HOME"
LAST_LINES = 15


def home_of(plan: Plan, path: Path) -> Path:
    """Returns the folder of this machine's jobs: beside the topology, wherever its plan was saved."""
    files = [one.source.file for one in plan.connections.values() if one.source is not None]
    return launcher_home(Path(files[0]) if files and Path(files[0]).exists() else path) / "jobs"


def launcher_home(path: Path) -> Path:
    """Returns REPL_HOME, else `.repl` beside the topology."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME]).absolute()
    return folder_of(path).absolute() / ".repl"


def launchers(home: Path) -> Launchers:
    """Returns what chooses the launcher of a job. Its errors become LaunchFailed."""

    def choose(launch: LaunchSpec) -> JobLauncher:
        from runtime.launch.choose import launcher_for  # most applies start no job

        with _as_launch_failed():
            return LauncherAdapter(launcher_for(launch, home))

    return choose


class LauncherAdapter:
    """Adapts a launcher of the runtime to what an apply calls."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def launch(self, spec: JobSpec) -> str:
        with _as_launch_failed():
            handle = self._launcher.launch(spec)
        return f"{handle.where}, its log is {handle.log}" if handle.log else handle.where

    def update(self, spec: JobSpec) -> None:
        with _as_launch_failed():
            self._launcher.update(spec)

    def runs(self, job: str) -> bool | None:
        with _as_launch_failed():
            match self._launcher.find(job).state:
                case LaunchState.RUNNING | LaunchState.RESTARTING:
                    return True
                case LaunchState.ENDED:
                    return False
                case LaunchState.UNKNOWN:
                    return None

    def stop(self, job: str, grace_s: float) -> None:
        with _as_launch_failed():
            self._launcher.stop(job, grace_s)

    def tail(self, job: str) -> Sequence[str]:
        with _as_launch_failed():
            return self._launcher.tail(job, LAST_LINES)


@contextmanager
def _as_launch_failed() -> Iterator[None]:
    try:
        yield
    except LaunchError as failure:
        raise LaunchFailed(failure.what, failure.way_out, failure.log) from failure


_AGAIN = "apply again: it continues where it was"


class SparkRestorer:
    """Carries out the steps of a restore: records on Spark, offsets of groups from this process.

    One Spark application runs at a time, on this machine, which must see the folder of the backup.
    """

    def __init__(self, plan: Plan, progress: ProgressHandler) -> None:
        self._plan = plan
        self._progress = progress
        self._one_at_a_time = threading.Lock()

    def records(self, endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]) -> dict[str, RequestResult]:
        """Restores the records of all these topics, and compares them with the backup."""
        log.ensure(endpoint, [naming.LEDGER, naming.OFFSET_MAP], self._plan.internal)
        found: dict[str, RequestResult] = {}
        of_state: dict[tuple[str, str, int, str], list[RestoreRecords]] = defaultdict(list)
        for step in steps:
            of_state[step.folder, step.flow, step.commit, step.digest].append(step)
        for some in of_state.values():
            with self._one_at_a_time:
                found |= self._restored(endpoint, some)
        return found

    def _restored(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]
    ) -> dict[str, RequestResult]:
        from runtime import replay as application
        from runtime.replay.restore_target import (
            SAID,
            RestoreRequest,
            RestoreTopic,
            decode_outcome,
            encode_request,
        )

        first = steps[0]
        request = RestoreRequest(
            folder=first.folder,
            flow=first.flow,
            commit=first.commit,
            digest=first.digest,
            name=endpoint.cluster,
            cluster=self._spec(endpoint),
            topics=[
                RestoreTopic(
                    topic=step.source,
                    topic_id=step.source_id,
                    into=step.topic,
                    ends=dict(enumerate(step.ends)),
                )
                for step in steps
            ],
        )
        main = Path(application.__file__).with_name("main.py")
        try:
            text = on_spark(main, encode_request(request), SAID, self._progress, ["--restore"])
        except Failure as failure:
            why = "; ".join(one.summary for one in failure.diagnostics)
            return {step.id: failed(f"{why}; {_AGAIN}") for step in steps}
        outcome = decode_outcome(text)
        if outcome.unusable:
            again = "" if outcome.of_backup else f"; {_AGAIN}"
            return {step.id: failed(f"{outcome.unusable}: {outcome.why}{again}") for step in steps}
        problems: dict[str, str] = {}
        for part in outcome.parts:
            if part.problem:
                problems.setdefault(part.into, part.problem)
        return {step.id: failed(problems[step.topic]) if step.topic in problems else DONE for step in steps}

    def offsets(self, endpoint: ClusterEndpoint, steps: Sequence[RestoreOffsets]) -> dict[str, RequestResult]:
        """Commits the offsets of these groups, translated by the offset maps of the restored topics."""
        from runtime.audit.ledger import AuditFailure
        from runtime.replay.restore_target import WantedOffset, restore_offsets

        found: dict[str, RequestResult] = {}
        for flow in sorted({step.flow for step in steps}):
            some = [step for step in steps if step.flow == flow]
            wanted = [
                WantedOffset(
                    group=step.group,
                    topic=one.topic,
                    partition=one.partition,
                    offset=one.offset,
                    metadata=one.metadata,
                )
                for step in some
                for one in step.offsets
            ]
            try:
                problems = asyncio.run(restore_offsets(self._spec(endpoint), endpoint.cluster, flow, wanted))
            except AuditFailure as failure:
                problems = {step.group: f"{failure.cluster}: {failure.why}" for step in some}
            for step in some:
                why = problems.get(step.group, "")
                found[step.id] = failed(why) if why else DONE
        return found

    def _spec(self, endpoint: ClusterEndpoint) -> ClusterSpec:
        """Returns how the application reaches the cluster, pinned to the one that was planned for."""
        declared = destination_spec(self._plan.connections[endpoint.cluster], Path.cwd())
        return msgspec.structs.replace(declared, id=self._plan.clusters[endpoint.cluster] or declared.id)


def job_spec(topology: Topology, flow: Flow, timeout_ms: int, progress: ProgressHandler) -> JobSpec:
    """Returns the spec of the flow's job: provenance resolved, clusters pinned, no secret.

    Both clusters of the flow must answer. Failure names the one that does not.
    """
    seen = see(topology, timeout_ms, progress=progress)
    for name in (flow.source_cluster, flow.destination_cluster):
        match seen.observed.clusters[name]:
            case Unreachable(why=why, way_out=way_out):
                raise Failure(error(f"{name} can't be read, and both sides are needed: {why}", way_out))
    for job in seen.desired.jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))
