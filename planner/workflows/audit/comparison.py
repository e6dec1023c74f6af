"""`repl verify` and `repl salvage`: both sides of a flow are compared.

Verify compares few records in this process, and many in a Spark application. It can continue after a cut.
Salvage lists or replays the records that a source holds and that never reached the destination.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from planner.graph.expansion import expand
from planner.kafka import ClusterClient
from planner.model.diagnostic import ExitCode, Failure, error, note, warning
from planner.model.topology import Flow, Topology
from planner.state import internal_topics
from planner.state.lease import Lease
from planner.workflows.applying.session import leased
from planner.workflows.audit.access import answered, cluster_endpoint
from planner.workflows.edge import Workflow
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveReplay,
    Interaction,
    ProgressHandler,
    ReplayReady,
    silent,
)
from planner.workflows.observing import answering, observe
from planner.workflows.one_off import check_transforms, on_spark
from planner.workflows.requests import (
    SalvageRequest,
    VerifyFlowRequest,
)
from planner.workflows.topology import flow_of, job_flow_of, launcher_home, load_topology
from runtime.audit.salvage import salvage as read_salvage
from runtime.audit.verify.pieces import VerifyRequest, decode_outcome, encode_request
from runtime.audit.verify.verification import verify_small
from runtime.contract.records.failback import opposite_of
from runtime.contract.results.records import (
    ReplayedPartition,
    Salvage,
    SalvagedRecord,
    VerificationReport,
)
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.machine import hold
from runtime.replay.request import ReplayRequest

_RESUME = "with --resume it goes on where it stood"
_TASKS = 2  # on a cluster, for a job that has a slot for each core


@Workflow
async def verify(request: VerifyFlowRequest, progress: ProgressHandler = silent) -> VerificationReport:
    """Compares keys, values, headers, timestamps and order of everything that a flow has copied up to now.

    It only reads, and the flow may run. Failure: a side can't be read, or Spark can't be started.
    """
    from runtime import audit

    topology = load_topology(request)
    flow = job_flow_of(topology, request.flow)
    job = await _job_spec(topology, flow, request.timeout_s, progress)
    spec = job.flow(flow.name)
    compared = VerifyRequest(
        flow=spec,
        source=job.clusters[spec.source],
        destination=job.clusters[spec.destination],
        topics=request.topics,
        low=request.low,
        high=request.high,
        last=request.last,
        sample=request.sample,
        rate=request.rate,
        within_s=request.timeout_s,
        opposite=opposite_of(job, spec),
        registries=job.registries,
    )
    where = _on_its_cluster(job) if request.on_cluster else None
    main = Path(audit.__file__).parent / "verify" / "main.py"
    with verification_file(compared, request.path, progress, resume=request.resume) as file:
        resume = request.resume
        if where is None and not compared.needs_spark:
            # None where it is too large for this process.
            small = verify_small(compared, file, progress, resume=resume)
            verified = await answered(small)
            if verified is not None:
                return verified
            resume = True  # Spark continues from the plan that was just stored
        arguments = [*(["--book", str(file)] if file is not None else []), *["--resume"] * resume]
        answer = await on_spark(main, encode_request(compared), "verify: ", progress, arguments, where)
    outcome = decode_outcome(answer)
    if outcome.result is None:
        raise Failure(error(f"{outcome.cluster}: {outcome.why}", outcome.hint or _RESUME))
    return outcome.result


def _on_its_cluster(job: JobSpec) -> JobSpec:
    """Runs as many tasks at once as the job has slots, so that a rate can be shared out."""
    launch = job.launch
    if launch.launcher not in ("standalone", "yarn"):
        where = f"{launch.master} (launcher {launch.launcher})"
        raise Failure(
            error(
                f"the job {job.job} runs at {where}: standalone and yarn take another application",
                "leave --on-cluster out",
            )
        )
    slots = job.slots or _TASKS
    conf = {**launch.conf, "spark.default.parallelism": str(slots)}
    return replace(job, slots=slots, launch=replace(launch, conf=conf))


@contextmanager
def verification_file(
    request: VerifyRequest, path: Path, progress: ProgressHandler, *, resume: bool
) -> Iterator[Path | None]:
    """Yields the file that records the compared ranges, so that a comparison can continue after a cut.

    There is one for each comparison: flow, topics, range and sample. None where nothing can be written.
    """
    content = encode_request(replace(request, rate=None, within_s=0.0))
    name = f"{quote(request.flow.name, safe='')}-{hashlib.sha256(content).hexdigest()[:12]}.jsonl"
    file = launcher_home(path) / "verify" / name
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = hold(file.with_suffix(".lock"))
    except OSError as problem:
        what = f"this comparison can't continue after a cut: {file.parent}: {problem.strerror or problem}"
        progress(warning(what))
        yield None
        return
    if lock is None:
        raise Failure(error(f"the same comparison of {request.flow.name} runs already", "wait for its end"))
    try:
        if resume and not file.exists():
            progress(note("no earlier comparison was cut: this one starts at the beginning"))
        yield file
    except (KeyboardInterrupt, asyncio.CancelledError):
        if file.exists():
            what = "what was compared is kept"
            progress(note(what, "run the same command with --resume to continue there"))
        raise
    finally:
        file.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


Take = Callable[[SalvagedRecord], None]


class ReplayResult(Struct, frozen=True):
    """The salvaged records, and what became of each partition that was replayed."""

    salvaged: Salvage
    parts: tuple[ReplayedPartition, ...]

    @property
    def complete(self) -> bool:
        return self.salvaged.complete and not any(part.unread for part in self.parts)


def ignore_record(_record: SalvagedRecord) -> None:
    """Keeps nothing of a salvaged record: only the numbers are wanted."""


@Workflow
async def salvage(
    request: SalvageRequest, take: Take = ignore_record, progress: ProgressHandler = silent
) -> Salvage:
    """Reads the records that never reached the destination. It changes nothing.

    These are committed at the source, lie beyond what the flow copied or were given up, and were not filtered
    by provenance. `take` receives each of them, partition by partition, in order.
    """
    topology = load_topology(request)
    flow = flow_of(topology, request.flow)
    job = await _job_spec(topology, flow, request.timeout_s, progress)
    return await answered(read_salvage(job, job.flow(flow.name), request.timeout_s, take))


@Workflow
async def replay_salvage(request: SalvageRequest, interaction: Interaction = UNATTENDED) -> ReplayResult:
    """Copies each salvaged record to the destination once, whatever happens meanwhile.

    The flow's transform is applied to them. The header `__repl` of each says where it came from. Failure: the
    flow still copies, a target topic does not fit, Spark refuses the transform or can't be started, or the
    replay is not approved.
    """
    topology = load_topology(request)
    flow = flow_of(topology, request.flow)
    if flow.state not in ENDED:
        raise _still_copies(flow.name, flow.state)
    job = await _job_spec(topology, flow, request.timeout_s, interaction.progress)
    spec, within_s = job.flow(flow.name), request.timeout_s
    seen = await answered(read_salvage(job, spec, within_s, ignore_record))
    if seen.state not in ENDED:
        raise _still_copies(seen.flow, f"{seen.state}, as the ledger says")
    replay = await _replay_request(request.to, job, spec, seen, within_s) if seen.replayable else None
    interaction.progress(ReplayReady(seen, request.to))
    if replay is None:
        return ReplayResult(seen, ())
    await check_transforms(topology, progress=interaction.progress, only=flow.name)
    interaction.require(ApproveReplay(seen.destination))
    parts = await _replay(topology, flow, request, replay, interaction.progress)
    return ReplayResult(seen, tuple(parts))


async def _replay_request(
    to: str | None, job: JobSpec, flow: FlowSpec, seen: Salvage, within_s: float
) -> ReplayRequest:
    from runtime.replay.replay_target import parts, quarantines_of, unfit
    from runtime.replay.target import target_topics

    wanted, transform = seen.replayable, flow.transform
    destination = job.clusters[flow.destination]
    named = {partition.destination_topic for partition in wanted} | ({to} if to is not None else set())
    topics = sorted(named.union(quarantines_of(wanted, transform)))
    existing = await answered(target_topics(destination, seen.destination, topics))
    misfits = unfit(wanted, to, existing, transform)
    problems = [error(f"{seen.destination}: {what}", hint) for what, hint in misfits.items()]
    if problems:
        raise Failure(problems)
    return ReplayRequest(
        flow=flow,
        source=job.clusters[flow.source],
        destination=destination,
        parts=parts(wanted, to, existing, flow),
        to=to,
        within_s=within_s,
        registries=job.registries,
    )


_REPLAY_AGAIN = "run it again: it continues behind what was replayed, and nothing is copied twice"
_LOOK_S = 1.0


async def _replay(
    topology: Topology,
    flow: Flow,
    request: SalvageRequest,
    replay: ReplayRequest,
    progress: ProgressHandler,
) -> list[ReplayedPartition]:
    from runtime import replay as application
    from runtime.replay.request import decode_outcome, encode_request

    endpoint = cluster_endpoint(topology.clusters[flow.destination_cluster])
    main = Path(application.__file__).with_name("main.py")
    async with ClusterClient(endpoint) as client:
        await internal_topics.ensure(client, [naming.LEASE], topology.internal)
    async with leased(
        endpoint,
        name="salvage",
        topology=topology.name,
        plan=f"salvage {flow.name}",
        lock_timeout_ms=request.lock_timeout_ms,
        progress=progress,
    ) as lease:
        work = on_spark(main, encode_request(replay), "salvage: ", progress)
        outcome = decode_outcome(await _while_held(lease, work))
    if outcome.result is not None:
        return outcome.result
    if outcome.cluster:
        raise Failure(error(f"{outcome.cluster}: {outcome.why}", _REPLAY_AGAIN))
    raise Failure(error(outcome.why, "repl status shows its state"), ExitCode.REFUSED)


async def _while_held(lease: Lease, work: Coroutine[Any, Any, bytes]) -> bytes:
    """Returns the result of the work. Failure where the lease is lost before its end: the work is ended."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            lost = await lease.lost(lambda: "" if task.done() else None)
            if lost and not task.done():
                raise Failure(error(f"the replay was ended: {lost}", _REPLAY_AGAIN))
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


def _still_copies(flow: str, state: str) -> Failure:
    return Failure(
        error(
            f"flow.{flow} is {state}: it copies what is left by itself when it runs, so nothing is replayed",
            "a flow is replayed once it is promoted or failed over; repl status shows what is left to copy",
            exit=ExitCode.REFUSED,
        )
    )


async def _job_spec(topology: Topology, flow: Flow, timeout_s: float, progress: ProgressHandler) -> JobSpec:
    """Returns the spec of the flow's job: provenance resolved, clusters pinned, no secret.

    Both clusters of the flow must answer. Failure names those that do not.
    """
    observed = await observe(topology, timeout_s, progress=progress)
    await check_transforms(topology, observed, progress, only=flow.name)
    answering(observed, flow.source_cluster, flow.destination_cluster)
    for job in expand(topology, observed, Path.cwd()).jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))
