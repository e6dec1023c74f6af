"""Guards of flow states and promoted topics: which state may follow which.

An out-of-date file never undoes a failover or a promotion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from planner.diff.compare import changed_fields
from planner.diff.flows import promoted_patterns
from planner.diff.record import destination_jobs, elsewhere, wanted_jobs
from planner.diff.typed_values import flow_values
from planner.graph.messages import flow_diagnostic, flow_refused, listed, nearest
from planner.graph.routes import opposite_of
from planner.model.address import Kind, flow_address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredFlow
from planner.model.diagnostic import Diagnostic, error
from planner.model.observed import Observed
from planner.model.topology import Flow, Topology
from runtime.contract.records.failback import can_start_failback, is_restarting
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.flow import ENDED, RUNNING, FlowState
from runtime.contract.spec.selection import NamePatterns

NEXT = {
    "active": "paused, promoted or failed_over",
    "paused": "active, promoted or failed_over",
}


def transitions(changes: Sequence[Change], topology: Topology, observed: Observed) -> Iterator[Diagnostic]:
    """Yields a refusal for each flow that can't change to its new state."""
    states = {
        change.address.name: cast(FlowState, change.before["state"])
        for change in changes
        if change.address.kind is Kind.FLOW and change.before is not None
    }
    for change in changes:
        flow = topology.flows.get(change.address.name) if change.address.kind is Kind.FLOW else None
        if flow is None or change.action not in (Action.CREATE, Action.UPDATE, Action.REPLACE):
            continue
        moved = {field.path: field.old for field in change.fields}
        before, by = cast(FlowState | None, moved.get(("state",))), ""
        restarts = flow.restart_from is not None and ("restart_from",) in moved
        if change.action is Action.REPLACE and before and not {before, flow.state} <= set(RUNNING):
            yield _ends_and_moves(change, before, flow)
            continue
        if change.action is not Action.UPDATE:
            # A flow of this name may have ended at this destination: then its ledger is still there.
            last = _generation(flow, observed)
            before = last.state if last is not None and last.state in ENDED else None
            restarts = last is not None and is_restarting(flow, last)
            by = f" by its ledger at {flow.destination_cluster}"
        if before is None or before in (flow.state, *RUNNING) or _gives_up_promotion(flow, observed):
            continue
        may_restart = restarts or _may_restart(flow, topology, states, observed)
        if flow.state != "active" or not may_restart:
            summary = f"was {before}{by}, and can't become {flow.state}"
            yield flow_refused(flow, summary, _hint(before, flow), "transition")


def _gives_up_promotion(flow: Flow, observed: Observed) -> bool:
    """Returns whether the flow fails over while its promotion is not complete: its source may be gone."""
    cluster = observed.reachable(flow.destination_cluster)
    job = cluster.job(flow.job) if cluster is not None else None
    return flow.state == "failed_over" and job is not None and job.live and flow.name in job.ending


def _ends_and_moves(change: Change, before: FlowState, flow: Flow) -> Diagnostic:
    """Refuses to end a flow and move it in one plan: the ledger of its end stays at the old destination."""
    to = change.field("to")
    old = str(to.old) if to is not None else ""
    return flow_refused(
        flow,
        f"was {before} at {old}, and can't become {flow.state} at {flow.destination_cluster}",
        f"give the flow to {flow.destination_cluster} a name of its own"
        if before not in RUNNING
        else f"let it end at {old} first: with to: {old} and state: {flow.state}",
        "transition",
    )


def _may_restart(flow: Flow, topology: Topology, states: Mapping[str, FlowState], observed: Observed) -> bool:
    """Returns whether the flow may run again because its opposite ended.

    The opposite must have started where this flow ended. Only the ledgers tell that: an out-of-date file
    looks the same.
    """
    opposite = opposite_of(flow, topology)
    before = states.get(opposite.name) if opposite is not None else None
    if opposite is None or opposite.runs:
        return False
    if before in RUNNING:
        return flow.reverse_of is None
    mine, theirs = _generation(flow, observed), _generation(opposite, observed)
    return mine is not None and theirs is not None and can_start_failback(mine, theirs)


def _generation(flow: Flow, observed: Observed) -> Generation | None:
    cluster = observed.reachable(flow.destination_cluster)
    return cluster.generations.get(flow.name) if cluster is not None else None


def may_follow(state: FlowState) -> str:
    """Returns the legal next states of a state, as a clause."""
    legal = NEXT.get(state, "active, over a promoted reverse flow (repl failback) or with restart_from")
    return f"from {state} a flow becomes {legal}"


def _hint(before: FlowState, flow: Flow) -> str:
    """Returns the hint for a flow that ended. From a running state every transition is legal."""
    stay = f"write state: {before} (if this file is older than that change, update it)"
    back = (
        "from there a flow becomes active again over a promoted reverse flow"
        f" (repl failback {flow.source_cluster}, then --switch) or with a new restart_from"
    )
    return f"{stay}; {back}" if flow.runs else f"{stay}; {back} only"


def changes_of_silent_sources(
    desired: Desired, observed: Observed, changes: Sequence[Change]
) -> Iterator[Change]:
    """Yields what would change for flows whose source does not answer, for the guards alone.

    Nothing is planned for these flows, but their job gets the new spec. An out-of-date file is refused here
    too: otherwise it would undo a failover as soon as the source answers again.
    """
    unknown = {change.address for change in changes if change.action is Action.UNKNOWN}
    jobs_by_destination = destination_jobs(observed)
    for job, spec in wanted_jobs(desired):
        for flow in spec.flows if spec.destination in jobs_by_destination else ():
            address, here = flow_address(flow.name), jobs_by_destination[spec.destination]
            before = elsewhere(address, spec.destination, desired.topology, jobs_by_destination)
            held = next((place for place in (here, *before) if place.flow_entry(flow.name)), None)
            recorded = (held or here).flow(flow.name, job.job.name)
            if address in unknown and recorded is not None:
                fields = changed_fields(flow_values(recorded.spec), flow_values(flow))
                action = Action.REPLACE if held in before else Action.UPDATE
                yield Change(address, action, "its source does not answer", fields)


def promotions(changes: Iterable[Change], desired: Desired, topology: Topology) -> Iterator[Diagnostic]:
    """Yields refusals of promotions that can't be done or undone."""
    flows = {flow.flow.name: flow for flow in desired.flows}
    for change in changes:
        desired_flow = flows.get(change.address.name) if change.address.kind is Kind.FLOW else None
        if desired_flow is None or change.action is not Action.UPDATE or not desired_flow.flow.runs:
            continue
        new, removed = promoted_patterns(change.fields)
        if removed and not _restarts(desired_flow.flow, change):
            yield _refuse_taken_back(desired_flow.flow, removed)
        if new:
            yield from _refuse_new(desired_flow, new, topology)


def _restarts(flow: Flow, change: Change) -> bool:
    """Returns whether the flow starts again with this very change.

    An out-of-date file may name an older restart_from or reverse flow. Whether a flow that ended may come
    back is decided with its state.
    """
    moved = {field.path: field.old for field in change.fields}
    flow_steps = flow.restart_from is not None and ("restart_from",) in moved
    came_back = moved.get(("state",), "active") not in RUNNING
    return flow.state == "active" and (flow_steps or came_back)


def _refuse_taken_back(flow: Flow, removed: Sequence[str]) -> Diagnostic:
    """Refuses to copy promoted topics again without a restart."""
    patterns = ", ".join(removed)
    return flow_refused(
        flow,
        f"its topics {patterns} were promoted, and can't become active",
        f"write {patterns} under promoted (if this file is older than that change, update it);"
        " from promoted a topic becomes active with its flow, over a promoted reverse flow (repl failback) or"
        " with a new restart_from",
        "transition",
    )


def _refuse_new(desired_flow: DesiredFlow, new: Sequence[str], topology: Topology) -> Iterator[Diagnostic]:
    """Yields refusals of newly promoted topics.

    A flow of a cutover may have nothing to copy for a while: topics of later waves may be created.
    """
    flow = desired_flow.flow
    if flow.state == "paused":
        yield flow_refused(
            flow,
            "it is paused, and a topic is promoted only after the flow has copied the rest of it",
            f"write state: active (repl resume {flow.name}) before that",
            "transition",
        )
        return
    if not desired_flow.selection_known:
        yield source_is_silent(flow)
        return
    copied = [topic for topic, _ in desired_flow.topics]
    for pattern in new:
        if not any(map(NamePatterns([pattern]).match, desired_flow.promoted)):
            summary = f"promoted: {pattern!r} matches none of its topics"
            hint = matches_nothing(pattern, [*copied, *desired_flow.promoted])
            yield flow_diagnostic(error, flow, summary, hint, "promotes-nothing")
    has_waves = any(flow.name in cutover.flows and len(cutover.waves) > 1 for cutover in topology.cutovers)
    if not copied and desired_flow.promoted and not has_waves:
        summary = f"promoted: {', '.join(new)} leaves no topic to copy"
        hint = f"promote the flow: repl promote {flow.name} (state: promoted)"
        yield flow_diagnostic(error, flow, summary, hint, "promotes-all")


def source_is_silent(flow: Flow) -> Diagnostic:
    """Refuses a promotion while the source does not answer."""
    return flow_refused(
        flow,
        f"{flow.source_cluster} does not answer: the remaining records can't be copied",
        f"wait until it answers; or give it up: repl failover {flow.source_cluster}",
        "transition",
    )


def matches_nothing(pattern: str, topics: Sequence[str]) -> str:
    """Returns a hint for a pattern that matches no topic: a near name, or the topics that are copied."""
    close = nearest(pattern, topics)
    if close is not None:
        return f"did you mean {close}?"
    return f"it copies {listed(topics)}" if topics else "it copies no topic yet"
