"""`repl salvage FLOW --replay`: what never reached the other side is copied there after all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from planner.cli import as_json as json_output
from planner.cli.answers import answered
from planner.cli.apply import ask
from planner.cli.endpoints import endpoints_of
from planner.cli.leasing import leased
from planner.cli.printing import print_lines
from planner.cli.spark_once import on_spark
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import ENDED, Flow, Topology
from planner.render.reports.salvage_replay import as_json as document
from planner.render.reports.salvage_replay import done, planned, replayable
from planner.state import log
from runtime.audit.salvage.salvage import SalvageRequest
from runtime.contract.spec import naming
from runtime.contract.views.salvage_view import SalvageView
from runtime.replay.request import ReplayOutcome, ReplayRequest

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplayCommand:
    """`to` is None where every topic goes into the flow's own."""

    topology: Topology
    flow: Flow
    to: str | None
    auto_approve: bool
    lock_timeout: int
    as_json: bool


def refuse_while_running(flow: Flow) -> None:
    """Before any cluster is asked: a flow that copies sends what is left by itself."""
    if flow.state not in ENDED:
        raise _running(flow.name, flow.state.value)


def replay(replaying: ReplayCommand, asked: SalvageRequest, salvaged: Callable[[], SalvageView]) -> int:
    """Shown, asked about, done; the exit code."""
    seen = salvaged()
    if seen.state not in ENDED:
        raise _running(seen.flow, f"{seen.state}, as the ledger says")
    wanted = replayable(seen)
    request = _request(replaying, asked, seen) if wanted else None
    if not replaying.as_json:
        print_lines(lambda width: planned(seen, replaying.to, width))
    outcome = ReplayOutcome()
    if request is not None:
        if not replaying.auto_approve:
            ask(f"Do you want to copy these records into {seen.destination}?", "add --auto-approve")
        outcome = _carried_out(replaying, request)
    parts = outcome.parts
    if replaying.as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **document(seen, replaying.to, parts)})
    elif parts:
        print_lines(lambda width: done(parts, width))
    unfinished = seen.unread or any(one.unread for one in parts)
    return ExitCode.ERROR if unfinished else ExitCode.DONE


def _request(replaying: ReplayCommand, asked: SalvageRequest, seen: SalvageView) -> ReplayRequest:
    from runtime.replay.target import parts, targets, unfit

    wanted, to = replayable(seen), replaying.to
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


def _carried_out(replaying: ReplayCommand, request: ReplayRequest) -> ReplayOutcome:
    from runtime import replay
    from runtime.replay.request import decode_outcome, encode_request

    topology = replaying.topology
    cluster = topology.clusters[replaying.flow.destination_cluster]
    endpoint = endpoints_of([cluster])[cluster.name]
    log.ensure(endpoint, [naming.LEASE], topology.internal)
    main = Path(replay.__file__).with_name("main.py")
    with leased(
        endpoint,
        name="salvage",
        topology=topology.name,
        plan=f"salvage {replaying.flow.name}",
        lock_timeout_ms=replaying.lock_timeout,
    ):
        outcome = decode_outcome(on_spark(main, encode_request(request), "salvage: "))
    if outcome.refused:
        raise Failure(error(outcome.refused, "repl status shows its state"), ExitCode.REFUSED)
    if outcome.cluster:
        raise Failure(
            error(
                f"{outcome.cluster}: {outcome.why}",
                "run it again: it goes on behind what was replayed, and nothing comes twice",
            )
        )
    return outcome


def _running(flow: str, state: str) -> Failure:
    return Failure(
        error(
            f"flow.{flow} is {state}: it copies what is left by itself when it runs, so nothing is replayed",
            "a flow is replayed once it is promoted or failed over; repl status shows what is left to copy",
            exit=ExitCode.REFUSED,
        )
    )
