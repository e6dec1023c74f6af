"""Compares ACL rules with the live ones. A rule has no fields that change: it exists or it does not.

A rule that `protect: acl` replaces is deleted and recorded. When it is no longer desired as replaced, it is
created again and forgotten.
"""

from planner.diff.compared import (
    ADOPTED,
    AS_APPLIED,
    CUT_SHORT,
    CUT_SHORT_FIELDS,
    DELETED,
    ComparedKind,
    Leaving,
    not_deleted,
    not_planned,
    reason_to_create,
    reason_to_delete,
    unreadable,
)
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredAcl
from planner.model.observed import REPLACED, Observed, ObservedCluster, RegistryEntry
from runtime.contract.spec.acls import AclRule

ACLS = "acls"  # the key of ObservedCluster.unreadable
_ALLOWS = "what it denied is allowed again, if another rule allows it"


class ComparedAcls(ComparedKind):
    """ACL rules."""

    parts = (ACLS,)

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        live = {name: frozenset(cluster.acls or ()) for name, cluster in observed.live.items()}
        changes: list[Change] = []
        for acl in desired.acls:
            cluster = observed.reachable(acl.rule.cluster)
            if (change := not_planned(acl.address, observed, desired.topology, ACLS)) is not None:
                changes.append(change)
            elif cluster is not None:
                changes.append(_change(acl, cluster, live[cluster.name], observed.owned.get(acl.address)))
        return changes

    def removed(self, entry: RegistryEntry, cluster: ObservedCluster, leaving: Leaving) -> Change | None:
        if leaving.stays_unknown(entry):
            return leaving.unknown(entry)
        if cluster.acls is None:
            return unreadable(entry.address, cluster, ACLS)
        rule = AclRule.recorded(cluster.name, entry.spec)
        if rule is not None and entry.is_replaced:
            if rule in cluster.acls:
                return Change(entry.address, Action.FORGET, "it was replaced and is there again")
            reason = "restored: it was replaced by protect: acl, and no mirror needs that any more"
            after = dict(rule.spec)
            return Change(entry.address, Action.CREATE, reason, before=dict(entry.spec), after=after)
        if (forgotten := not_deleted(entry, exists=rule in cluster.acls)) is not None:
            return forgotten
        notes = (_ALLOWS,) if rule is not None and rule.permission == "DENY" else ()
        reason = reason_to_delete(entry)
        return Change(entry.address, Action.DELETE, reason, before=dict(entry.spec), notes=notes)

    def drift(self, entry: RegistryEntry, cluster: ObservedCluster) -> Change | None:
        if cluster.acls is None:
            return None
        rule = AclRule.recorded(cluster.name, entry.spec)
        if entry.is_replaced and rule in cluster.acls:
            after = dict(entry.spec)
            return Change(entry.address, Action.CREATE, "made again outside the topology", after=after)
        if entry.is_replaced or rule is None or rule in cluster.acls or entry.is_announced:
            return Change(entry.address, Action.NO_OP, AS_APPLIED)
        return Change(entry.address, Action.DELETE, DELETED, before=dict(entry.spec))


def _change(
    acl: DesiredAcl,
    cluster: ObservedCluster,
    live: frozenset[object],
    entry: RegistryEntry | None,
) -> Change:
    after: dict[str, object] = dict(acl.rule.spec)
    if cluster.acls is None:
        return Change(acl.address, Action.NO_OP, f"{cluster.name} has no authorizer")
    if acl.replaced:
        return _replaced(acl, entry, live=acl.rule in live)
    if acl.rule not in live:
        return Change(acl.address, Action.CREATE, reason_to_create(acl.reason, entry), after=after)
    if entry is None:
        return Change(acl.address, Action.NO_OP, ADOPTED, before=after, after=after, adopted=True)
    if entry.is_announced:
        return Change(acl.address, Action.UPDATE, CUT_SHORT, CUT_SHORT_FIELDS, before=after, after=after)
    return Change(acl.address, Action.NO_OP, acl.reason, before=after, after=after)


def _replaced(acl: DesiredAcl, entry: RegistryEntry | None, *, live: bool) -> Change:
    """Returns the change of a rule that `protect: acl` takes away.

    `after` is what the registry keeps of it.
    """
    before: dict[str, object] = dict(acl.rule.spec)
    recorded = {**before, REPLACED: "true"}
    if live:
        return Change(
            acl.address,
            Action.DELETE,
            f"replaced by the rules of {acl.reason}; a promotion restores it",
            before=before,
            after=recorded,
        )
    if entry is None or not entry.is_replaced:
        return Change(acl.address, Action.NO_OP, "it is gone")
    return Change(acl.address, Action.NO_OP, f"replaced: {acl.reason}", before=recorded, after=recorded)
