"""A round: numbered records are written and copied, blows fall, then both sides are compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.chaos.blows import WEIGHTS, Blows
from tests.chaos.copiers import Kept
from tests.chaos.doors import door
from tests.chaos.links import CLUSTERS, Links
from tests.labs import JVM, WITH_PARENT
from tests.records import wait_for
from tests.runtime.slot.world import Side
from tests.toxiproxy import Proxies

PARTITIONS = 4


class Ground(NamedTuple):
    """Where it happens. `doors` are the proxies before the clusters, where there are any."""

    lab: Lab
    links: Links
    doors: Mapping[str, Proxies]


@dataclass(frozen=True, slots=True)
class Storm:
    """Dice choose the blows that have no name. `pause_s` bounds the time between two of them; `rate`
    is in records per second.
    """

    seed: int
    blows: Sequence[str | None]
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    pause_s: float = 3.0
    rate: float = 400.0
    patience_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Weather:
    """What a round did, and what the checker found."""

    dealt: dict[str, int]
    starts: int
    reports: Sequence[checker.Report]

    @property
    def exact(self) -> bool:
        return all(report.exact for report in self.reports)

    def __str__(self) -> str:
        told = ", ".join(f"{count} × {what}" for what, count in sorted(self.dealt.items()))
        return "\n".join([f"{told}; {self.starts} starts", *map(str, self.reports)])


def cluster_specs(links: Links, brokers: int, *, with_doors: bool = False) -> list[LabClusterSpec]:
    """Producers of the checker may be killed in their transactions too: those end soon."""
    return [
        LabClusterSpec(
            name,
            brokers=brokers,
            host=links.hosts[name],
            jvm=JVM,
            prefix=(*links.beside[name], *WITH_PARENT),
            listeners=(door(links.hosts[name], brokers),) if with_doors else (),
        )
        for name in CLUSTERS
    ]


def prepare(sides: Mapping[str, Side], topic: str, *, mirror: bool) -> None:
    """The topic at the source; without a driver to follow it, its mirror and the product's own topics too."""
    config = {key.replace(".", "_"): value for key, value in checker.TOPIC_CONFIG.items()}
    sides["dc1"].create(topic, PARTITIONS, **config)
    if mirror:
        sides["dc2"].create(topic, PARTITIONS, **config)
        sides["dc2"].create_internal()


def rage(
    ground: Ground,
    topic: str,
    storm: Storm,
    start: Callable[[], Kept],
    say: Callable[[str], None],
    masked: str | None = None,
) -> Weather:
    """`masked`: a topic that a flow of the same job transforms meanwhile."""
    dice = random.Random(storm.seed)
    here, there = (ground.lab.clusters[name].client for name in CLUSTERS)
    spec = checker.Spec(records=10**9, rate=storm.rate, seed=storm.seed, large_every=400)
    with ExitStack() as stack:
        kept = stack.enter_context(start())
        writer = stack.enter_context(checker.writing(here, topic, spec))
        other = None
        if masked is not None:
            other = stack.enter_context(checker.writing(here, masked, replace(spec, json=True)))
            other.wait_for(50)
        writer.wait_for(50)
        wait_for(lambda: kept.victims("worker"), timeout=240)
        blows = Blows(*ground, kept, dice, storm.weights)
        try:
            for number, name in enumerate(storm.blows, 1):
                _wait(dice.uniform(0.0, storm.pause_s), blows)
                say(f"{number}/{len(storm.blows)} {blows.strike(name)}")
        finally:
            blows.mend()
        patience = storm.patience_s
        reports = [checker.compare(here, there, topic, written=writer.written, patience=patience)]
        if masked is not None and other is not None:
            written = other.written
            reports.append(
                checker.compare(
                    here, there, masked, written=written, change=checker.masking, patience=patience
                )
            )
        # Whoever was replaced has ended for good.
        wait_for(lambda: not kept.outlived(), timeout=storm.patience_s)
        return Weather(dict(blows.dealt), kept.starts, reports)


def _wait(seconds: float, blows: Blows) -> None:
    """What was broken is mended meanwhile."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
        blows.mend_due()
