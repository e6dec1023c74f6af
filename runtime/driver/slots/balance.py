"""This module assigns partitions to slots by measured bytes, and moves only those that must move.

It is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")

TOLERANCE = 0.3  # fraction of the mean load: a smaller gap does not justify an interruption
MIN_WEIGHT = 1_000.0  # minimum weight of a partition, in bytes a second


def balance(
    weights: Mapping[K, float], slots: Sequence[int], homes: Mapping[K, int], *, move: bool = True
) -> dict[K, int]:
    """Returns a slot for every partition.

    A partition whose slot in `homes` is among `slots` keeps it, unless the loads are far apart and `move`
    allows levelling. `weights` are bytes a second.
    """
    if not slots:
        return {}
    load = dict.fromkeys(slots, 0.0)
    found: dict[K, int] = {}
    unplaced: list[K] = []
    for key, weight in weights.items():
        home = homes.get(key)
        if home in load:
            found[key] = home
            load[home] += max(weight, MIN_WEIGHT)
        else:
            unplaced.append(key)
    for key in sorted(unplaced, key=lambda one: -weights[one]):
        slot = min(slots, key=lambda one: (load[one], one))
        found[key] = slot
        load[slot] += max(weights[key], MIN_WEIGHT)
    if move:
        _level(weights, found, load)
    return found


def _level(weights: Mapping[K, float], found: dict[K, int], load: dict[int, float]) -> None:
    """Moves partitions from the most to the least loaded slot while their loads are further apart than the
    tolerance.

    Each move takes the largest partition that narrows the gap.
    """
    allowed = TOLERANCE * sum(load.values()) / len(load)
    held: dict[int, list[K]] = {slot: [] for slot in load}
    for key, slot in found.items():
        held[slot].append(key)
    for partitions in held.values():
        partitions.sort(key=lambda one: -weights[one])
    while True:
        fullest = max(load, key=lambda one: load[one])
        emptiest = min(load, key=lambda one: load[one])
        gap = load[fullest] - load[emptiest]
        if gap <= allowed:
            return
        moving = _largest_below_gap(held[fullest], weights, gap)
        if moving is None:
            return
        weight = max(weights[moving], MIN_WEIGHT)
        held[fullest].remove(moving)
        held[emptiest].append(moving)
        held[emptiest].sort(key=lambda one: -weights[one])
        load[fullest] -= weight
        load[emptiest] += weight
        found[moving] = emptiest


def _largest_below_gap(partitions: Collection[K], weights: Mapping[K, float], gap: float) -> K | None:
    """Returns the largest partition that weighs less than 90 % of the gap, so each move narrows it and the
    loop ends.
    """
    for key in partitions:
        if max(weights[key], MIN_WEIGHT) < gap * 0.9:
            return key
    return None
