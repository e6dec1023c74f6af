"""Client quotas: what follows from a change, and the step that alters them."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import field

from planner.diff.fields import displayed
from planner.diff.record import quota_entry
from planner.model.address import Address
from planner.model.change import Action, Change, Facts, FieldChange
from planner.model.desired import DesiredQuota
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.step import Step
from planner.model.topology import QUOTA_KEYS, QuotaEntity
from planner.model.topology.quotas import NO_LIMIT
from planner.plan.object_kind import EXISTS, ObjectKind, owner
from planner.plan.steps.registry import registered


class AlterQuota(Step, frozen=True):
    """Sets these limits of an entity and removes those in `unset`; other limits of it stay as they are."""

    verb = "configure"
    past = "configured"
    checked = True

    entity: QuotaEntity
    set: Mapping[str, int | float] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    old: Mapping[str, int | float | None] = field(default_factory=dict)  # the values before, for a rollback

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield ", ".join(f"{key}={displayed((key,), value)}" for key, value in sorted(self.set.items()))
        yield f"{NO_LIMIT}: {', '.join(self.unset)}" if self.unset else ""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset({*self.set, *self.unset})

    @property
    def wanted(self) -> Mapping[str, int | float | None]:
        """Returns each limit after the step; None is no limit."""
        return {**self.set, **dict.fromkeys(self.unset)}

    @property
    def left(self) -> Facts:
        return {(key,): value for key, value in sorted(self.wanted.items())}


class QuotaKind(ObjectKind):
    """Client quotas of an entity."""

    def steps(
        self,
        change: Change,
        desired: DesiredQuota,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        topology: str,
    ) -> list[Step]:
        where, address = desired.cluster, desired.address
        ours = entry is not None and entry.created
        makes = change.action is Action.CREATE
        record = quota_entry(desired, topology, created=makes or ours)
        alter = _alter("alter", address, where, desired.entity, change) if _limits(change) else None
        return registered(record, where, alter, announce=makes and not ours)

    def removal(self, change: Change, entry: RegistryEntry, cluster: ObservedCluster) -> list[Step]:
        if change.action is not Action.DELETE:
            return []
        entity = QuotaEntity.named(entry.address.name)
        return [_alter("delete", entry.address, cluster.name, entity, change)]

    def keys(self, change: Change) -> frozenset[str]:
        return frozenset(QUOTA_KEYS).intersection((*(change.before or ()), *(change.after or ())))

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        limits = cluster.quotas.get(name, {})
        return {**owner(entry), EXISTS: bool(limits), **{(key,): limits.get(key) for key in sorted(keys)}}


def _limits(change: Change) -> list[FieldChange]:
    """Returns the limits that change at the cluster."""
    return [limit for limit in change.fields if limit.path[0] in QUOTA_KEYS]


def _alter(prefix: str, address: Address, cluster: str, entity: QuotaEntity, change: Change) -> AlterQuota:
    wanted = {limit.key: _number(limit.new) for limit in _limits(change)}
    return AlterQuota(
        f"{prefix}:{address}",
        address,
        cluster,
        entity,
        set={key: value for key, value in wanted.items() if value is not None},
        unset=tuple(key for key, value in wanted.items() if value is None),
        old={limit.key: _number(limit.old) for limit in _limits(change)},
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None  # as a saved plan is read
