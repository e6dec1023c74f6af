"""A failback as an edit of the topology: ways home are added, or run again."""

from collections.abc import Callable, Iterable
from pathlib import Path

from planner.cli.pipeline import see
from planner.config.edit.flow_key import with_state
from planner.config.edit.reverse_flow import with_way_back
from planner.config.files import text_to_edit
from planner.graph.failback import Failback, without_covered
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import FlowState, Topology


def without_others(topology: Topology, coming: Iterable[Failback], timeout_ms: int) -> list[Failback]:
    """Ways home that are still to be made leave to other flows what those bring home already."""
    listed = list(coming)
    if all(one.back is not None for one in listed):
        return listed
    observed = see(topology, timeout_ms).observed
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


def with_ways_home(topology: Topology, pending_failbacks: Iterable[Failback]) -> dict[Path, str]:
    """The files with what is to be written; files that stay as they are, too."""
    after: dict[Path, str] = {}
    for one in pending_failbacks:
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
    return lambda text: with_way_back(
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
        raise Failure(error(f"flow.{name} stands in no file"))
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


def really_home(topology: Topology, pending_failbacks: Iterable[Failback]) -> None:
    """Raises Failure where the edit did not come to what was meant."""
    for one in pending_failbacks:
        back = topology.flows.get(one.name)
        if back is None or back.state is not FlowState.ACTIVE:
            raise Failure(error(f"the state of flow {one.name} comes from elsewhere", "edit it by hand"))
