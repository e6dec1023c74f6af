"""`repl cutover`: a wave of topics and clients moves to the destination for good, or returns.

    gate ──▶ fence ──▶ drain ──▶ promote ──▶ watch for stragglers
            (edit)    (waits)     (edit)

Fence and promotion are edits of the topology that are planned and applied like any other: `fenced` of the
wave, then `promoted` of its flows, or their state. So the YAML and the clusters say how far a wave is, and
the same command continues one that was cut. People review the plan of both edits before the first of them.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.config.edit import with_fenced, with_promoted
from planner.config.handout import NewAddress, handed_out
from planner.graph.cutovers import WaveTopics, is_made, made_by_others, source_of
from planner.graph.messages import counted, few
from planner.graph.routes import CopiedTopics, reason_not_synced, router_of
from planner.model.diagnostic import ExitCode, Failure, Severity, error, warning, worst
from planner.model.plan import Plan
from planner.model.topology import Fence, Flow, Topology
from planner.workflows.applying.apply import ApplyResult, review
from planner.workflows.audit.replication_status import status_request
from planner.workflows.audit.waves import (
    WaveReader,
    clients_of,
    has_moved,
    healths_of,
    readers_left,
    shared_transactions,
    waves_seen,
)
from planner.workflows.edge import Workflow
from planner.workflows.flows.ending import (
    failures_as_warnings,
    group_losses,
    report_subscriptions,
    warn_of_groups_that_stay,
    without_known_lag,
)
from planner.workflows.flows.fence import (
    LiveFence,
    check_still_fenced,
    fence_in,
    state_of,
    wait_until_in_effect,
)
from planner.workflows.flows.states import (
    apply_edited,
    edit_file,
    edit_flow,
    in_state,
    plan_edited,
    wrong_state,
)
from planner.workflows.interaction import UNATTENDED, Interaction, Noticed, ProgressHandler, ProgressText
from planner.workflows.observing import read_clusters
from planner.workflows.requests import CutoverRequest, VerifyFlowRequest
from planner.workflows.topology import checked, declared_in, folder_of
from runtime.contract.results.waves import WaveProgress, WaveState
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.results.groups import GroupLoss, GroupTopics
    from runtime.contract.results.status import PartitionHealth, ReplicationStatus, TopicHealth

_EVERY_S = 1.0
_DRAINED_EVERY_S = 0.5
_READ_WITHIN_S = 10.0
_QUIET_S = 5.0  # without rules a producer may connect again, and gets a request through each time


class CutoverResult(Struct, frozen=True):
    """The wave after the command, the last apply, and what the groups subscribe to at the destination.

    `applied` is None where the wave had moved before.
    """

    wave: WaveProgress
    applied: ApplyResult | None = None
    subscriptions: "tuple[GroupTopics, ...]" = ()

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.applied is None else self.applied.exit_code


@Workflow
async def cutover(request: CutoverRequest, interaction: Interaction = UNATTENDED) -> CutoverResult:
    """Moves a wave: waits for its gate, stops its producers, copies the rest, promotes and moves its groups.

    After an interruption the same request continues. Failure where the gate is not reached, or records are
    left at the timeout: what was done stays, and the message names the ways out.
    """
    topology = checked(request.path, request.var_files).topology
    waves, status = await _look(topology, request)
    if request.back:
        return await _back(topology, waves, status, request, interaction)
    wave = _wave_to_move(waves, status, request, interaction.progress)
    if has_moved(wave, status):
        return await _ended(wave, None, (), request, interaction)
    return await _forward(topology, wave, request, interaction)


def _wave_to_move(
    waves: Sequence[WaveTopics],
    status: "ReplicationStatus",
    request: CutoverRequest,
    progress: ProgressHandler,
) -> WaveTopics:
    """Returns the named wave, else the first that has not moved. Waves without topics are passed over."""
    if request.wave is not None:
        return _named(request.wave, waves)
    for wave in waves:
        if wave.names and not has_moved(wave, status):
            return wave
        if not wave.names:
            what = f"the wave {wave.wave.name} has no topics and is passed over"
            progress(Noticed(warning(what, "correct its topics; repl plan shows those of each wave")))
    return next((wave for wave in reversed(waves) if wave.names), waves[-1])


async def _look(topology: Topology, request: CutoverRequest) -> "tuple[list[WaveTopics], ReplicationStatus]":
    """Returns the waves of the cutover with the topics that they have now, and the status that says so."""
    named = {declared.name: declared for declared in topology.cutovers}
    declared = declared_in("cutover", request.cutover, named)
    status = await _status(topology, request)
    return waves_seen(declared, topology, status), status


def _named(name: str, waves: Sequence[WaveTopics]) -> WaveTopics:
    return declared_in("wave", name, {wave.wave.name: wave for wave in waves})


async def _status(topology: Topology, request: CutoverRequest) -> "ReplicationStatus":
    from runtime.audit.status.reader import read_status

    return await read_status(status_request(topology), 0.0, request.timeout_ms / 1000, every_offset=True)


async def _forward(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, interaction: Interaction
) -> CutoverResult:
    _check_may_move(topology, wave)
    fence = await _live_fence(wave, request, interaction)
    if wave.is_moved and fence.missing:
        what = f"the topology promotes the wave {wave.wave.name}, and its fence is not at the source"
        hint = "take the promotion out of the topology, then run the same command again"
        raise Failure(error(f"{what}: {fence.missing_text}", hint, source=wave.wave.source))
    await _warn_of_groups(topology, wave, request, interaction.progress)
    if state_of(fence, moved=wave.is_moved) is WaveState.WAITING:
        await _gate(topology, wave, request, interaction.progress)
    reviewed = None
    while not wave.is_moved:
        if fence.missing:
            reviewed = await _reviewed(topology, wave, request, interaction)
            applied = await _apply_fence(wave, request, interaction, reviewed)
            if not applied.complete:
                return await _cut(wave, applied, "may be stopped", request, interaction)
        with _fence_stays(wave, interaction.progress):
            await wait_until_in_effect(
                topology, wave, fence, request.timeout_ms / 1000, request.copied_within_ms / 1000
            )
            await _drain(topology, wave, request, interaction.progress)
            await _let_groups_read(topology, wave, request, interaction.progress)
            topology, before = checked(request.path, request.var_files).topology, wave
            wave = await _seen_again(wave, topology, request)
            if (wave.topics, wave.moved, wave.others) == (before.topics, before.moved, before.others):
                break
            _check_may_move(topology, wave)
            fence = await _live_fence(wave, request, interaction)
    flows = sorted(wave.left or wave.topics)
    with _fence_stays(wave, interaction.progress):
        edits: dict[Path, str] = {}
        promote_edit(edits, topology, wave)
        applied = await apply_edited(
            edits,
            flows,
            request,
            interaction,
            partial(_check_promoted, wave),
            reviewed=reviewed,
            check_plan=partial(check_still_fenced, wave),
        )
    if not applied.complete:
        return await _cut(wave, applied, "are still stopped", request, interaction)
    moved = checked(request.path, request.var_files).topology
    groups = await report_subscriptions(
        moved, [moved.flows[name] for name in flows], request.timeout_ms, interaction.progress
    )
    return await _ended(wave, applied, groups, request, interaction)


def _check_may_move(topology: Topology, wave: WaveTopics) -> None:
    if not wave.names:
        what = f"the wave {wave.wave.name} has no topics"
        raise Failure(
            error(what, "correct its topics; repl plan shows those of each wave", source=wave.wave.source)
        )
    for name in sorted(wave.left):
        if topology.flows[name].state != "active":
            raise wrong_state(topology.flows[name], "cut over")


async def _live_fence(wave: WaveTopics, request: CutoverRequest, interaction: Interaction) -> LiveFence:
    """Returns what of the fence is at the source, whatever the key `fenced` of the wave says."""
    if wave.cutover.fence is Fence.NONE:
        return LiveFence()
    edits = {} if wave.is_moved else fenced_edit(wave, fenced=True)
    plan = await plan_edited(edits, request, interaction, lambda _: None)
    if errors := [problem for problem in plan.diagnostics if problem.severity is Severity.ERROR]:
        raise Failure(errors, worst(errors))
    return fence_in(plan, wave)


async def _seen_again(wave: WaveTopics, topology: Topology, request: CutoverRequest) -> WaveTopics:
    """Returns the wave with the topics that it has now: some may have been created meanwhile."""
    waves, _ = await _look(topology, request)
    return _named(wave.wave.name, waves)


async def _reviewed(
    topology: Topology, wave: WaveTopics, request: CutoverRequest, interaction: Interaction
) -> Plan:
    """Returns the plan of the fence and the promotion at once, which was shown and approved."""
    both = fenced_edit(wave, fenced=True)
    promote_edit(both, topology, wave)
    plan = await plan_edited(both, request, interaction, partial(_check_promoted, wave))
    review(plan, request, interaction)
    return plan


async def _apply_fence(
    wave: WaveTopics, request: CutoverRequest, interaction: Interaction, reviewed: Plan
) -> ApplyResult:
    return await apply_edited(
        fenced_edit(wave, fenced=True),
        (),
        request,
        interaction,
        partial(check_fenced, wave, fenced=True),
        reviewed=reviewed,
    )


async def _cut(
    wave: WaveTopics, applied: ApplyResult, are: str, request: CutoverRequest, interaction: Interaction
) -> CutoverResult:
    """Returns the result where an apply was cut or failed in part. `are` says whether producers write."""
    _warn_that_fence_stays(wave, are, interaction.progress)
    return CutoverResult(await _progress(wave, request), applied)


async def _ended(
    wave: WaveTopics,
    applied: ApplyResult | None,
    groups: "tuple[GroupTopics, ...]",
    request: CutoverRequest,
    interaction: Interaction,
) -> CutoverResult:
    """Returns the result of a wave that has moved, and hands its new address out. Stragglers are warnings."""
    await _hand_out(wave, request, interaction.progress)
    progress = await _progress(wave, request)
    for straggler in progress.stragglers:
        if straggler.records:
            by = f" by {few(straggler.producers)}" if straggler.producers else ""
            what = f"{straggler.topic}: {straggler.records:,} records were written at the source since{by}"
            hint = (
                f"repl salvage {min(wave.topics)} lists them; --replay copies them once the flow is promoted"
            )
            interaction.progress(Noticed(warning(what, hint)))
        if straggler.groups:
            what = f"{straggler.topic}: members of {few(straggler.groups)} still read it at the source"
            interaction.progress(
                Noticed(warning(what, "restart them at the destination; repl clients names them"))
            )
    return CutoverResult(progress, applied, groups)


async def _progress(wave: WaveTopics, request: CutoverRequest) -> WaveProgress:
    """Returns how far a wave is now, by the topology as it is written."""
    topology = checked(request.path, request.var_files).topology
    seen = await WaveReader(topology, request.timeout_ms / 1000).progress(await _status(topology, request))
    place = (wave.cutover.name, wave.wave.name)
    return next(progress for progress in seen if (progress.cutover, progress.wave) == place)


async def _hand_out(wave: WaveTopics, request: CutoverRequest, progress: ProgressHandler) -> None:
    """Writes the files with the new address. One that is there with other content stays, with a warning."""
    if not wave.cutover.hand_out:
        return
    topology = checked(request.path, request.var_files).topology
    router = router_of(topology)
    destination = topology.clusters[topology.flows[wave.cutover.flows[0]].destination_cluster]
    brokers: list[int] = []
    if any(handed.format == "confluent_gateway" for handed in wave.cutover.hand_out):
        seen = await read_clusters({destination.name: destination}, request.timeout_ms)
        live = seen.reachable(destination.name)
        brokers = [broker.id for broker in live.brokers] if live is not None else []
    address = NewAddress(
        wave.cutover.name,
        wave.wave.name,
        destination,
        {
            topic: router.destination_topic(flow, topic) or topic
            for flow, topics in wave.topics.items()
            for topic in topics
        },
        wave.wave.groups,
        brokers,
    )
    for handed in wave.cutover.hand_out:
        folder = folder_of(request.path.resolve())
        file = folder / handed.file.replace("{wave}", wave.wave.name)
        if leaves(file, folder):
            what = f"{file} is outside of the topology's folder, behind a symbolic link, and is not written"
            progress(Noticed(warning(what, "name a file inside the folder under hand_out")))
            continue
        content = handed_out(handed, address).encode()
        if not _written(file, content):
            what = f"{file} is there with other content, and stays as it is"
            progress(Noticed(warning(what, f"remove it and run repl cutover {request.cutover} again")))
        else:
            progress(ProgressText(f"wave {wave.wave.name}: its new address is in {file}"))


def leaves(file: Path, folder: Path) -> bool:
    """Returns whether a symbolic link leads a file out of a folder."""
    return not file.resolve().is_relative_to(folder.resolve())


def _written(file: Path, content: bytes) -> bool:
    """Writes a new file; returns False where another content is there. Failure: it can't be written."""
    try:
        if file.exists() or file.is_symlink():
            return file.read_bytes() == content
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(content)
    except OSError as wrong:
        raise Failure(error(f"{file}: {wrong.strerror}", "correct that and run the command again")) from None
    return True


# The edits


def fenced_edit(wave: WaveTopics, *, fenced: bool) -> dict[Path, str]:
    after: dict[Path, str] = {}
    edit_file(
        after,
        wave.wave.source,
        lambda text: with_fenced(text, wave.cutover.name, wave.wave.name, fenced=fenced),
        f"write fenced: {str(fenced).lower()} there, then run the same command again",
        f"the place where the wave {wave.wave.name} is written is not found",
    )
    return after


def check_fenced(wave: WaveTopics, edited: Topology, *, fenced: bool) -> None:
    """Failure where the edit did not set the key, or where a wave of another cutover shares its text."""
    place = (wave.cutover.name, wave.wave.name)
    waves = {(cutover.name, other.name): other for cutover in edited.cutovers for other in cutover.waves}
    own = waves.pop(place, None)
    if own is None or own.fenced != fenced:
        what = f"the key fenced of the wave {wave.wave.name} is set elsewhere"
        raise Failure(error(what, f"write fenced: {str(fenced).lower()} by hand, or run the command again"))
    shared = sorted(cutover for (cutover, _), other in waves.items() if other.source == own.source)
    if own.source is not None and shared:
        what = (
            f"the wave {wave.wave.name} of {wave.cutover.name} shares its text with the cutover {shared[0]}"
        )
        raise Failure(error(what, "write the waves of each cutover out, without an alias"))


def promote_edit(after: dict[Path, str], topology: Topology, wave: WaveTopics) -> None:
    """Writes the promotion of what is left of a wave: states of whole flows, or patterns of topics."""
    for name, topics in sorted(wave.left.items()):
        flow = topology.flows[name]
        if not wave.others[name]:
            hint = "write state: promoted there, then run repl apply"
            edit_flow(after, flow, partial(in_state, flow, "promoted"), hint)
            continue
        for pattern in _patterns(wave, name, topics):
            edit_flow(
                after,
                flow,
                partial(_with_pattern, name, pattern),
                f"write {pattern!r} under its promoted, then run repl apply",
            )


def _with_pattern(flow: str, pattern: str, text: str) -> str | None:
    return with_promoted(text, flow, pattern)


def _patterns(wave: WaveTopics, flow: str, topics: Sequence[str]) -> list[str]:
    """Returns the patterns of a wave where they match only its topics, else the names of these."""
    match = NamePatterns(wave.wave.topics).match
    if any(map(match, wave.others[flow])):
        return [re.escape(topic).replace("\\-", "-") for topic in topics]
    return [pattern for pattern in wave.wave.topics if any(map(NamePatterns([pattern]).match, topics))]


def _check_promoted(wave: WaveTopics, edited: Topology) -> None:
    if wave.cutover.fence is not Fence.NONE:
        check_fenced(wave, edited, fenced=True)
    copied = CopiedTopics(edited)
    for name, topics in wave.topics.items():
        if any(copied.copies(name, topic) for topic in topics):
            what = f"the promotion of flow {name} is written elsewhere"
            raise Failure(error(what, "edit it by hand"))


# What is waited for


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


async def _gate(
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


async def _warn_of_groups(
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


async def _drain(
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


async def _let_groups_read(
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


@contextmanager
def _fence_stays(wave: WaveTopics, progress: ProgressHandler) -> Iterator[None]:
    """Says that producers are still stopped, where the promotion does not follow."""
    try:
        yield
    except BaseException:
        _warn_that_fence_stays(wave, "are still stopped", progress)
        raise


def _warn_that_fence_stays(wave: WaveTopics, are: str, progress: ProgressHandler) -> None:
    if wave.cutover.fence is Fence.NONE:
        return
    again = f"repl cutover {wave.cutover.name} --wave {wave.wave.name}"
    progress(
        Noticed(
            warning(
                f"the producers of the wave {wave.wave.name} {are} at the source",
                f"{again} goes on; {again} --back lets them write there again",
            )
        )
    )


# The way back


def wave_to_return(
    waves: Sequence[WaveTopics], moved: Collection[str], live: Collection[str], request: CutoverRequest
) -> WaveTopics:
    """Returns the wave to take back: the named one, else the last that is fenced and has not moved.

    `moved` are the waves of which the ledgers show a promoted topic, and `live` those with a fence at the
    source, whose key may say otherwise.
    """
    if request.wave is not None:
        return _named(request.wave, waves)
    begun = [wave for wave in waves if wave.wave.fenced or wave.wave.name in {*live, *moved}]
    if not begun:
        raise Failure(error(f"no wave of the cutover {request.cutover} has begun", "nothing was changed"))
    return next((wave for wave in reversed(begun) if wave.wave.name not in moved), begun[-1])


async def _back(
    topology: Topology,
    waves: Sequence[WaveTopics],
    status: "ReplicationStatus",
    request: CutoverRequest,
    interaction: Interaction,
) -> CutoverResult:
    """Lets the producers of a wave write at the source again: its flows have copied on all the time."""
    source = source_of(waves[0].cutover, topology)
    seen = (await plan_edited({}, request, interaction, lambda _: None)).inputs.observed.reachable(source)
    live = [wave.wave.name for wave in waves if seen is not None and is_made(wave, seen)]
    moved = {wave.wave.name: topics for wave in waves if (topics := moved_topics(wave, status))}
    wave = wave_to_return(waves, moved, live, request)
    if wave.wave.name in moved:
        whole = all(topology.flows[name].state == "promoted" for name in wave.topics)
        first = "take fenced out of the YAML of the wave and apply; then " if wave.wave.fenced else ""
        hint = (
            f"{first}repl failback {source} copies back what is new, then repl failback {source} --switch"
            if whole
            else "topics return with their whole flow: move the other waves of its flows too, then"
            f" {first}repl failback {source}; a wave with a flow of its own returns alone"
        )
        raise Failure(
            error(
                f"{counted(moved[wave.wave.name])} of the wave {wave.wave.name} moved to the destination,"
                " where it may hold records already",
                hint,
                source=wave.wave.source,
                exit=ExitCode.REFUSED,
            )
        )
    if written := sorted(name for name, topics in wave.moved.items() if topics):
        raise Failure(
            error(
                f"no topic of the wave {wave.wave.name} has moved yet, and the topology promotes them",
                f"take state: promoted, or their patterns under promoted, out of {counted(written, 'flow')};"
                " then run the same command again",
                source=topology.flows[written[0]].source,
                exit=ExitCode.REFUSED,
            )
        )
    if seen is not None and (kept := made_by_others(wave, seen)):
        what = f"there before the wave was fenced, so not removed, and still stopping producers: {few(kept)}"
        hint = "remove it with the tool that made it, if they may write again"
        interaction.progress(Noticed(warning(what, hint)))
    applied = await apply_edited(
        fenced_edit(wave, fenced=False) if wave.wave.fenced else {},
        (),
        request,
        interaction,
        partial(check_fenced, wave, fenced=False),
    )
    return CutoverResult(await _progress(wave, request), applied)


def moved_topics(wave: WaveTopics, status: "ReplicationStatus") -> list[str]:
    """Returns the topics of a wave that the ledgers show as promoted, sorted."""
    return sorted(topic.topic for topic in healths_of(wave, status) if topic.state in ENDED)
