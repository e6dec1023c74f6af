"""A flow that ends: promoted once all of it is copied, or failed over with what arrived.

Its generation is written with a note first and without it at last, so that a driver that comes after one that
died in between does the rest, and one that comes later does nothing again: groups that went on at the
destination meanwhile are not moved.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import GenerationKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.driver.duties.groups_last import LastSync
from runtime.driver.flows.draining import begun, left
from runtime.driver.flows.flow import FlowWork

ENDED = ("promoted", "failed_over")
ENDING = "its groups are translated a last time"
_LOOK_S = 0.3


class EndingFlow(FlowWork):
    def __init__(self, spec: FlowSpec, job: JobSpec, *more: Any) -> None:
        super().__init__(spec, job, *more)
        self._last = LastSync(job, spec, self._shared, self.taken)
        self._draining = spec.state == "promoted"
        self._ended = False
        self._behind = 0

    def inherit(self, before: FlowWork) -> None:
        super().inherit(before)
        if isinstance(before, EndingFlow):
            self._draining, self._ended = before._draining, before._ended

    @property
    def copies(self) -> bool:
        return self._draining

    @property
    def ended(self) -> bool:
        return self._ended

    async def run(self) -> None:
        if not self._ended:
            await self._until_done(self._known)
        while not self._ended and not self._superseded:
            if self._draining:
                await self._drain()
            await self._until_done(self._close)
            if self.spec.state == "promoted":
                # What came in before the fence is copied first: zero loss is what a promotion is for.
                await self._until_done(self._left)
                if self._behind:
                    self._draining, self.generation = True, None
                    continue
            await self._until_done(self._say_goodbye)

    async def _known(self) -> None:
        """It may have ended already, under a driver before this one."""
        shared = self._shared
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.state == self.spec.state and last.note != ENDING:
            self.generation = last.number
            self._cluster_ids = (last.source_cluster_id, last.destination_cluster_id)
            self._draining, self._ended = False, True
        # Topics whose own promotion is not over end with the others.
        closed = last.promoted if last is not None else ()
        self.draining.topics = begun(self.spec, shared, self.spec.promoted, closed)

    async def _drain(self) -> None:
        """Copies until nothing is left at the source, then lets go of it."""
        if self.generation is None:
            await self._until_done(self._take_over)
        while not self._superseded:
            await self._until_done(self._follow)
            await self._until_done(self._left)
            if not self._behind:
                break
            await asyncio.sleep(_LOOK_S)
        self._draining = False
        self._shared.changed()
        while self._shared.holds(self.name, None):  # noqa: ASYNC110 - a slot that hangs is started anew
            await asyncio.sleep(_LOOK_S)

    async def _left(self) -> None:
        self._behind = await left(self.spec, self._shared, await self._source(), self.partitions.keys())

    async def _close(self) -> None:
        """From here on nobody copies it."""
        await self._take(self.spec.state, note=ENDING)

    async def _say_goodbye(self) -> None:
        shared = self._shared
        if shared.ledger.all_progress(self.name):
            self._notes = await self._last.run()
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.note == ENDING and last.number == self.generation:
            told = [*dict.fromkeys([*last.promoted, *self.spec.promoted])]
            done = replace(last, note="", written_at=int(time.time() * 1000), promoted=told, promoting=[])
            await shared.writer.commit({GenerationKey(self.name): done})
        self._ended = True

    def view(self) -> FlowView:
        view = super().view()
        if self._draining and self._behind and not view.why:
            return replace(view, why=f"{self._behind:,} records are left to copy")
        return view
