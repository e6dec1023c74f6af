"""This module promotes some topics of a flow on their own, while the others continue to be copied.

The topics are copied until the source holds no uncopied record and no slot holds them (`promoting`: no driver
starts them again). Then their groups are committed a last time (`promoted`). Both lists stand in the
generation record of the flow: a driver that succeeds one that died in between completes the remaining steps,
and a later driver does not repeat them. A topic that appears later under such a name is never started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import Generation, GenerationKey, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.duties.final_group_sync import FinalGroupSync
from runtime.driver.flows.draining import count_uncopied, topics_to_drain
from runtime.driver.flows.flow import DriverFlow

_POLL_S = 0.5


class PromotingFlow(DriverFlow):
    """A PromotingFlow copies a flow and promotes the topics that its spec names."""

    def __init__(self, spec: FlowSpec, job: JobSpec, *more: Any) -> None:
        super().__init__(spec, job, *more)
        self._job = job
        self._promoted: list[str] = []
        self._behind = 0
        self._group_notes: tuple[str, ...] = ()

    @property
    def promoted(self) -> Collection[PartitionKey]:
        names = NamePatterns(self._promoted)
        progress = self._shared.ledger.all_progress(self.name) if self._promoted else {}
        return [key for key in progress if names.match(key.topic)]

    async def run(self) -> None:
        """Completes an unfinished promotion, promotes the topics, and then follows the flow until
        cancelled.
        """
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        await self._retry_until_done(self._commit_promoted)
        await self._retry_until_done(self._choose_topics)
        while self.draining.topics and not self._superseded:
            await self._drain()
        await self._retry_until_done(self._commit_promoting)
        await self._retry_until_done(self._commit_promoted)
        await super().run()

    async def _own_generation(self) -> Generation | None:
        """Returns the generation as this driver last wrote it, or None once another driver has taken the
        flow over.
        """
        await self._shared.ledger.decided(self.name)
        last = self._shared.ledger.generation(self.name)
        return last if last is not None and last.number == self.generation else None

    async def _choose_topics(self) -> None:
        last = await self._own_generation()
        closed = last.promoted if last is not None else self.spec.promoted
        self.draining.topics = topics_to_drain(self.spec, self._shared, self.spec.promoted, closed)

    async def _drain(self) -> None:
        """Copies until the source holds no uncopied record and no slot holds the topics; records that
        arrive meanwhile are copied first.
        """
        await self._retry_until_done(self._follow)
        keys = [key for key in self.partitions if key.topic in self.draining.topics]
        await self._retry_until_done(lambda: self._count_behind(keys))
        if not self._behind:
            self.partitions = {key: one for key, one in self.partitions.items() if key not in set(keys)}
            self._shared.changed()
            while self._shared.holds(self.name, self.draining.topics):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
            await self._retry_until_done(lambda: self._count_behind(keys))
            if not self._behind:
                self.draining.topics = frozenset()
                return
        await asyncio.sleep(_POLL_S)

    async def _count_behind(self, keys: Collection[PartitionKey]) -> None:
        self._behind = await count_uncopied(self.spec, self._shared, await self._source(), keys)

    async def _commit_promoting(self) -> None:
        """Commits the topics as `promoting`, so that later generations do not copy them either."""
        last = await self._own_generation()
        new = [one for one in self.spec.promoted if last is not None and one not in last.promoted]
        if last is not None and new:
            await self._commit_generation(replace(last, promoting=new))

    async def _commit_promoted(self) -> None:
        """Commits the topics' groups a last time, after any pass of group sync that is under way."""
        last = await self._own_generation()
        if last is None:
            return
        if last.promoting:
            topics = topics_to_drain(self.spec, self._shared, last.promoting, last.promoted)
            async with self.draining.group_sync_lock:
                self._group_notes = await FinalGroupSync(
                    self._job, self.spec, self._shared, lambda _: topics
                ).run()
            last = replace(last, promoted=[*last.promoted, *last.promoting], promoting=[])
            await self._commit_generation(last)
        self._promoted = last.promoted

    async def _commit_generation(self, record: Generation) -> None:
        await self._shared.leadership.ensure()
        await self._shared.writer.commit({GenerationKey(self.name): record})

    def view(self) -> FlowView:
        view = super().view()
        why = view.why
        if self.draining.topics and self._behind and not why:
            why = f"{self._behind:,} records of the topics to promote are left to copy"
        notes = [*view.notes, *self._group_notes]
        return replace(view, why=why, notes=notes, promoted=self._promoted)
