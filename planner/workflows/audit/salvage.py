"""`repl salvage`: lists or replays the records that a source holds and that never reached the destination."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from planner.config import load
from planner.graph.routes import router_of
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import ENDED, Flow, Topology
from planner.state import log
from planner.workflows.applying.session import leased
from planner.workflows.audit.requests import answered
from planner.workflows.clusters import endpoints_of
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveReplay,
    Interaction,
    ProgressHandler,
    ReplayReady,
    silent,
)
from planner.workflows.one_off import on_spark
from planner.workflows.spark import job_spec
from planner.workflows.topology import FlowRequest, TopologyRequest, flow_of
from runtime.audit.salvage import SalvageRequest
from runtime.audit.salvage import salvage as read_salvage
from runtime.contract.spec import naming
from runtime.contract.views.comparison_view import ReplayedPartition, SalvagedRecord, SalvageView
from runtime.replay.request import ReplayOutcome, ReplayRequest

Take = Callable[[SalvagedRecord], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageFlowRequest(TopologyRequest):
    """A request for the records of a flow's source that never reached the destination."""

    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySalvageRequest(FlowRequest):
    """A request to copy salvaged records to the destination: into the flow's own topics, or all into `to`."""

    to: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The salvaged records, and what became of each partition that was replayed."""

    salvaged: SalvageView
    parts: tuple[ReplayedPartition, ...]

    @property
    def complete(self) -> bool:
        return not self.salvaged.unread and not any(one.unread for one in self.parts)


def ignore_record(_record: SalvagedRecord) -> None:
    """Keeps nothing of a salvaged record: only the numbers are wanted."""


def salvage(
    request: SalvageFlowRequest, take: Take = ignore_record, progress: ProgressHandler = silent
) -> SalvageView:
    """Reads the records that never reached the destination. It changes nothing.

    These are committed at the source, lie beyond what the flow copied or were given up, and were not filtered
    by provenance. `take` receives each of them, partition by partition, in order.
    """
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    return answered(read_salvage(_request(topology, flow, request, progress), take))


def replay_salvage(request: ReplaySalvageRequest, interaction: Interaction = UNATTENDED) -> ReplayResult:
    """Copies each salvaged record to the destination once, whatever happens meanwhile.

    The header `__repl` of each says where it came from. Failure: the flow still copies, a target topic does
    not fit, the replay is not approved, or Spark can't be started.
    """
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    if flow.transform is not None:
        raise Failure(
            error(
                f"flow.{flow.name} has a transform, and a replay copies records as they are: what the"
                " transform filters, sets or drops would reach the destination",
                f"repl salvage {flow.name} --export FILE writes the records, and repl try {flow.name}"
                " --sample FILE --json shows what the transform makes of them: write those that travel"
                " yourself",
                source=flow.source,
                exit=ExitCode.REFUSED,
            )
        )
    if flow.state not in ENDED:
        raise _still_copies(flow.name, flow.state.value)
    asked = _request(topology, flow, request, interaction.progress)
    seen = answered(read_salvage(asked, ignore_record))
    if seen.state not in ENDED:
        raise _still_copies(seen.flow, f"{seen.state}, as the ledger says")
    replay = _replay_request(request.to, asked, seen) if seen.replayable else None
    interaction.progress(ReplayReady(seen, request.to))
    if replay is None:
        return ReplayResult(seen, ())
    interaction.require(ApproveReplay(seen.destination))
    return ReplayResult(seen, tuple(_replay(topology, flow, request, replay, interaction.progress).parts))


def _request(
    topology: Topology, flow: Flow, request: TopologyRequest, progress: ProgressHandler
) -> SalvageRequest:
    job = job_spec(topology, flow, request.timeout_ms, progress)
    spec = job.flow(flow.name)
    source, destination = job.clusters[spec.source], job.clusters[spec.destination]
    return SalvageRequest(spec, source, destination, router_of(topology), request.timeout_ms / 1000)


def _replay_request(to: str | None, asked: SalvageRequest, seen: SalvageView) -> ReplayRequest:
    from runtime.replay.request import parts, targets, unfit

    wanted = seen.replayable
    topics = sorted({one.destination_topic for one in wanted} | ({to} if to is not None else set()))
    known = answered(targets(asked.destination, seen.destination, topics))
    problems = [
        error(f"{seen.destination}: {what}", way_out) for what, way_out in unfit(wanted, to, known).items()
    ]
    if problems:
        raise Failure(problems)
    return ReplayRequest(
        flow=asked.flow,
        source=asked.source,
        destination=asked.destination,
        parts=parts(wanted, to, known),
        within_s=asked.within_s,
    )


def _replay(
    topology: Topology,
    flow: Flow,
    request: ReplaySalvageRequest,
    replay: ReplayRequest,
    progress: ProgressHandler,
) -> ReplayOutcome:
    from runtime import replay as application
    from runtime.replay.request import decode_outcome, encode_request

    cluster = topology.clusters[flow.destination_cluster]
    endpoint = endpoints_of([cluster])[cluster.name]
    log.ensure(endpoint, [naming.LEASE], topology.internal)
    main = Path(application.__file__).with_name("main.py")
    with leased(
        endpoint,
        name="salvage",
        topology=topology.name,
        plan=f"salvage {flow.name}",
        lock_timeout_ms=request.lock_timeout_ms,
        progress=progress,
    ):
        outcome = decode_outcome(on_spark(main, encode_request(replay), "salvage: ", progress))
    if outcome.refused:
        raise Failure(error(outcome.refused, "repl status shows its state"), ExitCode.REFUSED)
    if outcome.cluster:
        raise Failure(
            error(
                f"{outcome.cluster}: {outcome.why}",
                "run it again: it continues behind what was replayed, and nothing is copied twice",
            )
        )
    return outcome


def _still_copies(flow: str, state: str) -> Failure:
    return Failure(
        error(
            f"flow.{flow} is {state}: it copies what is left by itself when it runs, so nothing is replayed",
            "a flow is replayed once it is promoted or failed over; repl status shows what is left to copy",
            exit=ExitCode.REFUSED,
        )
    )
