"""This module ends a flow: it is promoted once everything is copied, or failed over with what arrived.

The generation is written first with a note and at the end without it. A driver that succeeds one that died in
between completes the remaining steps. A later driver does not repeat them, so groups that continued at the
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
from runtime.driver.duties.final_group_sync import FinalGroupSync
from runtime.driver.flows.draining import count_uncopied, topics_to_drain
from runtime.driver.flows.flow import DriverFlow

ENDED = ("promoted", "failed_over")
ENDING = "its groups are translated a last time"
_POLL_S = 0.3


class EndingFlow(DriverFlow):
    """An EndingFlow drains a flow that is promoted, stops its slots, and translates its groups a last
    time.
    """

    def __init__(self, spec: FlowSpec, job: JobSpec, *more: Any) -> None:
        super().__init__(spec, job, *more)
        self._last_sync = FinalGroupSync(job, spec, self._shared, self.selected)
        self._draining = spec.state == "promoted"
        self._ended = False
        self._behind = 0

    def inherit(self, before: DriverFlow) -> None:
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
        """Drains a promoted flow, commits the end of the generation, and translates the groups.

        A promoted flow is drained again when records arrived before the fence.
        """
        if not self._ended:
            await self._retry_until_done(self._restore_end)
        while not self._ended and not self._superseded:
            if self._draining:
                await self._drain()
            await self._retry_until_done(self._commit_end)
            if self.spec.state == "promoted":
                # Records that arrived before the fence are copied first: a promotion must lose nothing.
                await self._retry_until_done(self._count_behind)
                if self._behind:
                    self._draining, self.generation = True, None
                    continue
            await self._retry_until_done(self._complete_end)

    async def _restore_end(self) -> None:
        """Restores the flow's end from the ledger if an earlier driver completed it."""
        shared = self._shared
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.state == self.spec.state and last.note != ENDING:
            self.generation = last.number
            self._cluster_ids = (last.source_cluster_id, last.destination_cluster_id)
            self._draining, self._ended = False, True
        # Topics whose own promotion is not complete end together with the flow.
        closed = last.promoted if last is not None else ()
        self.draining.topics = topics_to_drain(self.spec, shared, self.spec.promoted, closed)

    async def _drain(self) -> None:
        """Copies until the source holds no uncopied record, then waits until no slot holds a partition of
        the flow.
        """
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        while not self._superseded:
            await self._retry_until_done(self._follow)
            await self._retry_until_done(self._count_behind)
            if not self._behind:
                break
            await asyncio.sleep(_POLL_S)
        self._draining = False
        self._shared.changed()
        while self._shared.holds(self.name, None):  # noqa: ASYNC110 - a slot that hangs is restarted
            await asyncio.sleep(_POLL_S)

    async def _count_behind(self) -> None:
        self._behind = await count_uncopied(
            self.spec, self._shared, await self._source(), self.partitions.keys()
        )

    async def _commit_end(self) -> None:
        """Commits the generation that ends the flow; from then on no slot copies it."""
        await self._take(self.spec.state, note=ENDING)

    async def _complete_end(self) -> None:
        """Translates the groups a last time and commits the generation without the note."""
        shared = self._shared
        if shared.ledger.all_progress(self.name):
            self._notes = await self._last_sync.run()
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.note == ENDING and last.number == self.generation:
            promoted = [*dict.fromkeys([*last.promoted, *self.spec.promoted])]
            done = replace(last, note="", written_at=int(time.time() * 1000), promoted=promoted, promoting=[])
            await shared.writer.commit({GenerationKey(self.name): done})
        self._ended = True

    def view(self) -> FlowView:
        view = super().view()
        if self._draining and self._behind and not view.why:
            return replace(view, why=f"{self._behind:,} records are left to copy")
        return view
