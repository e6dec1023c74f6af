"""Compares both clusters with what producers were told: every record once, and in order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.records import PATIENCE_S, settled
from tests.soak.load import Place, Sent, number_of

_AGAIN_S = 1.0


@dataclass
class Findings:
    """What is wrong with the copies, by kind, and how many records were compared."""

    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, cluster: str, place: Place, numbers: Sequence[int]) -> None:
        if numbers:
            self.kinds[kind] += len(numbers)
            shown = ", ".join(map(str, sorted(numbers)[:5]))
            self.examples.append(
                f"{kind} at {cluster}: {len(numbers)} of {place.topic}-{place.partition}: {shown}"
            )

    def __iadd__(self, other: Findings) -> Findings:
        self.records += other.records
        self.kinds += other.kinds
        self.examples += other.examples
        return self


class Comparison:
    """Reads each cluster from where the last comparison ended."""

    def __init__(self, clients: Mapping[str, Mapping[str, Any]]) -> None:
        self._clients = clients
        self._ends: dict[tuple[str, Place], int] = {}

    def compare(
        self,
        sent: Sent,
        names: Mapping[str, Mapping[str, str]],
        replayed: Collection[int],
        patience_s: float,
    ) -> Findings:
        """Compares until nothing is wrong, or the time is over. No producer may write meanwhile.

        `names`: of each cluster, the topics' names there. `replayed` are numbers of records that salvage has
        copied behind later ones.
        """
        deadline = time.monotonic() + patience_s
        while True:
            seen, ends = self._read(sent, names)
            found = findings_of(sent, seen, replayed)
            if not found.kinds or time.monotonic() > deadline:
                self._ends |= ends
                return found
            time.sleep(_AGAIN_S)

    def numbers(self, cluster: str, name: str, place: Place) -> list[int]:
        """Returns the numbers in a partition since the last comparison; `name` is the topic's there."""
        settled(self._clients[cluster], name)
        start = self._ends.get((cluster, place), 0)
        return _read(self._clients[cluster], TopicPartition(name, place.partition, start))[0]

    def _read(
        self, sent: Sent, names: Mapping[str, Mapping[str, str]]
    ) -> tuple[dict[str, dict[Place, list[int]]], dict[tuple[str, Place], int]]:
        seen: dict[str, dict[Place, list[int]]] = {}
        ends: dict[tuple[str, Place], int] = {}
        for cluster, known in names.items():
            seen[cluster] = {}
            client = self._clients[cluster]
            for topic in sorted({place.topic for place in sent.acknowledged}):
                settled(client, known[topic])
            for place in sorted(sent.acknowledged):
                start = self._ends.get((cluster, place), 0)
                numbers, end = _read(client, TopicPartition(known[place.topic], place.partition, start))
                seen[cluster][place], ends[cluster, place] = numbers, end
        return seen, ends


def findings_of(
    sent: Sent, seen: Mapping[str, Mapping[Place, Sequence[int]]], replayed: Collection[int]
) -> Findings:
    """Returns what is wrong with what each cluster holds of these records."""
    found = Findings(records=sent.records())
    for place, acknowledged in sent.acknowledged.items():
        wanted, maybe = set(acknowledged), sent.unknown.get(place, set())
        everywhere = set.intersection(*(set(there[place]) for there in seen.values()))
        for cluster, there in seen.items():
            numbers = there[place]
            counted = Counter(numbers)
            found.add("lost", cluster, place, sorted(wanted - counted.keys()))
            found.add("doubled", cluster, place, [one for one, times in counted.items() if times > 1])
            found.add("foreign", cluster, place, sorted(counted.keys() - wanted - maybe))
            found.add("at one cluster only", cluster, place, sorted((counted.keys() & maybe) - everywhere))
            found.add(
                "reordered", cluster, place, _reordered([one for one in numbers if one not in replayed])
            )
    return found


def _reordered(numbers: Sequence[int]) -> list[int]:
    """Returns the numbers that come behind a greater one. A number that came before is doubled instead."""
    behind, greatest, known = [], 0, set[int]()
    for one in numbers:
        if one < greatest and one not in known:
            behind.append(one)
        greatest = max(greatest, one)
        known.add(one)
    return behind


def _read(client: Mapping[str, Any], at: TopicPartition) -> tuple[list[int], int]:
    """Returns the numbers of the committed records from an offset on, and the end."""
    settings = {"group.id": "soak-reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**client, **settings, "auto.offset.reset": "error", "log_level": 0})
    try:
        low, end = consumer.get_watermark_offsets(TopicPartition(at.topic, at.partition), timeout=PATIENCE_S)
        begin = max(low, at.offset)
        numbers: list[int] = []
        if begin < end:
            consumer.assign([TopicPartition(at.topic, at.partition, begin)])
            deadline = time.monotonic() + 2 * PATIENCE_S
            while consumer.position([at])[0].offset < end:
                assert time.monotonic() < deadline, f"{at.topic}-{at.partition} was not read to its end {end}"
                came = [one for one in consumer.consume(1_000, 0.2) if one.error() is None]
                numbers += [number_of(one.value()) for one in came if (one.offset() or 0) < end]
        return numbers, end
    finally:
        consumer.close()
