"""Guards of topics that a flow promotes on their own (`promoted`)."""

from collections.abc import Iterable, Iterator, Sequence

from planner.diff.flows import gone_patterns, new_patterns
from planner.graph.messages import listed, nearest
from planner.model.address import Kind, flow_address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredFlow
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.topology import RUNNING, Flow, FlowState
from runtime.contract.spec.selection import NamePatterns


def promotions(changes: Iterable[Change], desired: Desired) -> Iterator[Diagnostic]:
    """Yields refusals of promotions that can't be done or undone."""
    flows = {one.flow.name: one for one in desired.flows}
    for change in changes:
        known = flows.get(change.address.name) if change.address.kind is Kind.FLOW else None
        if known is None or change.action is not Action.UPDATE or known.flow.state not in RUNNING:
            continue
        removed, new = gone_patterns(change.fields), new_patterns(change.fields)
        if removed and not _restarts(known.flow, change):
            yield _refuse_taken_back(known.flow, removed)
        if new:
            yield from _refuse_new(known, new)


def _restarts(flow: Flow, change: Change) -> bool:
    """Returns whether the flow starts again with this very change.

    An out-of-date file may name an older restart_from or reverse flow. Whether a flow that ended may come
    back is decided with its state.
    """
    moved = {one.path: one.old for one in change.fields}
    flow_steps = flow.restart_from is not None and ("restart_from",) in moved
    came_back = moved.get(("state",), FlowState.ACTIVE.value) not in RUNNING
    return flow.state is FlowState.ACTIVE and (flow_steps or came_back)


def _refuse_taken_back(flow: Flow, removed: Sequence[str]) -> Diagnostic:
    """Refuses to copy promoted topics again without a restart."""
    patterns = ", ".join(removed)
    return _refused(
        flow,
        f"its topics {patterns} were promoted, and can't become active",
        f"write {patterns} under promoted (if somebody did that and this file is older, bring it up to date);"
        " from promoted a topic becomes active with its flow, over a promoted reverse flow (repl failback) or"
        " with a new restart_from",
        "transition",
    )


def _refuse_new(known: DesiredFlow, new: Sequence[str]) -> Iterator[Diagnostic]:
    """Yields refusals of newly promoted topics."""
    flow = known.flow
    if flow.state is FlowState.PAUSED:
        yield _refused(
            flow,
            "it is paused, and topics are promoted while a flow copies: what is left of them comes first",
            f"write state: active (repl resume {flow.name}) before that",
            "transition",
        )
        return
    if not known.selection_known:
        yield source_is_silent(flow)
        return
    here = [topic for topic, _ in known.topics]
    for pattern in new:
        if not any(map(NamePatterns([pattern]).match, known.promoted)):
            yield error(
                f"promoted: {pattern!r} matches none of its topics",
                matches_nothing(pattern, [*here, *known.promoted]),
                address=str(flow_address(flow.name)),
                source=flow.source,
                code="promotes-nothing",
            )
    if not here and known.promoted:
        yield error(
            f"promoted: {', '.join(new)} leaves no topic to copy",
            f"promote the flow: repl promote {flow.name} (state: promoted)",
            address=str(flow_address(flow.name)),
            source=flow.source,
            code="promotes-all",
        )


def source_is_silent(flow: Flow) -> Diagnostic:
    """Refuses a promotion while the source does not answer."""
    return _refused(
        flow,
        f"{flow.source_cluster} does not answer: what is left to copy there can't be copied",
        f"wait until it answers; or give it up: repl failover {flow.source_cluster}",
        "transition",
    )


def matches_nothing(pattern: str, topics: Sequence[str]) -> str:
    """Returns a hint for a pattern that matches no topic: a near name, or the topics that are copied."""
    close = nearest(pattern, topics)
    if close is not None:
        return f"did you mean {close}?"
    return f"it copies {listed(topics)}" if topics else "it copies no topic yet"


def _refused(flow: Flow, what: str, way_out: str, code: str) -> Diagnostic:
    address = str(flow_address(flow.name))
    return error(what, way_out, address=address, source=flow.source, code=code, exit=ExitCode.REFUSED)
