"""Records read again and skipped, beside MirrorMaker 2: python -m tests.bench.offsets"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Side
from tests.bench.lab import bench_lab
from tests.bench.offsets.count import Count, counted
from tests.bench.offsets.pattern import PARTITIONS, SHAPES, Source
from tests.bench.offsets.sides import destination_topic, run_of, sides
from tests.labs import WITH_PARENT
from tests.records import group_offsets, read, wait_for

JSON: Final = Path("build/bench-offsets.json")
QUIET_S: Final = 20.0  # many times what either side waits between two looks
MOST_S: Final = 180.0


def measure(lab: Lab, folder: Path) -> list[Count]:
    source, destination = (lab.clusters[name].client for name in ("dc1", "dc2"))
    here, there = (lab.clusters[name].bootstrap for name in ("dc1", "dc2"))
    application = Source(source)
    application.create()
    application.write_half()
    application.commit(0)
    both = sides()
    running = [side.start(run_of(side, here, there, folder)) for side in both]
    try:
        arrived(both, running, source, destination)
        application.write_half()
        arrived(both, running, source, destination)
        application.commit(1)
        settled(running, lambda: [group_offsets(destination, shape.group) for shape in SHAPES])
    finally:
        for one in running:
            one.stop()
    return [
        counted(
            side.name, shape, destination_topic(side, shape.topic), source, destination, application.written
        )
        for shape in SHAPES
        for side in both
    ]


def arrived(
    both: Sequence[Side], running: Sequence[Running], source: dict[str, Any], destination: dict[str, Any]
) -> None:
    """When the last record of every partition is there, on both sides: counted work, not time."""
    for shape in SHAPES:
        last = {one.partition: one.value for one in read(source, shape.topic, timeout=120)}
        for side in both:

            def there(name: str = destination_topic(side, shape.topic), last: dict[int, Any] = last) -> bool:
                for one in running:
                    one.require_alive()
                found = _read(destination, name)
                return last == {partition: found.get(partition) for partition in last}

            wait_for(there, MOST_S, 1.0)


def _read(client: dict[str, Any], topic: str) -> dict[int, bytes | None]:
    try:
        return {one.partition: one.value for one in read(client, topic, timeout=120)}
    except (KeyError, KafkaException):
        return {}  # not made yet


def settled(running: Sequence[Running], look: Callable[[], object]) -> None:
    """When nothing has changed for a good while."""
    began = since = time.monotonic()
    before = look()
    while time.monotonic() - since < QUIET_S and time.monotonic() - began < MOST_S:
        for one in running:
            one.require_alive()
        time.sleep(1)
        now = look()
        if now != before:
            before, since = now, time.monotonic()


def text(counts: Sequence[Count]) -> str:
    lines = [
        "| group | side | had read | read again | skipped | partitions without an offset |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in counts:
        numbers = (one.read, one.again, one.skipped, one.untranslated)
        lines.append(
            f"| {one.group} | {one.side} | " + " | ".join(f"{number:,}" for number in numbers) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    today = datetime.now(UTC).date()
    print(
        f"{today}, {os.cpu_count()} cores, {platform.platform()}, {PARTITIONS} partitions a topic", flush=True
    )
    properties = {"log.cleaner.backoff.ms": "200"}
    clusters = (LabClusterSpec(name, prefix=WITH_PARENT, properties=properties) for name in ("dc1", "dc2"))
    with bench_lab(*clusters) as (lab, folder):
        counts = measure(lab, folder)
    JSON.parent.mkdir(exist_ok=True)
    JSON.write_text(json.dumps([asdict(one) for one in counts], indent=2) + "\n")
    print(text(counts))


if __name__ == "__main__":
    main()
