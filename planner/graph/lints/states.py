"""Lints of flow states that contradict each other in the YAML alone. Guards judge transitions later."""

from collections.abc import Iterator

from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.topology import RUNNING, Flow, Topology


def states(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each reverse flow that does not fit its original."""
    first: dict[str, str] = {}
    for flow in sorted(topology.flows.values(), key=lambda one: one.name):
        if flow.reverse_of is None:
            continue
        original = topology.flows.get(flow.reverse_of)
        if original is None:
            yield _refused(
                flow,
                f"reverses {flow.reverse_of}, and there is no such flow",
                "name in reverse_of the flow that it reverses, or remove this flow",
                "reverse-unknown",
            )
            continue
        yield from _pair(flow, original)
        if flow.reverse_of in first:
            yield _refused(
                flow,
                f"reverses {flow.reverse_of}, as {first[flow.reverse_of]} does already",
                "keep one of them",
                "reverse-twice",
            )
        first.setdefault(flow.reverse_of, flow.name)


def _pair(flow: Flow, original: Flow) -> Iterator[Diagnostic]:
    """Checks one reverse flow against its original."""
    if original.reverse_of is not None:
        yield _refused(
            flow,
            f"reverses {original.name}, which is a reverse flow itself",
            f"to fail over again, set the state of {original.reverse_of}",
            "reverse-of-reverse",
        )
    ends = (original.destination_cluster, original.source_cluster)
    if (flow.source_cluster, flow.destination_cluster) != ends:
        yield _refused(
            flow,
            f"does not reverse {original.name}: that goes from {ends[1]} to {ends[0]}",
            f"write from: {ends[0]} and to: {ends[1]}",
            "reverse-ends",
        )
    if original.state in RUNNING and flow.state in RUNNING:
        yield _refused(
            flow,
            f"reverses {original.name} while that is {original.state.value}: each would copy what the other"
            " wrote",
            f"set {original.name} to promoted or failed_over, or, once all records are copied back, set"
            " this flow to promoted",
            "reverse-running",
        )


def _refused(flow: Flow, what: str, way_out: str, code: str) -> Diagnostic:
    return error(
        f"flow.{flow.name} {what}",
        way_out,
        address=str(flow_address(flow.name)),
        source=flow.source,
        code=code,
        exit=ExitCode.REFUSED,
    )
