"""Partitions that wait for a decision, as a plan tells them: a warning for each flow and state. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from planner.graph.messages import few
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, warning
from planner.model.plan import WAITS
from runtime.contract.views.status_view import PartitionWaits

Alike = tuple[str, str, str]  # flow, state, next step


def warnings_of(waits: Iterable[PartitionWaits]) -> Iterator[Diagnostic]:
    """Yields what waits and why, with the next step as the way out."""
    for (flow, state, step), found in by_step(waits):
        named = few([f"{one.topic}-{one.partition}" for one in found])
        why = f": {found[0].why}" if found[0].why else ""
        yield warning(f"{named}: {state}{why}", f"next: {step}", address=str(flow_address(flow)), code=WAITS)


def by_step(waits: Iterable[PartitionWaits]) -> Iterator[tuple[Alike, list[PartitionWaits]]]:
    """Yields the partitions of each flow that are in one state and have one next step."""

    def alike(one: PartitionWaits) -> Alike:
        return one.flow, one.state, one.next

    for key, found in groupby(sorted(waits, key=alike), alike):
        yield key, list(found)
