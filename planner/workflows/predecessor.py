"""Flows begin where the tool that they replace stopped: `repl import --take-over` and `--from-group`.

The positions are read of live clusters and become `start: {offsets: …}`: `Predecessor.start_of`
decides that, and is pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct, structs

from planner.graph.messages import few
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error, note, warning
from planner.model.topology import Flow, Topology
from planner.workflows.audit.access import answered, flow_accesses
from runtime.audit.predecessor.alignment import CopiedPartition
from runtime.audit.predecessor.progress import PredecessorProgress, progress_of_all
from runtime.contract.predecessor import ConnectOffsets, GroupCommits, StoredPositions
from runtime.contract.spec.flow import AtOffsets, Earliest, Latest, Start

_SHOWN = 5


class Predecessor(Struct, frozen=True):
    """The tool that copied so far, and where it keeps its positions, by the flow that replaces it.

    With `force`, signs that it still runs, and positions beyond the end of a log, are warnings.
    """

    tool: str
    positions: Mapping[str, StoredPositions]
    force: bool = False

    async def continued(
        self, topology: Topology, timeout_s: float
    ) -> tuple[Topology, tuple[Diagnostic, ...]]:
        """Reads the positions of each flow. Returns the topology whose flows begin there, and diagnostics.

        Failure: a cluster can't be read, the tool still runs (refused), or a flow has no position at all.
        """
        flows = dict(topology.flows)
        accesses = flow_accesses(topology, [flows[name] for name in self.positions], timeout_s)
        all_progress = await answered(progress_of_all(zip(accesses, self.positions.values(), strict=True)))
        diagnostics: list[Diagnostic] = []
        for name, progress in zip(self.positions, all_progress, strict=True):
            start, remarks = self.start_of(flows[name], progress)
            flows[name] = structs.replace(flows[name], start=start)
            diagnostics += remarks
        if errors := [problem for problem in diagnostics if problem.severity is Severity.ERROR]:
            raise Failure(errors)
        return replace(topology, flows=flows), tuple(diagnostics)

    def start_of(self, flow: Flow, progress: PredecessorProgress) -> tuple[Start, list[Diagnostic]]:
        """Returns where the flow begins: each partition at the first record that the tool has not copied.

        A partition without a position begins at earliest, or at its present end where the tool would.
        """
        diagnostics = list(self._refusals(flow, progress))
        offsets: dict[str, dict[int, int]] = {}
        for partition in progress.partitions:
            begin = _begin(partition, late=flow.start == Latest())
            if begin is not None:
                offsets.setdefault(partition.topic, {})[partition.partition] = begin
        if not any(partition.next_offset is not None for partition in progress.partitions):
            diagnostics.append(self._no_position(flow, progress))
            return flow.start, diagnostics
        diagnostics += _about_records(flow, progress.partitions, self.tool)
        diagnostics += _about_deleted(flow, progress.partitions, self.tool)
        diagnostics += _without_position(flow, progress.partitions, self.tool)
        return (AtOffsets(offsets) if offsets else Earliest()), diagnostics

    def _refusals(self, flow: Flow, progress: PredecessorProgress) -> Iterable[Diagnostic]:
        """Yields what is refused, or with `force` only warned of."""
        if progress.running:
            what = f"flow {flow.name}: {self.tool} still runs: {progress.running}"
            yield _refused(
                what,
                f"stop {self.tool} and run this again; --force takes its positions as they are now",
                "what it copies from now on arrives twice",
                self.force,
            )
        if beyond := [partition for partition in progress.partitions if _beyond(partition)]:
            ends = [
                f"{_name(partition)} ({partition.next_offset}, the log ends at {partition.log_end})"
                for partition in beyond
            ]
            what = (
                f"flow {flow.name}: the position of {self.tool} is beyond the end of the log at"
                f" {flow.source_cluster}: {few(ends, _SHOWN)}"
            )
            yield _refused(
                what,
                "the topic was recreated, or the log was truncated; --force begins there at earliest",
                "these partitions begin at earliest",
                self.force,
            )

    def _no_position(self, flow: Flow, progress: PredecessorProgress) -> Diagnostic:
        match self.positions[flow.name]:
            case ConnectOffsets(topic=topic, alias=alias):
                where = f"{topic} at {flow.destination_cluster} has none of the source cluster {alias}"
            case GroupCommits(group=group):
                where = f"group {group} has committed none at {flow.source_cluster}"
        selected = len({partition.topic for partition in progress.partitions})
        return error(
            f"flow {flow.name}: {self.tool} has no position in its {selected} topics: {where}",
            "if nothing was copied yet, leave --take-over or --from-group away; else look at the names in the"
            " file",
        )


def commits_of(topology: Topology, groups: Sequence[str]) -> dict[str, GroupCommits]:
    """Returns the group by whose commits each flow of Replicator begins.

    The group of a single flow may be any. Of several flows, each needs the group of its own connector.
    """
    if len(topology.flows) == 1 and len(groups) == 1:
        return {name: GroupCommits(groups[0]) for name in topology.flows}
    group_by_flow = {
        flow.name: flow.origin_commits.group
        for flow in topology.flows.values()
        if flow.origin_commits is not None
    }
    chosen = {flow: group for flow, group in group_by_flow.items() if group in groups}
    if left := [group for group in groups if group not in chosen.values()]:
        names = ", ".join(f"{group} ({flow})" for flow, group in group_by_flow.items()) or "none"
        raise Failure(error(f"no connector of the files commits by group {left[0]}", f"theirs are {names}"))
    if left := [name for name in topology.flows if name not in chosen]:
        groups_left = [f"--from-group {group_by_flow[name]}" for name in left if name in group_by_flow]
        hint = f"give {' '.join(groups_left)} as well, or leave the connector's file out"
        raise Failure(error(f"flow {left[0]} has no group to begin from", hint))
    return {flow: GroupCommits(group) for flow, group in chosen.items()}


def _begin(partition: CopiedPartition, *, late: bool) -> int | None:
    """Returns the first offset to copy; None begins at earliest."""
    if partition.next_offset is None:
        return partition.log_end if late else None
    return None if _beyond(partition) else max(partition.next_offset, partition.log_start)


def _beyond(partition: CopiedPartition) -> bool:
    return partition.next_offset is not None and partition.next_offset > partition.log_end


def _name(partition: CopiedPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _about_records(flow: Flow, partitions: Iterable[CopiedPartition], tool: str) -> Iterable[Diagnostic]:
    """Yields where the mirror's records tell another position than the stored partition, or none."""
    moved = [partition for partition in partitions if partition.by_records not in (None, partition.stored)]
    if moved:
        positions = [
            f"{_name(partition)} ({'none' if (stored := partition.stored) is None else stored} stored,"
            f" {partition.by_records} copied)"
            for partition in moved
        ]
        yield note(
            f"flow {flow.name}: the mirrors' last records tell other positions than {tool} has stored:"
            f" {few(positions, _SHOWN)}; the flow begins behind these records",
        )
    unmatched = [partition for partition in partitions if partition.compared and partition.by_records is None]
    if unmatched:
        yield warning(
            f"flow {flow.name}: the last records in the mirrors of {_counted(unmatched)} were not found at"
            f" {flow.source_cluster} near the stored positions: another producer wrote them, or {tool}"
            " changed them",
            f"the stored positions are taken; if {tool} did not stop cleanly, what it copied after it had"
            " stored them arrives twice",
        )


def _about_deleted(flow: Flow, partitions: Iterable[CopiedPartition], tool: str) -> Iterable[Diagnostic]:
    """Yields the offsets that were deleted before they were copied."""
    deleted = [
        f"{_name(partition)} ({partition.next_offset} to {partition.log_start - 1})"
        for partition in partitions
        if partition.next_offset is not None and partition.next_offset < partition.log_start
    ]
    if deleted:
        yield warning(
            f"flow {flow.name}: offsets were deleted at {flow.source_cluster} before {tool} had copied them:"
            f" {few(deleted, _SHOWN)}",
            f"they are not at {flow.destination_cluster}; these partitions begin at the first offset that is"
            " left",
        )


def _refused(what: str, hint: str, consequence: str, force: bool) -> Diagnostic:
    return warning(what, consequence) if force else error(what, hint, exit=ExitCode.REFUSED)


def _without_position(flow: Flow, partitions: Iterable[CopiedPartition], tool: str) -> Iterable[Diagnostic]:
    """Yields the partitions in which the tool has no position."""
    missing = [partition for partition in partitions if partition.next_offset is None]
    if missing:
        late = flow.start == Latest()
        begin = "the end that they have now" if late else "earliest"
        yield note(f"flow {flow.name}: {tool} has no position in {_counted(missing)}: they begin at {begin}")


def _counted(partitions: Sequence[CopiedPartition]) -> str:
    names = few([_name(partition) for partition in partitions], _SHOWN)
    return f"{len(partitions)} partition{'s' if len(partitions) != 1 else ''} ({names})"
