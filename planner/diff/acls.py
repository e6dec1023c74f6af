"""Compares desired ACLs with the live ones. An ACL has no fields that change: it exists or it does not.

A rule that `protect: acl` replaces is deleted and recorded; when it is no longer desired as replaced, it is
created again and forgotten.
"""

from collections.abc import Iterable, Mapping

from planner.diff.record import is_announced
from planner.diff.topics import ADOPTED
from planner.model.address import Address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.observed import ObservedCluster
from planner.model.owned import REPLACED, RegistryEntry, acl_spec

ACLS = "acls"  # the key of ObservedCluster.unreadable


def acl_changes(
    acls: Iterable[DesiredAcl],
    clusters: Mapping[str, ObservedCluster],
    owned: Mapping[Address, RegistryEntry],
    topology: str,
) -> list[Change]:
    live = {name: frozenset(cluster.acls or ()) for name, cluster in clusters.items()}
    return [
        _change(acl, clusters[acl.rule.cluster], live[acl.rule.cluster], owned.get(acl.address), topology)
        for acl in acls
    ]


def _change(
    acl: DesiredAcl,
    cluster: ObservedCluster,
    live: frozenset[object],
    entry: RegistryEntry | None,
    topology: str,
) -> Change:
    after: dict[str, object] = dict(acl_spec(acl.rule))
    if entry is not None and entry.topology != topology:
        return Change(acl.address, Action.NO_OP, f"owned by topology {entry.topology!r}")
    if cluster.acls is None:
        return unreadable_acl(acl.address, cluster) or Change(
            acl.address, Action.NO_OP, f"{cluster.name} has no authorizer"
        )
    if acl.replaced:
        return _replaced(acl, entry, live=acl.rule in live)
    if acl.rule not in live:
        known = entry is not None and not is_announced(entry)
        gone = "; it was deleted outside the topology" if known else ""
        return Change(acl.address, Action.CREATE, _origin(acl) + gone, after=after)
    if entry is None:
        return Change(acl.address, Action.NO_OP, ADOPTED, before=after, after=after, adopted=True)
    if is_announced(entry):
        field = FieldChange(("recorded", "spec"), "announced", "as it is", note="remembered at the cluster")
        why = "made by an apply that was cut short; only what is remembered of it changes"
        return Change(acl.address, Action.UPDATE, why, (field,), before=after, after=after)
    return Change(acl.address, Action.NO_OP, _origin(acl), before=after, after=after)


def _replaced(acl: DesiredAcl, entry: RegistryEntry | None, *, live: bool) -> Change:
    """Returns the change of a rule that `protect: acl` takes away.

    `after` is what the registry keeps of it.
    """
    before: dict[str, object] = dict(acl_spec(acl.rule))
    recorded = {**before, REPLACED: "true"}
    if live:
        return Change(
            acl.address,
            Action.DELETE,
            f"replaced by the rules of {_origin(acl)}; a promotion restores it",
            before=before,
            after=recorded,
        )
    if entry is None or not entry.is_replaced:
        return Change(acl.address, Action.NO_OP, "it is gone")
    return Change(acl.address, Action.NO_OP, f"replaced: {_origin(acl)}", before=recorded, after=recorded)


def replaces(change: Change) -> bool:
    """Returns whether the change takes a rule away that is to be restored later."""
    return change.action is Action.DELETE and REPLACED in (change.after or {})


def restores(change: Change) -> bool:
    """Returns whether the change restores a rule that was replaced."""
    return change.action is Action.CREATE and REPLACED in (change.before or {})


def unreadable_acl(address: Address, cluster: ObservedCluster) -> Change | None:
    """Returns the change of an ACL that could not be read; None where the cluster has no authorizer."""
    if ACLS not in cluster.unreadable:
        return None
    return Change(address, Action.UNKNOWN, f"(unknown: {cluster.unreadable[ACLS]})")


def _origin(acl: DesiredAcl) -> str:
    match acl.origin:
        case Declared():
            return "declared"
        case MirroredBy(flow=flow):
            return f"mirrored by flow.{flow}"
        case text:
            return text
