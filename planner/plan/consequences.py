"""What a reader must know beside the changes: one warning or note for each matter, not for each topic."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.model.address import Address
from planner.model.change import Change
from planner.model.desired import Declared, Desired
from planner.model.diagnostic import Diagnostic, note, warning
from planner.model.observed import Observed, Unreachable
from planner.plan.guards import destroyed_topics


def consequences(
    desired: Desired, observed: Observed, changes: Sequence[Change], unknown: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    return (
        *_unknown(unknown, desired, observed),
        *_growth(desired, changes),
        *_records_lost(changes),
        *_no_authorizer(desired, observed),
    )


def _unknown(unknown: Mapping[str, str], desired: Desired, observed: Observed) -> Iterator[Diagnostic]:
    """Each thing once, unless those who read or expanded it said so already."""
    said = {one.address for one in (*observed.diagnostics, *desired.diagnostics)}
    for what, why in sorted(unknown.items()):
        if what not in said:
            cluster = observed.clusters.get(what)
            way_out = (
                cluster.way_out if isinstance(cluster, Unreachable) else "let the user of this plan see it"
            )
            yield warning(
                f"could not be read, so its part of the plan is unknown: {why}",
                way_out or "mend that and plan again",
                address=what,
                code="unknown",
            )


def _growth(desired: Desired, changes: Iterable[Change]) -> Iterator[Diagnostic]:
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
            f"{_named(growing)}: more partitions move keys: a key's new records go to another partition "
            "than its old ones",
            "consumers that rely on the order within a key read the old records first",
            code="keys-move",
        )


def _records_lost(changes: Iterable[Change]) -> Iterator[Diagnostic]:
    doomed = [change for change in destroyed_topics(changes) if change.notes]
    if doomed:
        yield warning(
            f"{_named([change.address for change in doomed])}: deleted with the records inside",
            "repl keeps no copy of them",
            code="records-lost",
        )


def _no_authorizer(desired: Desired, observed: Observed) -> Iterator[Diagnostic]:
    for name in sorted({acl.rule.cluster for acl in desired.acls}):
        cluster = observed.reachable(name)
        if cluster is not None and cluster.acls is None and not cluster.unreadable.get("acls"):
            yield note(
                f"{name} has no authorizer: its ACLs are left out",
                "set authorizer.class.name on its brokers to use them",
                code="no-authorizer",
            )


def _named(addresses: Sequence[Address]) -> str:
    first = ", ".join(str(address) for address in addresses[:3])
    return first if len(addresses) <= 3 else f"{first} and {len(addresses) - 3} more"
