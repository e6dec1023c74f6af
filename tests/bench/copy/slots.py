"""Our side without Spark: the same slot, in processes of its own. The difference to `repl` is Spark's."""

from __future__ import annotations

import asyncio
import sys
import uuid

import msgspec

from runtime.contract.records.control import Assignment, SlotSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.schemas import SchemaSync
from runtime.contract.spec.selection import SelectionSpec
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run
from tests.bench.copy.workloads import PARTITIONS
from tests.runtime.slot.world import Driver, Side, assigned


class Work(msgspec.Struct):
    spec: SlotSpec
    assignment: Assignment


def flow_of(run: Run) -> FlowSpec:
    return FlowSpec(
        name=run.tag,
        source="here",
        destination="there",
        topics=SelectionSpec(include=(run.topic.replace(".", r"\."),)),
        rename=Template(text=f"{run.tag}.{{topic}}"),
        provenance=run.workload.provenance,
        schemas=SchemaSync(sync=run.workload.schemas, ids="translate"),
    )


class Slots:
    """One process for each slot, each with its share of the partitions."""

    name = "slot"
    warm_s = 3.0

    def __init__(self, *, profile: bool = False, copy: CopySettings | None = None) -> None:
        self._profile = profile
        self._copy = copy or CopySettings()

    def start(self, run: Run) -> Running:
        sides = {
            "here": Side("here", run.source, {"bootstrap.servers": run.source}),
            "there": Side("there", run.destination, {"bootstrap.servers": run.destination}),
        }
        sides["there"].create_internal()
        sides["there"].create(run.mirror_topic, PARTITIONS)
        job = f"{run.tag}-{uuid.uuid4().hex[:6]}"
        driver = Driver(sides, "there", job, self._copy, registries=run.registries)
        partitions = assigned(run.tag, run.topic, PARTITIONS, destination_topic=run.mirror_topic)
        whole = asyncio.run(driver.take_over(flow_of(run), partitions, slots=run.slots))
        files = []
        for slot in range(run.slots):
            share = Assignment(whole.version, whole.flows, partitions[slot :: run.slots])
            files.append(run.folder / f"{run.tag}-{slot}.json")
            files[-1].write_bytes(msgspec.json.encode(Work(driver.spec(slot), share)))
        command = [sys.executable, "-m", "tests.bench.copy.slot_process"]
        if self._profile:
            command.append(f"--profile={run.folder / run.tag}.profile")
        return Running.start([*command, *map(str, files)], run.mirror_topic, run.folder / f"{run.tag}.log")
