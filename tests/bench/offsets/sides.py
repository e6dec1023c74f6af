"""Both sides, asked to look as often as they can be: once a second."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from tests.bench.copy.job import Job
from tests.bench.copy.mirror import MirrorMaker
from tests.bench.copy.run import Run, Side
from tests.bench.copy.slots import flow_of
from tests.bench.copy.workloads import LATENCY

TOPICS: Final = "offsets-.*"
EVERY_S: Final = 1


class Ours(Job):
    def flows(self, run: Run) -> list[FlowSpec]:
        topics = SelectionSpec(include=(TOPICS,))
        groups = GroupsSpec(topics.include, every_ms=EVERY_S * 1000)
        return [replace(flow_of(run), topics=topics, groups=groups)]


class Mirror(MirrorMaker):
    """What is aborted is not to be copied; the rest is as it comes, `offset.lag.max` of 100 among it."""

    def configuration(self, run: Run) -> dict[str, str]:
        flow = f"{run.tag}->dst"
        return super().configuration(run) | {
            f"{flow}.groups": TOPICS,
            f"{flow}.sync.group.offsets.enabled": "true",
            f"{flow}.sync.group.offsets.interval.seconds": str(EVERY_S),
            f"{flow}.emit.checkpoints.interval.seconds": str(EVERY_S),
            f"{flow}.refresh.groups.interval.seconds": str(EVERY_S),
            f"{run.tag}.consumer.isolation.level": "read_committed",
        }


def sides() -> tuple[Side, Side]:
    return Ours(), Mirror(exactly_once=False)


def run_of(side: Side, source: str, destination: str, folder: Path) -> Run:
    return Run(side.name, LATENCY, TOPICS, source, destination, folder)


def destination_topic(side: Side, topic: str) -> str:
    return f"{side.name}.{topic}"
