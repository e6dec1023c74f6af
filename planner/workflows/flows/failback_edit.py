"""A failback as an edit of the topology: reverse flows are added, or set to active again."""

from collections.abc import Callable, Iterable
from pathlib import Path

from planner.config.edit import with_reverse_flow, with_state
from planner.config.files import text_to_edit
from planner.graph.routes import Failback, without_covered
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import FlowState, Topology
from planner.workflows.interaction import ProgressHandler
from planner.workflows.planning.plans import see


def without_others(
    topology: Topology, coming: Iterable[Failback], timeout_ms: int, progress: ProgressHandler
) -> list[Failback]:
    """Leaves out of new reverse flows the topics that other flows copy back already."""
    listed = list(coming)
    if all(one.back is not None for one in listed):
        return listed
    observed = see(topology, timeout_ms, progress=progress).observed
    names = {
        name: frozenset(live.topics) if (live := observed.reachable(name)) is not None else frozenset()
        for name in observed.clusters
    }
    return [
        without_covered(one, topology, names[one.flow.source_cluster], names[one.flow.destination_cluster])
        if one.back is None
        else one
        for one in listed
    ]


def with_failback_flows(topology: Topology, failbacks: Iterable[Failback]) -> dict[Path, str]:
    """Returns the edited text of each file, also of files that stay as they are."""
    after: dict[Path, str] = {}
    for one in failbacks:
        if one.back is None:
            _free(one, topology)
            _edit(after, one.flow.source, one.flow.name, _adding(one))
        else:
            _edit(after, one.back.source, one.back.name, _running(one.back.name, one.back.state))
    return after


def _free(one: Failback, topology: Topology) -> None:
    other = topology.flows.get(one.name)
    if other is not None:
        raise Failure(
            error(
                f"the reverse flow of {one.flow.name} would be {one.name}, and another flow has that name",
                f"rename that flow, or write the reverse flow yourself, with reverse_of: {one.flow.name}",
                source=other.source,
            )
        )


def _adding(one: Failback) -> Callable[[str], str | None]:
    return lambda text: with_reverse_flow(
        text, one.flow.name, one.name, one.exclude, job=one.job, groups=not one.covered
    )


def _running(name: str, state: FlowState) -> Callable[[str], str | None]:
    if state is FlowState.ACTIVE:
        return lambda text: text
    return lambda text: with_state(text, name, FlowState.ACTIVE.value)


def _edit(
    after: dict[Path, str], source: SourceLocation | None, name: str, edit: Callable[[str], str | None]
) -> None:
    if source is None:
        raise Failure(error(f"flow.{name} is in no file"))
    file = Path(source.file)
    edited = edit(after[file] if file in after else text_to_edit(file))
    if edited is None:
        raise Failure(
            error(
                f"{source.file}: nothing can be written beside flow {name}",
                f"add a flow with reverse_of: {name}, from and to swapped, by hand; then run this again",
                source=source,
            )
        )
    after[file] = edited


def check_failback_edit(topology: Topology, failbacks: Iterable[Failback]) -> None:
    """Failure where the edit has not the intended effect."""
    for one in failbacks:
        back = topology.flows.get(one.name)
        if back is None or back.state is not FlowState.ACTIVE:
            raise Failure(error(f"the state of flow {one.name} is set elsewhere", "edit it by hand"))
