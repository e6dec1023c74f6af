"""Jobs and flows that are not as they were applied: dead, run otherwise, or by nobody."""

from collections.abc import Iterator

from planner.diff.destination_jobs import DestinationJobs, destination_jobs
from planner.diff.jobs import last_heartbeat
from planner.diff.record import STATE, recorded_flow
from planner.diff.spec_fields import flow_fields, moved
from planner.model.address import Kind
from planner.model.change import Action, Change, FieldChange
from planner.model.observed import Observed
from planner.model.owned import RegistryEntry

AS_APPLIED = "as applied"
OUTSIDE = "changed outside the topology"


def drifted_jobs(topology: str, observed: Observed) -> Iterator[Change]:
    for standing in destination_jobs(observed).values():
        for entry in standing.entries.values():
            if entry.topology != topology:
                continue
            if standing.unreadable:
                yield Change(entry.address, Action.UNKNOWN, f"(unknown: {standing.unreadable})")
            elif entry.address.kind is Kind.JOB:
                yield _job(entry, standing)
            else:
                yield _flow(entry, standing)


def _job(entry: RegistryEntry, standing: DestinationJobs) -> Change:
    live = standing.job(entry.address.name)
    if live is not None and live.live:
        return Change(entry.address, Action.NO_OP, AS_APPLIED)
    field = FieldChange((STATE,), "running", "not running", note=last_heartbeat(live))
    return Change(
        entry.address,
        Action.UPDATE,
        OUTSIDE,
        (field,),
        before={STATE: "running"},
        after={STATE: "not running"},
    )


def _flow(entry: RegistryEntry, standing: DestinationJobs) -> Change:
    applied = recorded_flow(entry)
    known = standing.flow(entry.address.name, "")
    if applied is None or known is None:
        return Change(entry.address, Action.NO_OP, AS_APPLIED)
    before, after = flow_fields(applied), flow_fields(known[0])
    fields = moved(before, after)
    return Change(
        entry.address,
        Action.UPDATE if fields else Action.NO_OP,
        OUTSIDE if fields else AS_APPLIED,
        fields,
        before=dict(before),
        after=dict(after),
        unchanged=len(before) - len(fields),
    )
