"""Compares everything that is desired, or was applied, with everything that was observed."""

from collections import defaultdict

from planner.diff.acls import ComparedAcls
from planner.diff.compared import Applied, ComparedKind, Leaving
from planner.diff.flows import ComparedFlows
from planner.diff.jobs import ComparedJobs
from planner.diff.quotas import ComparedQuotas
from planner.diff.schemas import ComparedSubjects
from planner.diff.topics import ComparedTopics
from planner.model.address import Kind
from planner.model.change import Change
from planner.model.desired import Desired
from planner.model.observed import Observed

COMPARED: dict[Kind, ComparedKind] = {
    Kind.TOPIC: ComparedTopics(),
    Kind.ACL: ComparedAcls(),
    Kind.QUOTA: ComparedQuotas(),
    Kind.SCHEMA: ComparedSubjects(),
    Kind.FLOW: ComparedFlows(),
    Kind.JOB: ComparedJobs(),
}


def diff(desired: Desired, observed: Observed) -> tuple[Change, ...]:
    """Returns one change for every desired object and for every owned one that is no longer desired.

    Where nothing is desired, as for a destroy, what is owned is deleted or forgotten, as `on_remove` was
    applied. Changes are sorted by address: the order in which anything was written or read has no meaning.
    """
    changes = [change for kind in COMPARED.values() for change in kind.changes(desired, observed)]
    wanted = {change.address for change in changes}
    left = {
        address: entry
        for address, entry in observed.owned.items()
        if entry.topology == desired.topology and address not in wanted
    }
    leaving = Leaving(observed, {flow.flow.name: flow for flow in desired.flows}, left, desired.on_remove)
    for entry in left.values():
        cluster = observed.reachable(entry.address.cluster or "")
        kind = COMPARED.get(entry.address.kind)
        if kind is None or cluster is None:
            continue
        if (change := kind.removed(entry, cluster, leaving)) is not None:
            changes.append(change)
    return tuple(sorted(changes, key=lambda change: change.address))


def drift(desired: Desired, observed: Observed) -> tuple[Change, ...]:
    """Returns one change for each owned object: `old` is what was applied, `new` is what is there."""
    applied: dict[Kind, list[Applied]] = defaultdict(list)
    for name, cluster in observed.live.items():
        for entry in cluster.owned:
            if entry.topology == desired.topology and entry.address.cluster in (name, None):
                applied[entry.address.kind].append((entry, cluster))
    changes = [
        change for name, kind in COMPARED.items() for change in kind.drifted(applied[name], desired, observed)
    ]
    return tuple(sorted(changes, key=lambda change: (change.address.cluster is None, change.address)))
