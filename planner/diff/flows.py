"""Flows as they are wanted × as they run, or were applied → changes, field by field."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.diff.destination_jobs import (
    DestinationJobs,
    blocked,
    destination_jobs,
    elsewhere,
    left_over,
    wanted_jobs,
)
from planner.diff.moving import forgotten_at_destination, left_behind, moved_flow
from planner.diff.promoted import promoted_notes, promoted_reason
from planner.diff.record import flow_entry
from planner.diff.spec_fields import flow_fields, moved, new_flow_fields
from planner.diff.topics import ADOPTED, NOT_DECLARED
from planner.model.address import Kind, flow_address
from planner.model.change import Action, Change, FieldChange, Value
from planner.model.desired import Desired, DesiredFlow, DesiredJob
from planner.model.observed import Observed
from planner.model.owned import RegistryEntry
from planner.model.topology import RUNNING
from runtime.contract.spec.jobspec import AtOffsets, FlowSpec

_NAMED = 20  # topics of a failback that are shown by name
RESUMES = "if it comes back it resumes from its ledger: nothing is lost or copied twice"


def flow_changes(desired: Desired, observed: Observed) -> list[Change]:
    """One for every flow whose destination could be read, wanted or left over."""
    found = destination_jobs(observed)
    flows = {one.flow.name: one for one in desired.flows}
    unselected = {
        one.flow.name for one in desired.flows if not one.selection_known and one.flow.state in RUNNING
    }
    changes: list[Change] = []
    wanted: set[str] = set()
    for job, destination in wanted_jobs(desired):
        wanted.update(job.flows)
        if destination in found:
            changes += (
                _wherever(flow, job, found, desired.topology, flows.get(flow.name))
                for flow in job.spec.flows  # type: ignore[union-attr]  # wanted_jobs leaves out those without
                if flow.name not in unselected
            )
        else:
            why = f"(unknown: {destination} unreachable)"
            changes += (
                Change(flow_address(name), Action.UNKNOWN, why)
                for name in job.flows
                if name not in unselected
            )
    for address, standing in left_over(Kind.FLOW, wanted, desired.topology, found):
        changes.append(_removed(standing.entries[address], standing))
    return changes


def _wherever(
    flow: FlowSpec,
    job: DesiredJob,
    found: Mapping[str, DestinationJobs],
    topology: str,
    wanted: DesiredFlow | None,
) -> Change:
    standing = found[flow.destination]
    address = flow_address(flow.name)
    if (stopped_by := blocked(address, standing, topology)) is not None:
        return stopped_by
    before = elsewhere(address, flow.destination, topology, found)
    if before and not standing.has(flow.name, job.job.name):
        return moved_flow(_new(flow, job, standing, wanted), flow, job.job.name, before)
    change = _change(flow, job, standing, topology, wanted)
    return forgotten_at_destination(change, before, flow.destination) if before else change


def _change(
    flow: FlowSpec, job: DesiredJob, standing: DestinationJobs, topology: str, wanted: DesiredFlow | None
) -> Change:
    address = flow_address(flow.name)
    entry = standing.flow_entry(flow.name)
    after = dict(flow_fields(flow))
    known = standing.flow(flow.name, job.job.name)
    if known is None:
        return _new(flow, job, standing, wanted)
    before, owner = known
    fields = _with_provenance_reason(moved(flow_fields(before), after), wanted)
    if owner != job.job.name:
        fields = (*fields, FieldChange(("job",), owner, job.job.name))
    if not fields:
        fields = _recorded(entry, flow_entry(flow, job.job.name, topology))
    return Change(
        address=address,
        action=Action.UPDATE if fields else Action.NO_OP,
        reason=promoted_reason(fields, wanted) or _reason(fields, adopted=entry is None),
        fields=fields,
        before=dict(flow_fields(before)),
        after=after,
        unchanged=len(after) - len(fields),
        adopted=entry is None,
        notes=(*promoted_notes(fields, wanted), *_notes(fields, flow)),
    )


def _new(flow: FlowSpec, job: DesiredJob, standing: DestinationJobs, wanted: DesiredFlow | None) -> Change:
    return Change(
        flow_address(flow.name),
        Action.CREATE,
        f"copied by job.{job.job.name}",
        _new_fields(flow, wanted),
        after=dict(flow_fields(flow)),
        notes=_resuming(flow, standing),
    )


def _with_provenance_reason(
    fields: tuple[FieldChange, ...], wanted: DesiredFlow | None
) -> tuple[FieldChange, ...]:
    """Adds to the field `provenance` why `auto` came to its value."""
    if wanted is None or not wanted.provenance_reason:
        return fields
    note = f"auto: {wanted.provenance_reason}"
    return tuple(replace(one, note=note) if one.key == "provenance" else one for one in fields)


def _new_fields(flow: FlowSpec, wanted: DesiredFlow | None) -> tuple[FieldChange, ...]:
    """Shows what the flow comes to: its groups, why this provenance, and the names that a failback undoes."""
    fields = new_flow_fields(flow)
    if wanted is None:
        return fields
    fields = _with_provenance_reason(fields, wanted)
    if flow.reverse_of is None or not wanted.topics:
        return fields
    mapped = [f"{here} -> {there}" for here, there in wanted.topics[:_NAMED]]
    further = len(wanted.topics) - len(mapped)
    names = (*mapped, f"{further:,} more") if further else tuple(mapped)
    kept = [one for one in fields if one.key not in ("topics.include", "topics.exclude", "rename")]
    at = next(number for number, one in enumerate(kept) if one.key == "provenance")
    return (*kept[:at], FieldChange(("topics",), None, names), *kept[at:])


def _resuming(flow: FlowSpec, standing: DestinationJobs) -> tuple[str, ...]:
    """It was copied before, by whomever: its ledger counts, and not its `start`."""
    known = standing.cluster.generations.get(flow.name)
    if known is None or flow.restart_from is not None:
        return ()
    resumes = "every partition that it knows resumes where it stood, and start is for others alone"
    return (f"its ledger is there (generation {known.number}): {resumes}",)


def _recorded(entry: RegistryEntry | None, wanted: RegistryEntry) -> tuple[FieldChange, ...]:
    """It runs as wanted, and an apply that was cut short did not come to write that down."""
    if entry is None or entry.spec == wanted.spec:
        return ()
    return (FieldChange(("recorded", "spec"), "as before", "as it runs", note="remembered at the cluster"),)


def _reason(fields: Iterable[FieldChange], *, adopted: bool) -> str:
    keys = [one.key for one in fields]
    if "state" in keys:
        return "its state changes"
    if keys:
        return "the topology changed"
    return ADOPTED if adopted else "declared"


def _notes(fields: Iterable[FieldChange], flow: FlowSpec) -> tuple[str, ...]:
    keys = {one.key for one in fields}
    notes = []
    if "restart_from" in keys and flow.restart_from is not None:
        notes.append(
            f"starts over at {flow_fields(flow)['restart_from']}: what was copied from there on is copied a"
            " second time, behind what is there"
        )
        if isinstance(flow.restart_from, AtOffsets):
            notes.append("partitions that restart_from does not name stay where they are")
    if "start" in keys:
        notes.append(
            "start is meant for topics that come new to the flow; those it copies go on where they are"
        )
    if any(_may_leave_topics(one) for one in fields):
        notes.append("mirror topics that it no longer fills stay as they are")
    return tuple(notes)


def _may_leave_topics(field: FieldChange) -> bool:
    """Returns whether the flow may copy fewer topics, or other ones, because this field changed."""
    gained, lost = set(_names(field.new)), set(_names(field.old))
    match field.key:
        case "topics.include":
            return not lost <= gained
        case "topics.exclude":
            return not gained <= lost
        case "topics.default_exclude":
            return field.new is True
        case key:
            return key in ("from", "rename")


def _names(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _removed(entry: RegistryEntry, standing: DestinationJobs) -> Change:
    name = entry.address.name
    known = standing.flow(name, "")
    before = flow_fields(known[0]) if known is not None else None
    return Change(
        address=entry.address,
        action=Action.DELETE,
        reason=NOT_DECLARED,
        before=before,
        notes=(*left_behind(name, known[1] if known is not None else "", standing), RESUMES),
    )
