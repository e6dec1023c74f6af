"""Compares client quotas with the live ones: desired quotas, those that leave the topology, and drift.

The fields of a quota are its limits, by Kafka's keys. Only limits that are desired, or that were applied, are
compared: what others set on the same entity is left alone.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from planner.diff.compare import PathDifference, Tree, differences
from planner.diff.compared import (
    ADOPTED,
    AS_APPLIED,
    CUT_SHORT,
    CUT_SHORT_FIELDS,
    DELETED,
    NOT_DECLARED,
    OUTSIDE,
    REMEMBERED,
    ComparedKind,
    Leaving,
    not_deleted,
    not_planned,
    reason_to_create,
    reason_to_delete,
    unreadable,
)
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Declared, Desired, DesiredQuota, MirroredBy
from planner.model.observed import Observed, ObservedCluster, RegistryEntry
from planner.model.topology import QuotaEntity

QUOTAS = "quotas"  # the key of ObservedCluster.unreadable


class QuotaPair(Struct, frozen=True):
    """A desired quota beside the live limits of its entity, and its registry entry."""

    quota: DesiredQuota
    live: Mapping[str, float]
    entry: RegistryEntry | None

    @property
    def applied(self) -> Mapping[str, float]:
        return self.entry.limits if self.entry is not None else {}

    @property
    def trees(self) -> tuple[Tree, Tree]:
        keys = dict.fromkeys((*self.quota.values, *self.applied))
        return _tree(keys, self.live), _tree(keys, self.quota.values)


def _tree(keys: Iterable[str], values: Mapping[str, float]) -> Tree:
    return {(key,): values.get(key) for key in keys}


class ComparedQuotas(ComparedKind):
    """Client quotas of an entity. A mirrored quota changes by a plan alone."""

    parts = (QUOTAS,)

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        changes: list[Change] = []
        pairs: list[QuotaPair] = []
        for quota in desired.quotas:
            cluster, entry = observed.reachable(quota.cluster), observed.owned.get(quota.address)
            if change := not_planned(quota.address, observed, desired.topology, QUOTAS):
                changes.append(change)
            elif cluster is not None:
                live = cluster.quotas.get(quota.entity.name, {})
                pairs.append(QuotaPair(quota, live, entry))
        differing = differences([pair.trees for pair in pairs])
        changes += (_compared(pair, of_pair) for pair, of_pair in zip(pairs, differing, strict=True))
        return changes

    def removed(self, entry: RegistryEntry, cluster: ObservedCluster, leaving: Leaving) -> Change | None:
        """Only a quota that the topology made is deleted, and of it only the limits that it set."""
        if leaving.stays_unknown(entry):
            return leaving.unknown(entry)
        return unreadable(entry.address, cluster, QUOTAS) or _removed(entry, cluster)

    def drift(self, entry: RegistryEntry, cluster: ObservedCluster) -> Change:
        as_applied = Change(entry.address, Action.NO_OP, AS_APPLIED)
        entity, applied = QuotaEntity.named(entry.address.name), entry.limits
        if not applied or entry.is_announced or entity.name != entry.address.name:
            return as_applied  # A newer release may know entities that this one does not read.
        live = cluster.quotas.get(entity.name, {})
        before = {**entity.parts, **applied}
        if not applied.keys() & live.keys():
            return Change(entry.address, Action.DELETE, DELETED, before=before)
        (differing,) = differences([(_tree(applied, applied), _tree(applied, live))])
        if not differing:
            return as_applied
        after = {**entity.parts, **{key: live[key] for key in applied if key in live}}
        fields = tuple(difference.change() for difference in differing)
        unchanged = len(applied) - len(fields)
        return Change(entry.address, Action.UPDATE, OUTSIDE, fields, before, after, unchanged)


def _compared(pair: QuotaPair, differing: Iterable[PathDifference]) -> Change:
    quota, entry = pair.quota, pair.entry
    fields = [difference.change(_note(pair, difference.path[-1])) for difference in differing]
    moved = {field.key for field in fields}
    recorded = _recorded_fields(pair, moved)
    before = {**quota.entity.parts, **{key: pair.live[key] for (key,) in pair.trees[0] if key in pair.live}}
    after = {**quota.entity.parts, **quota.values}
    unchanged = sum(key not in moved for key in quota.values)
    if not pair.live:
        reason = reason_to_create(quota.origin.reason, entry)
        # What was applied and is not desired is gone with the rest.
        return Change(quota.address, Action.CREATE, reason, tuple(fields), None, after)
    every = (*fields, *recorded)
    return Change(
        quota.address,
        Action.UPDATE if every else Action.NO_OP,
        _reason(pair, fields, recorded),
        every,
        before=before,
        after=after,
        unchanged=unchanged,
        adopted=entry is None,
    )


def _note(pair: QuotaPair, key: str) -> str:
    """Returns why a limit changes, where the topology did not change it."""
    if key not in pair.quota.values:
        match pair.quota.origin:
            case MirroredBy(source_cluster=cluster):
                return f"no longer set at {cluster}"
            case _:
                return NOT_DECLARED
    same = pair.applied.get(key) == pair.quota.values[key]
    return OUTSIDE if same and not (pair.entry is None or pair.entry.is_announced) else ""


def _recorded_fields(pair: QuotaPair, moved: set[str]) -> tuple[FieldChange, ...]:
    """Returns what the registry is to remember otherwise, less what changes at the cluster."""
    entry, quota = pair.entry, pair.quota
    if entry is None:
        return ()
    if entry.is_announced:
        return CUT_SHORT_FIELDS
    fields = [
        FieldChange(("recorded", key), pair.applied.get(key), quota.values.get(key), note=note)
        for key in dict.fromkeys((*quota.values, *pair.applied))
        if key not in moved and pair.applied.get(key) != quota.values.get(key)
        for note in ("already so, will be managed" if key in quota.values else "no longer managed",)
    ]
    if entry.origin != (origin := quota.origin.text):
        fields.append(FieldChange(("recorded", "origin"), entry.origin, origin, note="remembered"))
    return tuple(fields)


def _reason(pair: QuotaPair, fields: Iterable[FieldChange], recorded: Iterable[FieldChange]) -> str:
    listed = tuple(fields)
    if pair.entry is None:
        return ADOPTED
    if not listed and pair.entry.is_announced:
        return CUT_SHORT
    match pair.quota.origin:
        case MirroredBy():
            return pair.quota.origin.reason
        case Declared() if listed and all(field.note == OUTSIDE for field in listed):
            return OUTSIDE
        case Declared() if listed:
            return "the topology changed"
        case _:
            return REMEMBERED if any(recorded) else pair.quota.origin.reason


def _removed(entry: RegistryEntry, cluster: ObservedCluster) -> Change:
    entity, applied = QuotaEntity.named(entry.address.name), entry.limits
    live = cluster.quotas.get(entity.name, {})
    fields = tuple(FieldChange((key,), live[key], None) for key in applied if key in live)
    if (forgotten := not_deleted(entry, exists=bool(fields))) is not None:
        return forgotten
    notes = ["what it limited has no limit any more, unless another quota applies to it"]
    if others := sorted(live.keys() - applied.keys()):
        notes.append(f"limits that others set stay: {', '.join(others)}")
    reason = reason_to_delete(entry)
    before = {**entity.parts, **{field.key: field.old for field in fields}}
    return Change(entry.address, Action.DELETE, reason, fields, before=before, notes=tuple(notes))
