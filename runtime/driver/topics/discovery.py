"""This module compares a flow's topics at source and destination: mirrors to create, to grow, and to copy.

It is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns


@dataclass(frozen=True, slots=True)
class MirrorTopic:
    """A MirrorTopic names a source topic and its topic at the destination."""

    topic: str
    destination_topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DiscoveredTopics:
    """A DiscoveredTopics is the result of a comparison.

    `create` and `grow` must be done before `copy`. `notes` name the topics that are left out, with the
    reason.
    """

    create: tuple[MirrorTopic, ...]
    grow: tuple[MirrorTopic, ...]
    copy: tuple[MirrorTopic, ...]
    notes: tuple[str, ...]


def discover(
    taken: Mapping[str, str],
    source: Mapping[str, int],
    destination: Mapping[str, int],
    copied: Collection[str],
    *,
    replace_lost: bool = False,
) -> DiscoveredTopics:
    """Returns the mirrors that a flow needs.

    `taken` maps the flow's source topics to their names at the destination. `source` and `destination` map
    topics to their partition counts. `copied` are the source topics that have progress in the ledger: their
    mirror is not created again after it was deleted, unless data loss is accepted (R4).
    """
    owners: dict[str, str] = {}
    create: list[MirrorTopic] = []
    grow: list[MirrorTopic] = []
    copy: list[MirrorTopic] = []
    notes: list[str] = []
    for topic in sorted(taken):
        there = taken[topic]
        owner = owners.setdefault(there, topic)
        if owner != topic:
            notes.append(f"{topic} is not copied: {owner} has the name {there} at the destination")
            continue
        mirror = MirrorTopic(topic, there, source[topic])
        have = destination.get(there)
        if have is None and topic in copied and not replace_lost:
            notes.append(f"{there} is gone from the destination and is not made anew by itself")
        elif have is None:
            create.append(mirror)
        elif have < mirror.partitions:
            grow.append(mirror)
        copy.append(mirror)
    return DiscoveredTopics(tuple(create), tuple(grow), tuple(copy), tuple(notes))


def selected_topics(
    flow: FlowSpec, router: Router, topics: Iterable[str], draining: Collection[str] = ()
) -> dict[str, str]:
    """Returns the topics that the flow copies now; a topic that is promoted on its own is left out once it
    is drained.
    """
    promoted = NamePatterns(flow.promoted)
    found = {}
    for topic in topics:
        there = router.name_there(flow.name, topic)
        if there is not None and (topic in draining or not promoted.match(topic)):
            found[topic] = there
    return found
