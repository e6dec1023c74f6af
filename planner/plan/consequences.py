"""Warnings and notes beside the changes: one message for each matter, not one for each topic."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from planner.diff.record import DestinationJobs
from planner.graph.messages import few
from planner.model.address import flow_address, job_address
from planner.model.desired import Declared, Desired
from planner.model.diagnostic import Diagnostic, note, warning
from planner.model.observed import Observed, Unreachable
from planner.model.plan import WAITS, Action, Change
from planner.model.topology import Cluster
from planner.plan.guards import destroyed_topics
from runtime.contract.views.status_view import PartitionWaits


def consequences(
    desired: Desired,
    observed: Observed,
    changes: Sequence[Change],
    unknown: Mapping[str, str],
    declared: Mapping[str, Cluster],
) -> tuple[Diagnostic, ...]:
    """Returns what a reader of the plan must know beside the changes."""
    return (
        *_unknown(unknown, desired, observed, declared),
        *_possibly_elsewhere(desired, observed, changes, unknown),
        *_growth(desired, changes),
        *_records_lost(changes),
        *_no_authorizer(desired, observed),
    )


def _unknown(
    unknown: Mapping[str, str], desired: Desired, observed: Observed, declared: Mapping[str, Cluster]
) -> Iterator[Diagnostic]:
    """Warns about each unknown object once, unless the observer or the expansion reported it."""
    reported = {one.address for one in (*observed.diagnostics, *desired.diagnostics)}
    for what, why in sorted(unknown.items()):
        if what in reported:
            continue
        cluster = observed.clusters.get(what)
        way_out = (
            cluster.way_out
            if isinstance(cluster, Unreachable)
            else "give the principal of this plan the right to read it"
        )
        source = declared[what].source if what in declared else None
        subject = f"{what} " if source is not None else ""
        yield warning(
            f"{subject}could not be read, so its part of the plan is unknown: {why}",
            way_out or "correct that and plan again",
            address=what,
            source=source,
            code="unknown",
        )


def _possibly_elsewhere(
    desired: Desired, observed: Observed, changes: Iterable[Change], unknown: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Warns where a new flow or job may still run at another destination that can't be read."""
    new = {change.address for change in changes if change.action is Action.CREATE}
    at = {flow_address(one.flow.name): one.flow.destination_cluster for one in desired.flows}
    # A job without a declared name has its destination's name.
    at |= {job.address: job.spec.destination for job in desired.jobs if job.spec is not None}
    named = [one for one in sorted(at) if one in new and one != job_address(at[one])]
    for cluster in sorted(observed.clusters):
        live = observed.reachable(cluster)
        some = [one for one in named if at[one] != cluster]
        if some and (cluster in unknown or (live is not None and DestinationJobs.at(live).unreadable)):
            yield warning(
                f"{cluster} could not be read: if {few(some)} runs at {cluster} too, it is not stopped now",
                f"an apply that can read {cluster} stops it; until then nothing is lost or copied twice",
                code="perhaps-elsewhere",
            )


def _growth(desired: Desired, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Warns that more partitions move keys to other partitions."""
    declared = {one.address for one in desired.topics if isinstance(one.origin, Declared)}
    growing = [
        change.address
        for change in changes
        if change.address in declared
        and any(
            one.path == ("partitions",)
            and isinstance(one.old, int)
            and isinstance(one.new, int)
            and one.new > one.old
            for one in change.fields
        )
    ]
    if growing:
        yield warning(
            f"{few(growing)}: more partitions move keys: a key's new records go to another partition "
            "than its old ones",
            "consumers that need the order of a key must read the old records first",
            code="keys-move",
        )


def _records_lost(changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Warns that topics are deleted with their records."""
    deleted = [change for change in destroyed_topics(changes) if change.notes]
    if deleted:
        yield warning(
            f"{few([change.address for change in deleted])}: deleted with their records",
            "repl keeps no copy of them",
            code="records-lost",
        )


def _no_authorizer(desired: Desired, observed: Observed) -> Iterator[Diagnostic]:
    """Notes clusters that have no authorizer, so that ACLs are left out."""
    for name in sorted({acl.rule.cluster for acl in desired.acls}):
        cluster = observed.reachable(name)
        if cluster is not None and cluster.acls is None and not cluster.unreadable.get("acls"):
            yield note(
                f"{name} has no authorizer: its ACLs are left out",
                "set authorizer.class.name on its brokers to use them",
                code="no-authorizer",
            )


WaitKey = tuple[str, str, str]  # flow, state, next step


def warnings_of(waits: Iterable[PartitionWaits]) -> Iterator[Diagnostic]:
    """Yields a warning for partitions that wait for a decision, with the next step as the hint."""
    for (flow, state, step), found in by_step(waits):
        named = few([f"{one.topic}-{one.partition}" for one in found])
        why = f": {found[0].why}" if found[0].why else ""
        yield warning(f"{named}: {state}{why}", f"next: {step}", address=str(flow_address(flow)), code=WAITS)


def by_step(waits: Iterable[PartitionWaits]) -> Iterator[tuple[WaitKey, list[PartitionWaits]]]:
    """Yields the waiting partitions, grouped by flow, state and next step."""

    def wait_key(one: PartitionWaits) -> WaitKey:
        return one.flow, one.state, one.next

    for key, found in groupby(sorted(waits, key=wait_key), wait_key):
        yield key, list(found)
