"""A flow of which some topics are promoted on their own, while the others go on being copied.

The topics are copied until nothing is left and no slot holds them (`promoting`: nobody takes them up again),
then their groups are moved a last time (`promoted`). Both words stand in the generation record of the flow:
a driver that comes after one that died in between does the rest, and a later one does nothing again.
A topic that appears later and has such a name is never begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import Generation, GenerationKey, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selection import Names
from runtime.driver.duties.groups_last import LastSync
from runtime.driver.flows.draining import begun, left
from runtime.driver.flows.flow import FlowWork

_LOOK_S = 0.5


class PromotingFlow(FlowWork):
    def __init__(self, spec: FlowSpec, job: JobSpec, *more: Any) -> None:
        super().__init__(spec, job, *more)
        self._job = job
        self._promoted: list[str] = []
        self._behind = 0
        self._left_alone: tuple[str, ...] = ()

    @property
    def promoted(self) -> Collection[PartitionKey]:
        names = Names(self._promoted)
        progress = self._shared.ledger.all_progress(self.name) if self._promoted else {}
        return [key for key in progress if names.match(key.topic)]

    async def run(self) -> None:
        if self.generation is None:
            await self._until_done(self._take_over)
        await self._until_done(self._finish)
        await self._until_done(self._choose)
        while self.draining.topics and not self._superseded:
            await self._drain()
        await self._until_done(self._close)
        await self._until_done(self._finish)
        await super().run()

    async def _own(self) -> Generation | None:
        """The flow's generation as this driver wrote it last; None once somebody else has the flow."""
        await self._shared.ledger.decided(self.name)
        last = self._shared.ledger.generation(self.name)
        return last if last is not None and last.number == self.generation else None

    async def _choose(self) -> None:
        last = await self._own()
        closed = last.promoted if last is not None else self.spec.promoted
        self.draining.topics = begun(self.spec, self._shared, self.spec.promoted, closed)

    async def _drain(self) -> None:
        """Copies until nothing is left, then lets go; what came in meanwhile is copied first."""
        await self._until_done(self._follow)
        keys = [key for key in self.partitions if key.topic in self.draining.topics]
        await self._until_done(lambda: self._count(keys))
        if not self._behind:
            self.partitions = {key: one for key, one in self.partitions.items() if key not in set(keys)}
            self._shared.changed()
            while self._shared.holds(self.name, self.draining.topics):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
            await self._until_done(lambda: self._count(keys))
            if not self._behind:
                self.draining.topics = frozenset()
                return
        await asyncio.sleep(_LOOK_S)

    async def _count(self, keys: Collection[PartitionKey]) -> None:
        self._behind = await left(self.spec, self._shared, await self._source(), keys)

    async def _close(self) -> None:
        """No later generation copies them either."""
        last = await self._own()
        new = [one for one in self.spec.promoted if last is not None and one not in last.promoted]
        if last is not None and new:
            await self._write(replace(last, promoting=new))

    async def _finish(self) -> None:
        """Their groups, after a look of group sync that may have begun before."""
        last = await self._own()
        if last is None:
            return
        if last.promoting:
            topics = begun(self.spec, self._shared, last.promoting, last.promoted)
            async with self.draining.turn:
                self._left_alone = await LastSync(self._job, self.spec, self._shared, lambda _: topics).run()
            last = replace(last, promoted=[*last.promoted, *last.promoting], promoting=[])
            await self._write(last)
        self._promoted = last.promoted

    async def _write(self, record: Generation) -> None:
        await self._shared.pulse.still()
        await self._shared.writer.commit({GenerationKey(self.name): record})

    def view(self) -> FlowView:
        view = super().view()
        why = view.why
        if self.draining.topics and self._behind and not why:
            why = f"{self._behind:,} records of the topics to promote are left to copy"
        notes = [*view.notes, *self._left_alone]
        return replace(view, why=why, notes=notes, promoted=self._promoted)
