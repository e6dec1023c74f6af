"""What a wave waits for before it moves: its gate, the last record of its producers, and its groups.

Each wait reports what is left when that changes, and raises Failure at the timeout.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.graph.cutovers import WaveTopics, source_of
from planner.graph.messages import few
from planner.graph.routes import reason_not_synced, router_of
from planner.model.diagnostic import Failure, error, warning
from planner.model.topology import Fence, Flow, Topology
from planner.workflows.audit.replication_status import status_request
from planner.workflows.audit.waves import clients_of, healths_of, readers_left, shared_transactions
from planner.workflows.flows.ending import (
    failures_as_warnings,
    group_losses,
    nothing_left,
    warn_of_groups_that_stay,
    without_known_lag,
)
from planner.workflows.interaction import ProgressHandler
from planner.workflows.requests import CutoverRequest, VerifyFlowRequest
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.results.groups import GroupLoss
    from runtime.contract.results.status import PartitionHealth, ReplicationStatus, TopicHealth

_EVERY_S = 1.0
_DRAINED_EVERY_S = 0.5
_READ_WITHIN_S = 10.0
_QUIET_S = 5.0  # without rules a producer may connect again, and gets a request through each time


class SeenWave(Struct, frozen=True):
    """The topics of a wave at one moment.

    `why`: a cluster does not answer, a job does not run, or a lag is not known.
    """

    topics: "list[TopicHealth]"
    why: str

    @property
    def partitions(self) -> "list[PartitionHealth]":
        return [partition for topic in self.topics for partition in topic.partitions]


class WaveWaits(Struct, frozen=True):
    """What one wave waits for, in one run of the command."""

    topology: Topology
    wave: WaveTopics
    request: CutoverRequest
    progress: ProgressHandler

    async def gate(self) -> None:
        """Waits until the wave may move. Failure: records differ, groups can't move, or copies lag."""
        gate, name = self.wave.wave.gate, self.wave.wave.name
        for shared in await shared_transactions(self.topology, self.request.timeout_s):
            self.progress(shared)
        if gate.percent:
            await self._verify(gate.percent)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._within_s
        if left := await self._nothing_left(self._groups_that_stay, deadline):
            what = f"groups of the wave {name} can't be moved: {left}"
            hint = (
                "nothing was changed. Stop their consumers at the destination, or take them out of the wave"
            )
            raise Failure(error(what, hint))
        keep_up = CopiesKeepUp(gate.lag, gate.for_ms / 1000, clock)
        if left := await self._nothing_to_copy(keep_up.left, deadline, _EVERY_S):
            what = f"the gate of the wave {name} is not reached after {self._within_s:.0f} s: {left}"
            hint = (
                "nothing was changed. Look at repl status; or give it more time (--timeout), or another gate"
            )
            raise Failure(error(what, hint))

    async def drain(self) -> None:
        """Waits until all that the source holds is copied, no transaction is open and no record comes in."""
        rules = self.wave.cutover.fence is Fence.ACL
        quiet_s = 0.0 if rules else max(self.wave.wave.gate.for_ms / 1000, _QUIET_S)
        clock = asyncio.get_running_loop().time
        left_of = not_drained(quiet_s, clock)
        if left := await self._nothing_to_copy(left_of, clock() + self._within_s, _DRAINED_EVERY_S):
            what = f"the wave {self.wave.wave.name} is not drained after {self._within_s:.0f} s: {left}"
            raise Failure(error(what, "are its producers stopped? then give it more time: --timeout"))

    async def let_groups_read(self) -> None:
        """Waits briefly until groups that still read at the source have committed everything.

        Warns of the others, and of how many records they may read again. Producers are stopped meanwhile: a
        group that never catches up is not waited for.
        """
        deadline = asyncio.get_running_loop().time() + _READ_WITHIN_S
        if left := await self._nothing_left(self._unread, deadline):
            source = source_of(self.wave.cutover, self.topology)
            what = f"members of groups at {source} may read records again at the destination: {left}"
            self.progress(warning(what, f"they read on at {source}; stop them there"))

    async def warn_of_groups(self) -> None:
        """Warns of groups that read topics of the wave and do not move with it."""
        for name in sorted(self.wave.left):
            flow = self.topology.flows[name]
            stays = partial(self._stays, flow)
            await warn_of_groups_that_stay(self.topology, flow, self.request.timeout_s, self.progress, stays)

    def _stays(self, flow: Flow, loss: "GroupLoss") -> bool:
        """Returns whether a flow does not sync a group that reads topics of the wave."""
        source_topic = router_of(self.topology).routes[flow.name].source_topic
        read = {source_topic(topic) for topic in loss.topics}
        return bool(reason_not_synced(flow, loss.group)) and not read.isdisjoint(self.wave.topics[flow.name])

    @property
    def _within_s(self) -> float:
        return self.request.copied_within_ms / 1000

    async def _nothing_left(
        self, look: Callable[[], Awaitable[str]], deadline: float, every_s: float = _EVERY_S
    ) -> str:
        def report(left: str) -> None:
            self.progress(f"wave {self.wave.wave.name}: {left}")

        return await nothing_left(look, deadline, report, every_s)

    async def _nothing_to_copy(
        self, left_of: Callable[[SeenWave], str], deadline: float, every_s: float
    ) -> str:
        """Waits until the status of the wave's topics shows nothing that is left."""
        from runtime.audit.status.reader import StatusReader

        wanted = status_request(self.topology)
        async with StatusReader(wanted, self.request.timeout_s, every_offset=True) as reader:

            async def look() -> str:
                status = await reader.status()
                topics = healths_of(self.wave, status)
                why = _not_answering(self.wave, status) or without_known_lag(topics)
                return left_of(SeenWave(topics, why))

            return await self._nothing_left(look, deadline, every_s)

    async def _groups_that_stay(self) -> str:
        """Returns the groups of the wave that its flows sync, and would not move to their exact record."""
        if not self.wave.wave.groups:
            return ""
        flows = [self.topology.flows[name] for name in sorted(self.wave.left)]
        match = NamePatterns(self.wave.wave.groups).match
        losses = await group_losses(self.topology, flows, self.request.timeout_s, self.wave.left)
        stay = {loss.group: loss.why for loss in losses if match(loss.group) and loss.kept}
        return few([f"the group {group} can't be moved yet: {why}" for group, why in stay.items()])

    async def _unread(self) -> str:
        """Returns the groups with members at the source that have not committed everything."""
        if not self.wave.wave.groups:
            return ""
        unread: dict[str, int] = {}
        with failures_as_warnings(self.progress):
            source = source_of(self.wave.cutover, self.topology)
            clients = await clients_of(self.topology, source, self.request.timeout_s)
            unread = readers_left(self.wave, clients.topics)
        return few([f"{group} has {count:,} records to read" for group, count in unread.items()])

    async def _verify(self, percent: float) -> None:
        """Failure where records of a sample differ, or could not be compared."""
        from planner.workflows.audit.comparison import verify

        for flow, topics in sorted(self.wave.left.items()):
            report = await verify.coroutine(
                self.request.derive(
                    VerifyFlowRequest, flow=flow, topics="|".join(map(re.escape, topics)), sample=percent
                ),
                self.progress,
            )
            if report.different or report.unread:
                what = "differ" if report.different else "could not be compared"
                named = [
                    f"{partition.topic}-{partition.partition}"
                    for partition in report.partitions
                    if partition.differences or partition.unread
                ]
                hint = f"nothing was changed. repl verify {flow} shows what and where"
                raise Failure(error(f"records of the wave {self.wave.wave.name} {what}: {few(named)}", hint))
            if report.nothing_comparable:
                what = f"no record of flow.{flow} in the wave {self.wave.wave.name} could be compared"
                self.progress(warning(what, f"repl verify {flow} says why"))


def _not_answering(wave: WaveTopics, status: "ReplicationStatus") -> str:
    up = {(job.name, job.destination) for job in status.jobs if job.up}
    for flow in status.flows:
        if flow.name not in wave.topics:
            continue
        if not (flow.source_answers and flow.destination_answers):
            return f"flow.{flow.name}: {flow.why}"
        if (flow.job, flow.destination) not in up:
            return f"job.{flow.job} does not run"
    return ""


class CopiesKeepUp:
    """Decides whether the copies have kept up for long enough with what the source held a look before."""

    def __init__(self, allowed: int, for_s: float, clock: Callable[[], float]) -> None:
        self._allowed = allowed
        self._for_s = for_s
        self._clock = clock
        self._before: dict[tuple[str, int], int] = {}
        self._since: float | None = None

    def left(self, seen: SeenWave) -> str:
        """Returns what is left of the gate, "" when it is reached.

        Time in which not everything is seen counts for nothing.
        """
        if seen.why:
            self._since, self._before = None, {}
            return seen.why
        behind = sum(
            max(self._before.get((part.topic, part.partition), end) - (part.position or 0), 0)
            for part in seen.partitions
            if (end := part.source_end) is not None
        )
        self._before = {
            (part.topic, part.partition): part.source_end
            for part in seen.partitions
            if part.source_end is not None
        }
        if behind > self._allowed:
            self._since = None
            return f"{behind:,} records behind, the gate allows {self._allowed:,}"
        self._since = self._since if self._since is not None else self._clock()
        if self._clock() - self._since < self._for_s:
            return f"at most {self._allowed:,} records behind; that must hold for {self._for_s:g} s"
        return ""


def not_drained(quiet_s: float, clock: Callable[[], float]) -> Callable[[SeenWave], str]:
    """Returns a function that says what is left of a wave under its fence.

    It returns "" at the second look that shows nothing, when no record has come in for `quiet_s`.
    """
    ends: dict[tuple[str, int], int | None] = {}
    since_s = 0.0

    def left_of(seen: SeenWave) -> str:
        nonlocal ends, since_s
        if seen.why:
            return seen.why
        before, ends = ends, {(part.topic, part.partition): part.source_end for part in seen.partitions}
        if before != ends:
            since_s = clock()
        opened = [
            f"{part.topic}-{part.partition}"
            for part in seen.partitions
            if (part.source_high_watermark or 0) > (part.source_end or 0)
        ]
        if opened:
            return f"transactions are open in {few(opened)}"
        behind = sum(topic.lag_records or 0 for topic in seen.topics)
        if behind:
            return f"{behind:,} records are left to copy"
        if not before:
            return "all is copied; looking once more"
        if before != ends:
            written = sorted(
                {topic for (topic, number), end in ends.items() if before.get((topic, number)) != end}
            )
            return f"records come in: {few(written)}" if written else "topics went; looking once more"
        if clock() - since_s < quiet_s:
            return f"all is copied; no record may come in for {quiet_s:g} s"
        return ""

    return left_of
