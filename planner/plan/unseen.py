"""Flows whose source does not answer. Nothing is planned for them, but their job is told what the file says.

So a file that is out of date is refused here too, or it would undo a failover as soon as the source is back.
"""

from collections.abc import Iterator, Sequence

from planner.diff.compare import changed_fields
from planner.diff.destination_jobs import destination_jobs, elsewhere, wanted_jobs
from planner.diff.spec_values import flow_values
from planner.model.address import flow_address
from planner.model.change import Action, Change
from planner.model.desired import Desired
from planner.model.observed import Observed


def unseen(desired: Desired, observed: Observed, changes: Sequence[Change]) -> Iterator[Change]:
    """What would change, for the guards alone."""
    unknown = {one.address for one in changes if one.action is Action.UNKNOWN}
    found = destination_jobs(observed)
    for job, destination in wanted_jobs(desired):
        for flow in job.spec.flows if job.spec is not None and destination in found else ():
            address = flow_address(flow.name)
            before = elsewhere(address, destination, desired.topology, found)
            held = next((one for one in (found[destination], *before) if one.flow_entry(flow.name)), None)
            known = (held or found[destination]).flow(flow.name, job.job.name)
            if address in unknown and known is not None:
                fields = changed_fields(flow_values(known[0]), flow_values(flow))
                action = Action.REPLACE if held in before else Action.UPDATE
                yield Change(address, action, "its source does not answer", fields)
