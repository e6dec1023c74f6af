"""The flows of a driver on real brokers, without Spark and without a slot, for a life of that driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from runtime.contract.records.ledger import Generation
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.flows import FlowManager
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.ledger import Ledger, UndecidedProgress
from tests.records import PATIENCE_S
from tests.runtime.driver.groups_world import driving
from tests.runtime.slot.world import Side
from tests.waiting import until


@dataclass(frozen=True)
class Life:
    """One driver's flows; nobody copies."""

    spec: JobSpec
    flows: FlowManager
    ledger: Ledger
    tasks: BackgroundTasks
    clusters: DriverClusters

    @property
    def work(self) -> DriverFlow:
        (work,) = self.flows.all()
        return work

    async def edit(self, flow: FlowSpec) -> None:
        used = {name: self.spec.clusters[name] for name in (flow.source, flow.destination)}
        spec = replace(self.spec, flows=[flow], routes=[], clusters=used)
        await self.flows.apply_spec(spec)
        await self.clusters.close_others(spec.clusters)

    async def until(self, holds: Callable[[DriverFlow], bool]) -> None:
        failed = self.tasks.failed
        await until(lambda: failed.done() or holds(self.work))
        assert not failed.done(), failed

    async def said(self, why: str) -> None:
        """Waits until that is in the flow's way."""
        await self.until(lambda work: why in work.view().why)

    async def generation(self) -> Generation:
        await self.ledger.refresh(self.work.name)
        found = self.ledger.generation(self.work.name)
        assert found is not None
        return found

    async def positions(self) -> dict[str, int]:
        """By topic, as the ledger has them once nothing of it is open."""
        name, keys = self.work.name, self.work.partitions
        async with asyncio.timeout(PATIENCE_S):
            await self.ledger.refresh(name)
            while any(isinstance(self.ledger.progress(key), UndecidedProgress) for key in keys):
                await asyncio.sleep(0.02)
                await self.ledger.refresh(name)
        return {key.topic: one.position for key, one in self.ledger.all_progress(name).items()}

    async def assigned(self, *topics: str) -> None:
        """Waits until the flow's partitions are those of these topics."""
        await self.until(lambda work: {key.topic for key in work.partitions} == set(topics))


@asynccontextmanager
async def life(
    sides: Mapping[str, Side],
    flow: FlowSpec,
    generations: Mapping[str, int] | None = None,
    writer_cluster: type[KafkaCluster] = KafkaCluster,
) -> AsyncIterator[Life]:
    """`generations`: as the job's last heartbeat named them."""
    async with driving(sides, flow, (), "flows", writer_cluster) as (spec, shared):
        tasks = BackgroundTasks()
        known = replace(shared, generations=generations or {})
        flows = FlowManager(known, tasks, lambda _: None)
        flows.start(spec)
        try:
            yield Life(spec, flows, shared.ledger, tasks, shared.clusters)
        finally:
            await tasks.end_all()
