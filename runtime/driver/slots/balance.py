"""Which slot copies which partition: by measured bytes, moving only what must move. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")

TOLERANCE = 0.3  # of the mean load: less is not worth an interruption
LEAST = 1_000.0  # bytes a second that even an idle partition counts for


def balance(
    weights: Mapping[K, float], slots: Sequence[int], homes: Mapping[K, int], *, move: bool = True
) -> dict[K, int]:
    """A slot for every partition. What has a home among `slots` keeps it, unless the loads are far apart and
    `move` allows to bring them together. `weights` are bytes a second.
    """
    if not slots:
        return {}
    load = dict.fromkeys(slots, 0.0)
    found: dict[K, int] = {}
    homeless: list[K] = []
    for key, weight in weights.items():
        home = homes.get(key)
        if home in load:
            found[key] = home
            load[home] += max(weight, LEAST)
        else:
            homeless.append(key)
    for key in sorted(homeless, key=lambda one: -weights[one]):
        slot = min(slots, key=lambda one: (load[one], one))
        found[key] = slot
        load[slot] += max(weights[key], LEAST)
    if move:
        _level(weights, found, load)
    return found


def _level(weights: Mapping[K, float], found: dict[K, int], load: dict[int, float]) -> None:
    """From the fullest to the emptiest, the largest that makes them more alike, while they are far apart."""
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
        moving = _fitting(held[fullest], weights, gap)
        if moving is None:
            return
        weight = max(weights[moving], LEAST)
        held[fullest].remove(moving)
        held[emptiest].append(moving)
        held[emptiest].sort(key=lambda one: -weights[one])
        load[fullest] -= weight
        load[emptiest] += weight
        found[moving] = emptiest


def _fitting(partitions: Collection[K], weights: Mapping[K, float], gap: float) -> K | None:
    """The largest whose move narrows the gap by more than a hair: so the loop comes to an end."""
    for key in partitions:
        if max(weights[key], LEAST) < gap * 0.9:
            return key
    return None
