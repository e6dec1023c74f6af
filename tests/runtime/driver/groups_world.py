"""Group sync on real brokers without Spark: the duty as the driver runs it, and groups."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec
from confluent_kafka import Consumer

from runtime.contract.records.job_status import JobStatus
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, Route
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.group_sync import CommittedOffsetsReader, FinalGroupSync, GroupSync
from runtime.driver.flows.start import DriverContext
from runtime.driver.leadership import Leadership
from runtime.groups.translation import Checkpoints
from runtime.kafka.cluster import KafkaCluster, opened
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger
from runtime.metrics.snapshot import GroupSnapshot
from tests.records import commit_group, group_offsets
from tests.runtime.slot.world import Side


class Looked(NamedTuple):
    """What a look came to: the states of the flow's newest checkpoints, and the metrics of its groups."""

    states: Counter[str]
    groups: list[GroupSnapshot]

    @property
    def written(self) -> int:
        return sum(group.translated for group in self.groups)


def look(sides: Mapping[str, Side], flow: FlowSpec, *others: FlowSpec, times: int = 1) -> Looked:
    """Does one look, or several, as a driver that has just started."""

    async def looked() -> Looked:
        async with syncing(sides, flow, *others) as sync:
            for _ in range(times):
                await sync.sync_once()
            assert not sync.notes
            groups = sync.snapshots()
        async with await opened(flow.destination, sides[flow.destination].spec(), {}) as cluster:
            checkpoints = Checkpoints(cluster)
            await checkpoints.refresh()
        newest = checkpoints.of_flow(flow.name).values()
        return Looked(Counter(checkpoint.state.value for checkpoint in newest), groups)

    return asyncio.run(looked())


@asynccontextmanager
async def syncing(
    sides: Mapping[str, Side], flow: FlowSpec, *others: FlowSpec, job: str = "groups"
) -> AsyncIterator[GroupSync]:
    """The duty of one flow; `others` are the topology's other flows. `look` does one round."""
    async with driving(sides, flow, others, job) as (spec, shared):
        yield GroupSync(spec, flow, shared, CommittedOffsetsReader(), {})


async def last_look(
    sides: Mapping[str, Side], flow: FlowSpec, *others: FlowSpec, lost: str
) -> tuple[str, ...]:
    """Groups translated a last time, when nobody listens any more where cluster `lost` was."""
    dead = replace(sides[lost], bootstrap="127.0.0.1:1", client={"bootstrap.servers": "127.0.0.1:1"})
    flow = msgspec.structs.replace(flow, state="failed_over")
    async with driving({**sides, lost: dead}, flow, others, "last") as (spec, shared):
        return await FinalGroupSync(spec, flow, shared, set, lambda _: None).run()


@asynccontextmanager
async def driving(
    sides: Mapping[str, Side],
    flow: FlowSpec,
    others: Sequence[FlowSpec],
    job: str,
    writer_cluster: type[KafkaCluster] = KafkaCluster,
) -> AsyncIterator[tuple[JobSpec, DriverContext]]:
    """One life of a driver without slots; the next one of the same job fences it."""
    specs = {name: side.spec() for name, side in sides.items()}
    spec = JobSpec(
        job=f"{job}-{flow.name}",
        topology="tests",
        destination=flow.destination,
        clusters=specs,
        flows=[flow],
        routes=[_route(one) for one in (flow, *others)],
    )
    clusters, open_writer = DriverClusters(spec.job, specs, {}), AsyncExitStack()
    try:
        destination = await clusters.cluster(flow.destination)
        at_writer = await open_writer.enter_async_context(await writer_cluster.open(destination.settings))
        leadership = await Leadership.open(
            at_writer, spec.job, lambda: JobStatus(spec.job, "tests", "driver", "running", now_ms(), 0)
        )
        yield (
            spec,
            DriverContext(
                spec=spec,
                driver="driver",
                clusters=clusters,
                destination=destination,
                ledger=await Ledger.open(destination),
                leadership=leadership,
                application=cast(SparkSlotRunner, None),  # nothing is copied
            ),
        )
    finally:
        await open_writer.aclose()
        await clusters.close()


def _route(flow: FlowSpec) -> Route:
    return Route(
        name=flow.name,
        source=flow.source,
        destination=flow.destination,
        topics=flow.topics,
        rename=flow.rename,
    )


def commit(side: Side, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = "") -> None:
    """As an administrator does, where nobody is connected: no member, no leader epoch."""
    commit_group(side.client, group, offsets, metadata)


def committed(side: Side, group: str) -> dict[tuple[str, int], int]:
    """All that the group has committed there."""
    return group_offsets(side.client, group)


def member(side: Side, group: str, topics: Sequence[str], **config: Any) -> Consumer:
    """Connected, and assigned something, when this returns."""
    consumer = consumer_of(side, group, **config)
    consumer.subscribe(list(topics))
    deadline = time.monotonic() + 120
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no partition was assigned"
        consumer.poll(0.1)
    return consumer


def consumer_of(side: Side, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            **side.client,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "enable.partition.eof": True,
            "log_level": 2,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
