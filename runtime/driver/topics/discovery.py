"""What a flow finds at both sides, and what follows: mirrors to make, to grow, partitions to copy. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import Names


@dataclass(frozen=True, slots=True)
class Mirror:
    """A topic of the source and what it is called at the destination."""

    topic: str
    there: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Found:
    """`create` and `grow` come before `copy`. `notes` say what is not done, and why."""

    create: tuple[Mirror, ...]
    grow: tuple[Mirror, ...]
    copy: tuple[Mirror, ...]
    notes: tuple[str, ...]


def discover(
    taken: Mapping[str, str],
    source: Mapping[str, int],
    destination: Mapping[str, int],
    copied: Collection[str],
    *,
    replace_lost: bool = False,
) -> Found:
    """`taken`: the flow's topics at the source and their names at the destination. `source` and `destination`
    are partitions by topic. `copied`: topics of the source that the ledger has progress of; a mirror of one
    that is gone is not silently made anew, unless losses are accepted (R4).
    """
    owners: dict[str, str] = {}
    create: list[Mirror] = []
    grow: list[Mirror] = []
    copy: list[Mirror] = []
    notes: list[str] = []
    for topic in sorted(taken):
        there = taken[topic]
        first = owners.setdefault(there, topic)
        if first != topic:
            notes.append(f"{topic} is not copied: {first} has the name {there} at the destination")
            continue
        mirror = Mirror(topic, there, source[topic])
        have = destination.get(there)
        if have is None and topic in copied and not replace_lost:
            notes.append(f"{there} is gone from the destination and is not made anew by itself")
        elif have is None:
            create.append(mirror)
        elif have < mirror.partitions:
            grow.append(mirror)
        copy.append(mirror)
    return Found(tuple(create), tuple(grow), tuple(copy), tuple(notes))


def taken_by(
    flow: FlowSpec, router: Router, topics: Iterable[str], draining: Collection[str] = ()
) -> dict[str, str]:
    """The topics that the flow copies now: none that is promoted on its own, once it is drained."""
    promoted = Names(flow.promoted)
    found = {}
    for topic in topics:
        there = router.name_there(flow.name, topic)
        if there is not None and (topic in draining or not promoted.match(topic)):
            found[topic] = there
    return found
