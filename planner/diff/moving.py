"""A job or a flow whose destination is another one now: it ends where it was, and begins where it goes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.diff.destination_jobs import DestinationJobs, names_of
from planner.diff.spec_fields import flow_fields, launch_fields, metrics_fields, moved
from planner.model.change import Action, Change, FieldChange, Value
from planner.model.desired import DesiredJob
from runtime.contract.spec.jobspec import FlowSpec, JobSpec

DESTINATION = "destination"


def moved_job(
    change: Change, job: DesiredJob, here: DestinationJobs, before: Sequence[DestinationJobs]
) -> Change:
    """`change` is what happens at its destination; `before` are the others that hold it."""
    spec, name = job.spec, job.job.name
    assert spec is not None
    there = next((one for one in before if one.runs(name)), None)
    if here.runs(name) and there is None:
        return forgotten_at_destination(change, before, spec.destination)
    old = there.job(name) if there is not None else None
    known = old.spec if old is not None else None
    fields = (
        FieldChange((DESTINATION,), names_of(before), spec.destination),
        *(moved(_shown(known), _shown(spec)) if known is not None else ()),
    )
    return replace(
        change,
        action=Action.REPLACE,
        reason=f"moves from {names_of(before)} to {spec.destination}: stopped at {names_of(before)} first",
        fields=fields,
        before=_state(known) if known is not None else {DESTINATION: names_of(before)},
        after=_state(spec),
        unchanged=0,
        adopted=False,
    )


def moved_flow(change: Change, flow: FlowSpec, job: str, before: Sequence[DestinationJobs]) -> Change:
    """`change` creates it at its destination."""
    old = before[0]
    known = old.flow(flow.name, job)
    after = flow_fields(flow)
    fields: tuple[FieldChange, ...] = (FieldChange(("to",), old.cluster.name, flow.destination),)
    if known is not None:
        fields = moved(flow_fields(known[0]), after)
        if known[1] != job:
            fields = (*fields, FieldChange(("job",), known[1], job))
    return replace(
        change,
        action=Action.REPLACE,
        reason=f"moves from {names_of(before)} to {flow.destination}: it ends at {names_of(before)} first",
        fields=fields,
        before=dict(flow_fields(known[0])) if known is not None else {"to": old.cluster.name},
        unchanged=len(after) - len(fields) if known is not None else 0,
        notes=(*change.notes, *_left_there(flow, known, before), *_begins(change, after, flow)),
    )


def _left_there(
    flow: FlowSpec, known: tuple[FlowSpec, str] | None, before: Sequence[DestinationJobs]
) -> tuple[str, ...]:
    owner = known[1] if known is not None else ""
    notes = [
        f"at {one.cluster.name}: {note}" for one in before for note in left_behind(flow.name, owner, one)
    ]
    return (
        *notes,
        f"its topics and its ledger stay at {names_of(before)}: moved back, it resumes from them",
    )


def _begins(change: Change, after: Mapping[str, Value], flow: FlowSpec) -> tuple[str, ...]:
    """Nothing is said twice where a ledger tells where it stands."""
    if change.notes:
        return ()
    return (f"nothing of it is at {flow.destination}: it begins by its start, {after['start']}",)


def forgotten_at_destination(change: Change, before: Sequence[DestinationJobs], destination: str) -> Change:
    """An apply that was cut short after the start did not come to that."""
    note = f"no longer remembered at {names_of(before)}"
    field = FieldChange(("recorded", DESTINATION), names_of(before), destination, note=note)
    idle = change.action is Action.NO_OP
    return replace(
        change,
        action=Action.UPDATE if idle else change.action,
        reason="only what is remembered of it changes" if idle else change.reason,
        fields=(*change.fields, field),
    )


def left_behind(flow: str, job: str, standing: DestinationJobs) -> tuple[str, ...]:
    """What is not copied yet, and the groups that no longer follow."""
    notes = []
    live = standing.job(job)
    if live is not None and (lag := live.lag.get(flow)) is not None:
        as_of = "" if live.live else ", as its job last said"
        records = "1 record" if lag == 1 else f"{lag:,} records"
        notes.append(f"leaves {records} uncopied at the source{as_of}" if lag else f"it is caught up{as_of}")
    else:
        notes.append("what it leaves uncopied at the source is not known: no slot tells of it now")
    spec = live.flow(flow) if live is not None else None
    if spec is not None and spec.groups.sync:
        which = ", ".join(spec.groups.selection.include)
        notes.append(f"offsets of the consumer groups {which} are no longer translated")
    return tuple(notes)


def _shown(spec: JobSpec) -> dict[str, Value]:
    flows = tuple(f"{flow.name} ({flow.state})" for flow in spec.flows)
    return {"flows": flows, **launch_fields(spec), **metrics_fields(spec)}


def _state(spec: JobSpec) -> dict[str, object]:
    return {DESTINATION: spec.destination, **_shown(spec)}
