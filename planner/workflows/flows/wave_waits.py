"""What a wave waits for before it moves: its gate, the last record of its producers, and its groups.

Each wait reports what is left when that changes, and raises Failure at the timeout.
"""

import asyncio
import re
from collections.abc import Callable
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
    warn_of_groups_that_stay,
    without_known_lag,
)
from planner.workflows.interaction import Noticed, ProgressHandler, ProgressText
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
    """The topics of a wave at one moment. `why`: a cluster does not answer, or a job does not run."""

    topics: "list[TopicHealth]"
    why: str

    @property
    def partitions(self) -> "list[PartitionHealth]":
        return [partition for topic in self.topics for partition in topic.partitions]


async def _until(
    topology: Topology,
    wave: WaveTopics,
    request: CutoverRequest,
    every_s: float,
    left_of: Callable[[SeenWave], str],
    progress: ProgressHandler,
) -> str:
    """Waits until nothing is left, and returns ""; or what is left at the timeout. Reports what changes."""
    from runtime.audit.status.reader import StatusReader

    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.copied_within_ms / 1000
    shown = ""
    async with StatusReader(status_request(topology), request.timeout_ms / 1000, every_offset=True) as reader:
        while True:
            status = await reader.status()
            seen = SeenWave(healths_of(wave, status), _not_answering(wave, status))
            left = seen.why or without_known_lag(seen.topics) or left_of(seen)
            if not left or loop.time() > deadline:
                return left
            if left != shown:
                progress(ProgressText(f"wave {wave.wave.name}: {left}"))
                shown = left
            await asyncio.sleep(every_s)


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


async def reach_gate(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler
) -> None:
    """Waits until a wave may move. Failure: records differ, a group can't move, or copies are behind."""
    gate = wave.wave.gate
    for shared in await shared_transactions(topology, request.timeout_ms / 1000):
        progress(Noticed(shared))
    if gate.percent:
        await _verify(wave, request, progress)
    await _groups_can_move(topology, wave, request, progress)
    loop = asyncio.get_running_loop()
    keep_up = CopiesKeepUp(gate.lag, gate.for_ms / 1000, loop.time)
    left = await _until(topology, wave, request, _EVERY_S, keep_up.left, progress)
    if left:
        raise Failure(
            error(
                f"the gate of the wave {wave.wave.name} is not reached after"
                f" {request.copied_within_ms / 1000:.0f} s: {left}",
                "nothing was changed. Look at repl status; or give it more time (--timeout), or another gate",
            )
        )


class CopiesKeepUp:
    """Decides whether the copies have kept up for long enough with what the source held a look before."""

    def __init__(self, allowed: int, for_s: float, clock: Callable[[], float]) -> None:
        self._allowed = allowed
        self._for_s = for_s
        self._clock = clock
        self._before: dict[tuple[str, int], int] = {}
        self._since: float | None = None

    def left(self, seen: SeenWave) -> str:
        """Returns what is left of the gate, "" when it is reached."""
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


async def _verify(wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler) -> None:
    from planner.workflows.audit.comparison import verify

    for flow, topics in sorted(wave.left.items()):
        report = await verify.coroutine(
            VerifyFlowRequest(
                path=request.path,
                var_files=request.var_files,
                timeout_ms=request.timeout_ms,
                flow=flow,
                topics="|".join(map(re.escape, topics)),
                sample=wave.wave.gate.percent,
            ),
            progress,
        )
        if report.different or report.unread:
            what = "differ" if report.different else "could not be compared"
            named = [
                f"{partition.topic}-{partition.partition}"
                for partition in report.partitions
                if partition.differences or partition.unread
            ]
            hint = f"nothing was changed. repl verify {flow} shows what and where"
            raise Failure(error(f"records of the wave {wave.wave.name} {what}: {few(named)}", hint))


async def warn_of_groups(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler
) -> None:
    """Warns of groups that read topics of a wave and do not move with it."""
    for name in sorted(wave.left):
        flow = topology.flows[name]
        reads = partial(_stays, topology, wave, flow)
        await warn_of_groups_that_stay(topology, flow, request.timeout_ms, progress, reads)


async def _groups_can_move(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler
) -> None:
    """Waits until each group of a wave that its flows sync would be moved to its exact record.

    Failure: a group still can't be moved at the timeout.
    """
    flows = [topology.flows[name] for name in sorted(wave.left)]
    match = NamePatterns(wave.wave.groups).match
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.copied_within_ms / 1000
    shown = ""
    while wave.wave.groups:
        losses = await group_losses(topology, flows, request.timeout_ms / 1000, wave.left)
        stay = {loss.group: loss.why for loss in losses if match(loss.group) and loss.kept}
        left = few([f"{group}: {why}" for group, why in stay.items()])
        if not left:
            return
        if loop.time() > deadline:
            raise Failure(
                error(
                    f"groups of the wave {wave.wave.name} can't be moved: {left}",
                    f"nothing was changed. Stop their consumers at {flows[0].destination_cluster}, or take"
                    " them out of the wave",
                )
            )
        if left != shown:
            progress(ProgressText(f"wave {wave.wave.name}: waits for groups: {left}"))
            shown = left
        await asyncio.sleep(_EVERY_S)


def _stays(topology: Topology, wave: WaveTopics, flow: Flow, loss: "GroupLoss") -> bool:
    """Returns whether a flow does not sync a group that reads topics of a wave."""
    source_topic = router_of(topology).routes[flow.name].source_topic
    read = {source_topic(topic) for topic in loss.topics}
    return bool(reason_not_synced(flow, loss.group)) and not read.isdisjoint(wave.topics[flow.name])


async def drain_wave(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler
) -> None:
    """Waits until all that the source holds is copied, no transaction is open and no record comes in."""
    rules = wave.cutover.fence is Fence.ACL
    quiet_s = 0.0 if rules else max(wave.wave.gate.for_ms / 1000, _QUIET_S)
    left_of = not_drained(quiet_s, asyncio.get_running_loop().time)
    left = await _until(topology, wave, request, _DRAINED_EVERY_S, left_of, progress)
    if left:
        raise Failure(
            error(
                f"the wave {wave.wave.name} is not drained after {request.copied_within_ms / 1000:.0f} s:"
                f" {left}",
                "are its producers stopped? then give it more time: --timeout",
            )
        )


async def let_groups_read(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler
) -> None:
    """Waits briefly until groups that still read at the source have committed everything.

    Warns of the others, and of how many records they may read again. Producers are stopped meanwhile: a
    group that never catches up is not waited for.
    """
    source = source_of(wave.cutover, topology)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _READ_WITHIN_S
    shown = ""
    while wave.wave.groups:
        left = ""
        with failures_as_warnings(progress):
            clients = await clients_of(topology, source, request.timeout_ms / 1000)
            left = few([f"{group} ({n:,})" for group, n in readers_left(wave, clients.topics).items()])
        if not left:
            break
        if loop.time() > deadline:
            what = f"members of groups at {source} may read records again at the destination: {left}"
            progress(Noticed(warning(what, f"they read on at {source}; stop them there")))
            break
        if not shown:
            progress(ProgressText(f"wave {wave.wave.name}: groups read the rest at {source}: {left}"))
            shown = left
        await asyncio.sleep(_EVERY_S)


def not_drained(quiet_s: float, clock: Callable[[], float]) -> Callable[[SeenWave], str]:
    """Returns a function that says what is left of a wave under its fence.

    It returns "" at the second look that shows nothing, when no record has come in for `quiet_s`.
    """
    ends: dict[tuple[str, int], int | None] = {}
    since_s = 0.0

    def left_of(seen: SeenWave) -> str:
        nonlocal ends, since_s
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
