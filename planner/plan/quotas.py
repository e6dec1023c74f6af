"""What a plan does with client quotas: its steps, and how they are undone."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from planner.diff.record import announced, quota_entry
from planner.diff.values import displayed
from planner.model.address import Address
from planner.model.desired import DesiredQuota
from planner.model.observed import ObservedCluster, RegistryEntry, quota_spec, recorded_quota
from planner.model.plan import Action, Change, FieldChange, Fingerprint
from planner.model.step import AlterQuota, Disown, Own, Step
from planner.model.topology import QUOTA_KEYS
from planner.model.topology.quotas import number_text


def quota_steps(
    change: Change, quota: DesiredQuota, entry: RegistryEntry | None, topology: str
) -> list[Step]:
    """Returns the steps of a desired quota.

    A quota is deleted only by the topology that made it, so a new one is registered before it is made.
    """
    cluster, address = quota.cluster, quota.address
    ours = entry is not None and entry.created
    makes = change.action is Action.CREATE
    own = quota_entry(quota, topology, created=makes or ours)
    steps: list[Step] = []
    if makes and not ours:
        steps.append(Own(f"announce:{address}", address, cluster, announced(own)))
    if limits_moved(change):
        needs = tuple(one.id for one in steps)
        alter = AlterQuota(f"alter:{address}", address, cluster, quota.entity, *_moved(change), needs)
        steps.append(alter)
    return [*steps, Own(f"own:{address}", address, cluster, own, tuple(one.id for one in steps[-1:]))]


def quota_removal(change: Change, entry: RegistryEntry, cluster: str) -> list[AlterQuota]:
    """Returns the step that removes the limits of a quota that leaves the topology."""
    recorded = recorded_quota(entry.spec)
    if change.action is not Action.DELETE or recorded is None:
        return []
    address = entry.address
    return [AlterQuota(f"delete:{address}", address, cluster, recorded[0], *_moved(change))]


def limits_moved(change: Change) -> dict[str, FieldChange]:
    """Returns the limits that change at the cluster, by key."""
    return {one.key: one for one in change.fields if one.path[0] in QUOTA_KEYS}


def _moved(
    change: Change,
) -> tuple[dict[str, float], tuple[str, ...], dict[str, float | None]]:
    """Returns what is set, what is removed, and the values before."""
    moved = limits_moved(change)
    old = {key: _number(one.old) for key, one in moved.items()}
    wanted = {key: _number(one.new) for key, one in moved.items()}
    sets = {key: value for key, value in wanted.items() if value is not None}
    return sets, tuple(key for key, value in wanted.items() if value is None), old


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None  # as a saved plan is read


def quota_fingerprint(
    address: Address, cluster: ObservedCluster, keys: Iterable[str], owner: str | None
) -> Fingerprint:
    """Returns what a plan saw of a quota: whether its entity has any limit, and the limits in `keys`."""
    live = limits_of(address, cluster)
    seen = {key: None if key not in live else number_text(live[key]) for key in sorted(keys)}
    return Fingerprint(address, exists=bool(live), config=seen if live else {}, owner=owner)


def limits_of(address: Address, cluster: ObservedCluster) -> Mapping[str, float]:
    """Returns the live limits of the entity with this address."""
    found = (values for entity, values in cluster.quotas.items() if entity.name == address.name)
    return next(found, {})


def quota_differences(step: AlterQuota, cluster: ObservedCluster) -> Iterator[str]:
    """Yields where the live limits are not those that a step left behind."""
    live = limits_of(step.address, cluster)
    wanted: dict[str, float | None] = {**step.set, **dict.fromkeys(step.unset)}
    for key, value in sorted(wanted.items()):
        if live.get(key) != value:
            yield f"{key} is {shown(key, live.get(key))} now, the plan made it {shown(key, value)}"


def shown(key: str, value: float | str | None) -> str:
    """Returns a limit in words: `10MB/s`, or `no limit`. A fingerprint holds its digits."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return str(displayed((key,), value))


def undo_quota(
    step: AlterQuota, cluster: ObservedCluster, entry: RegistryEntry | None, reason: str
) -> tuple[Change | None, tuple[Step, ...], str]:
    """Returns the change and steps that undo a step, and why it is not undone as a whole.

    A limit that changed since is left alone.
    """
    live = limits_of(step.address, cluster)
    wanted: dict[str, float | None] = {**step.set, **dict.fromkeys(step.unset)}
    moved = sorted(key for key, value in wanted.items() if live.get(key) != value)
    left = [key for key in wanted if key not in moved]
    why_not = f"{', '.join(moved)}: changed since" if moved else ""
    if not left:
        return None, (), why_not
    fields = tuple(FieldChange((key,), wanted[key], step.old.get(key)) for key in left)
    removes = all(one.new is None for one in fields) and not live.keys() - set(left)
    action = Action.DELETE if removes else Action.UPDATE if live else Action.CREATE
    restored = _restored(entry, fields)
    change = Change(
        step.address,
        action,
        reason,
        fields,
        before={**step.entity.parts, **live} if live else None,
        after=None if removes else {**step.entity.parts, **restored},
    )
    address, where = step.address, step.cluster
    back = AlterQuota(f"alter:{address}", address, where, step.entity, *_moved(change))
    if entry is None:
        return change, (back,), why_not
    if removes:
        return (
            change,
            (back, Disown(f"disown:{address}", address, where, entry.topology, (back.id,))),
            why_not,
        )
    again = replace(entry, spec=quota_spec(step.entity, restored))
    return change, (back, Own(f"own:{address}", address, where, again, (back.id,))), why_not


def _restored(entry: RegistryEntry | None, fields: Iterable[FieldChange]) -> dict[str, float]:
    """Returns the limits that the topology manages once these fields are as they were before."""
    recorded = recorded_quota(entry.spec) if entry is not None else None
    values = dict(recorded[1]) if recorded is not None else {}
    for one in fields:
        values.pop(one.key, None)
        if (value := _number(one.new)) is not None:
            values[one.key] = value
    return values
