"""Group sync: what groups committed at a flow's source, translated and committed at its destination.

One look: groups listed and their offsets read at the source; then the ledger, the offset maps and what was
written before, each up to now; then positions. What follows from them is done in `groups_write`.
"""

from __future__ import annotations

import asyncio
import time

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.groups.decisions import Item, group_selector, own_groups
from runtime.contract.groups.translate import Pending
from runtime.contract.records.checkpoint import CheckpointState as State
from runtime.contract.spec import internal_topics
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.spec_routes import router_of
from runtime.driver.destination import ensure
from runtime.driver.duties.groups_book import DONE, Book, GroupNumbers
from runtime.driver.duties.groups_reader import Reader
from runtime.driver.duties.groups_times import keep_times
from runtime.driver.duties.groups_write import NOTE, Bringing
from runtime.driver.flows.draining import Draining
from runtime.driver.flows.takeover import Shared
from runtime.driver.topics.discovery import taken_by
from runtime.groups.sides import Placed, Sides
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.ledger.consumer_times import Times
from runtime.ledger.scan import READ_FAILURES
from runtime.metrics.picture import GroupPicture

_EVERYTHING_S = 300.0
_TIMES_AT_ONCE = 500  # each is a fetch at the source


class GroupSync:
    """`run` until cancelled; what goes wrong is said in `notes` and tried again, it never stops the flow."""

    def __init__(
        self, job: JobSpec, flow: FlowSpec, shared: Shared, reader: Reader, draining: Draining | None = None
    ) -> None:
        self.notes: dict[str, str] = {}
        self._job = job
        self._flow = flow
        self._shared = shared
        self._reader = reader
        self._draining = draining or Draining()
        self._router = router_of(job)
        self._selector = group_selector(flow.groups)
        self._own = own_groups(job)
        self._book = Book(flow.name)
        self._sides: Sides | None = None
        self._everything_at = 0.0
        self._offsets: dict[Item, CommittedOffset] = {}

    def inherit(self, before: GroupSync) -> None:
        """Goes on counting where an older version of the same flow was, and looks at everything again."""
        self._book = before._book
        self._book.look_again()

    def pictures(self) -> list[GroupPicture]:
        return self._book.pictures()

    def numbers(self) -> GroupNumbers:
        return self._book.numbers()

    async def run(self) -> None:
        """Raises DriverFenced."""
        if not self._flow.groups.sync:
            return
        try:
            while True:
                await self._try()
                await asyncio.sleep(self._flow.groups.every_ms / 1000)
        finally:
            self._reader.leave(self._flow.name, self._selects)

    async def _try(self) -> None:
        try:
            async with self._draining.turn:
                await self.look()
        except (WireError, ClientSettingsError) as error:
            self.notes[NOTE] = str(error)
        except READ_FAILURES as error:
            self.notes[NOTE] = str(error)
            self._sides = None

    async def look(self) -> None:
        """Once, at all groups. Raises WireError, ClientSettingsError, READ_FAILURES, DriverFenced."""
        began = _now_s()
        self.notes.pop(NOTE, None)
        sides = await self._opened()
        await self._read(sides)
        await sides.refresh(self._router, self._shared.ledger, {item.topic for item in self._offsets})
        news = self._news(sides, began)
        await self._keep_times(sides)
        placed = await sides.place({item: self._offsets[item].offset for item in news})
        moved = [item for item in news if self._moved(item, placed[item])]
        bringing = Bringing(self._flow, self._shared.pulse, sides, self._book, self._offsets, self.notes)
        written = await bringing.bring({item: placed[item] for item in moved})
        self._book.looked(time.time(), _now_s() - began, written)

    async def _opened(self) -> Sides:
        source = await self._shared.clusters.cluster(self._flow.source)
        destination = self._shared.destination
        if self._sides is None or self._sides.source is not source:
            self._sides = Sides(self._flow.name, source, destination, await self._times(source))
        return self._sides

    async def _times(self, source: Cluster) -> Times | None:
        if self._flow.groups.mode != "timestamp":
            return None
        shared, kept = self._shared, self._job.internal.timestamps
        topic = internal_topics.timestamps(self._job.internal)
        await ensure(shared.clusters, self._flow.destination, [topic], self._job)
        return Times(self._flow.name, source, shared.destination, kept.max_per_partition)

    async def _keep_times(self, sides: Sides) -> None:
        """Consumer timestamps, so many in one look."""
        if sides.times is not None:
            committed = {item: one.offset for item, one in self._offsets.items()}
            await sides.times.learn(committed, _TIMES_AT_ONCE)
            await keep_times(self._shared, sides.times)

    async def _read(self, sides: Sides) -> None:
        """What the selected groups committed on the flow's topics."""
        assert sides.source is not None
        fresh_s = self._flow.groups.every_ms / 2000
        read = await self._reader.read(sides.source, self._flow.name, self._selects, fresh_s)
        if read.failed:
            what = f"{len(read.failed)} could not be read at {self._flow.source}, as {read.failed[0]}"
            self.notes[NOTE] = what
        selected = {group: offsets for group, offsets in read.offsets.items() if self._selects(group)}
        topics = {at.topic for offsets in selected.values() for at in offsets}
        taken = taken_by(self._flow, self._router, topics, self._draining.topics)
        self._offsets = {
            Item(group, *at): offset
            for group, offsets in selected.items()
            for at, offset in offsets.items()
            if at.topic in taken
        }
        if not read.failed:
            self._book.keep(self._offsets)

    def _selects(self, group: str) -> bool:
        return group not in self._own and self._selector.answer(group).taken

    def _news(self, sides: Sides, began: float) -> list[Item]:
        """What is to be translated: committed since, or not settled, and no other flow's doing."""
        if began - self._everything_at > _EVERYTHING_S:
            self._everything_at = began
            self._book.look_again()
        news = []
        for item, committed in self._offsets.items():
            entry = self._book.seen(item, committed.offset, began)
            if entry.settled:
                continue
            if sides.is_ours(item, committed.offset):
                entry.state = State.OURS
            else:
                news.append(item)
        return news

    def _moved(self, item: Item, placed: Placed) -> bool:
        """Whether there is anything to do that was not done the last time."""
        entry = self._book.seen(item, self._offsets[item].offset, _now_s())
        before, entry.position = entry.position, placed.position
        waits = isinstance(placed.position, Pending) and entry.state is State.PENDING
        return before != placed.position or not (waits or entry.state in DONE)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
