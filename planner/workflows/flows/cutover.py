"""`repl cutover`: a wave of topics and clients moves to the destination for good, or returns.

    gate ──▶ fence ──▶ drain ──▶ promote ──▶ hand out, and look for stragglers
            (edit)    (waits)     (edit)

Fence and promotion are edits of the topology that are planned and applied like any other: `fenced` of the
wave, then `promoted` of its flows, or their state. So the YAML and the clusters say how far a wave is, and
the same command continues one that was cut. People review the plan of both edits before the first of them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.graph.cutovers import WaveTopics, source_of
from planner.graph.messages import counted, few
from planner.graph.routes import pending_failbacks
from planner.model.diagnostic import ExitCode, Failure, Severity, error, warning, worst
from planner.model.plan import ApplyResult, Plan
from planner.model.topology import Fence, Topology
from planner.workflows.applying.apply import review
from planner.workflows.audit.waves import WaveReader, has_moved, healths_of, waves_seen
from planner.workflows.edge import Workflow
from planner.workflows.flows.edits import (
    TopologyEdits,
    apply_edited,
    plan_edited,
    states_edited,
    wrong_state,
)
from planner.workflows.flows.ending import read_subscriptions, status_of
from planner.workflows.flows.failover import copy_back, failbacks_to_switch, switch_flows
from planner.workflows.flows.fence import (
    LiveFence,
    check_still_fenced,
    fence_in,
    is_live,
    wait_until_in_effect,
    warn_of_rules_that_stay,
)
from planner.workflows.flows.handing_out import hand_out
from planner.workflows.flows.wave_edits import check_promotes_only, fence_edit, promote_edit
from planner.workflows.flows.wave_waits import WaveWaits
from planner.workflows.interaction import UNATTENDED, Interaction
from planner.workflows.requests import CutoverRequest
from planner.workflows.topology import declared_in, load_and_lint
from runtime.contract.results.waves import WaveProgress
from runtime.contract.spec.flow import ENDED, FlowState
from runtime.contract.spec.route import is_reserved

if TYPE_CHECKING:
    from runtime.contract.results.groups import GroupTopics
    from runtime.contract.results.status import ReplicationStatus


class CutoverResult(Struct, frozen=True):
    """The wave after the command, and the last apply; None where the wave had moved before.

    `switch_follows`: what was new is copied back, and `--back --switch` returns the clients. `subscriptions`
    are those of the groups of flows or topics that have ended, also where an earlier command ended them.
    """

    wave: WaveProgress
    applied: ApplyResult | None = None
    switch_follows: bool = False
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
    if request.switch and not request.back:
        raise Failure(
            error("--switch belongs to --back", f"repl cutover {request.cutover} --wave WAVE --back --switch")
        )
    topology = load_and_lint(request).topology
    waves, status = await _look(topology, request)
    if request.back:
        return await _back(topology, waves, status, request, interaction)
    wave = _wave_to_move(waves, status, request, interaction)
    return await WaveMove(topology, wave, request, interaction).run(moved=has_moved(wave, status))


async def _look(topology: Topology, request: CutoverRequest) -> "tuple[list[WaveTopics], ReplicationStatus]":
    """Returns the waves of the cutover with the topics that they have now, and the status that says so."""
    declared = declared_in("cutover", request.cutover, {named.name: named for named in topology.cutovers})
    status = await status_of(topology, request.timeout_s, every_offset=True)
    return waves_seen(declared, topology, status), status


def _named(name: str, waves: Sequence[WaveTopics]) -> WaveTopics:
    return declared_in("wave", name, {wave.wave.name: wave for wave in waves})


def _wave_to_move(
    waves: Sequence[WaveTopics],
    status: "ReplicationStatus",
    request: CutoverRequest,
    interaction: Interaction,
) -> WaveTopics:
    """Returns the named wave, else the first that has not moved. Waves without topics are passed over."""
    if request.wave is not None:
        return _named(request.wave, waves)
    for wave in waves:
        if wave.names and not has_moved(wave, status):
            return wave
        if not wave.names:
            what = f"the wave {wave.wave.name} has no topics and is passed over"
            interaction.progress(warning(what, "correct its topics; repl plan shows those of each wave"))
    return next((wave for wave in reversed(waves) if wave.names), waves[-1])


async def _progress(wave: WaveTopics, request: CutoverRequest) -> WaveProgress:
    """Returns how far a wave is now, by the topology as it is written."""
    topology = load_and_lint(request).topology
    seen = await WaveReader(topology, request.timeout_s).progress(
        await status_of(topology, request.timeout_s, every_offset=True)
    )
    place = (wave.cutover.name, wave.wave.name)
    return next(progress for progress in seen if (progress.cutover, progress.wave) == place)


class WaveMove:
    """A wave on its way to the destination, in one run of the command.

    gate ─▶ fence ─▶ drain ─▶ promote ─▶ hand out
              ▲        │
              └────────┘ topics that were created meanwhile join the wave
    """

    def __init__(
        self, topology: Topology, wave: WaveTopics, request: CutoverRequest, interaction: Interaction
    ) -> None:
        self.topology = topology
        self.wave = wave
        self._request = request
        self._interaction = interaction
        self._progress = interaction.progress
        self._fence = LiveFence()
        self._reviewed: Plan | None = None
        self._applied: ApplyResult | None = None
        self._stopped = False  # whether all producers are: some may be while the fence is made

    async def run(self, *, moved: bool) -> CutoverResult:
        """Passes through the phases that are left. An apply that is not complete ends the move."""
        if not moved:
            await self._see_fence()
            await self._waits.warn_of_groups()
            await self._gate()
            with self._says_what_stays():
                if not await self._moved():
                    return CutoverResult(await _progress(self.wave, self._request), self._applied)
        progress = await self._hand_out()
        return CutoverResult(progress, self._applied, subscriptions=await self._subscriptions())

    async def _moved(self) -> bool:
        """Stops the producers, copies the rest and promotes; returns whether every apply is complete."""
        grows = True
        while grows:
            self._stopped = False
            await self._stop_producers()
            if self._applied is not None and not self._applied.complete:
                return False
            self._stopped = True
            grows = await self._drain()
        return await self._promote()

    @property
    def _waits(self) -> WaveWaits:
        return WaveWaits(self.topology, self.wave, self._request, self._progress)

    async def _see_fence(self) -> None:
        """Reads the part of the fence that exists at the source, independently of the wave's key `fenced`."""
        wave = self.wave
        if not wave.names:
            what, hint = (
                f"the wave {wave.wave.name} has no topics",
                "correct its topics; repl plan shows them",
            )
            raise Failure(error(what, hint, source=wave.wave.source))
        for name in sorted(wave.left):
            if self.topology.flows[name].state != "active":
                raise wrong_state(self.topology.flows[name], "cut over")
        if wave.cutover.fence is Fence.NONE:
            return
        edits = TopologyEdits()
        if not wave.is_moved:
            fence_edit(edits, [wave], fenced=True)
        plan = await plan_edited(edits, self._request, self._interaction)
        if errors := [problem for problem in plan.diagnostics if problem.severity is Severity.ERROR]:
            raise Failure(errors, worst(errors))
        self._fence = fence_in(plan, wave)
        if wave.is_moved and self._fence.missing:
            what = f"the topology promotes the wave {wave.wave.name}, and its fence is not at the source"
            hint = "take the promotion out of the topology, then run the same command again"
            raise Failure(error(f"{what}: {self._fence.missing_text}", hint, source=wave.wave.source))

    async def _gate(self) -> None:
        """Waits until the copies are right and keep up. A wave whose producers are stopped has passed it."""
        if not (self.wave.is_moved or self._fence.begun):
            await self._waits.gate()

    async def _stop_producers(self) -> None:
        """Shows the plan of the fence and the promotion, and creates the missing part of the fence."""
        if self.wave.is_moved or self._fence.is_complete(self.wave):
            return
        both = TopologyEdits()
        fence_edit(both, [self.wave], fenced=True)
        promote_edit(both, self.topology, self.wave)
        self._reviewed = await plan_edited(both, self._request, self._interaction)
        check_promotes_only(self.wave, self.topology, self._reviewed)
        review(self._reviewed, self._request, self._interaction)
        edits = TopologyEdits()  # of the files as they are now: a review takes as long as people need
        fence_edit(edits, [self.wave], fenced=True)
        self._applied = await apply_edited(edits, self._request, self._interaction, reviewed=self._reviewed)

    async def _drain(self) -> bool:
        """Waits until the last record is copied; returns whether topics were created meanwhile."""
        if self.wave.is_moved:
            return False
        timeout_s, within_s = self._request.timeout_s, self._request.copied_within_ms / 1000
        await wait_until_in_effect(self.topology, self.wave, self._fence, timeout_s, within_s, self._progress)
        await self._waits.drain()
        await self._waits.let_groups_read()
        self.topology = load_and_lint(self._request).topology
        now = _named(self.wave.wave.name, (await _look(self.topology, self._request))[0])
        if (now.topics, now.moved, now.others) == (self.wave.topics, self.wave.moved, self.wave.others):
            return False
        self.wave = now
        await self._see_fence()
        return True

    async def _promote(self) -> bool:
        """Promotes the topics and moves the groups; returns whether that is complete.

        A plan that would change the fence too is refused.
        """
        wave, before = self.wave, self.topology

        def check_plan(plan: Plan) -> None:
            check_still_fenced(wave, plan)
            check_promotes_only(wave, before, plan)

        edits = TopologyEdits()
        promote_edit(edits, before, wave)
        applied = self._applied = await apply_edited(
            edits,
            self._request,
            self._interaction,
            reviewed=self._reviewed,
            check_plan=check_plan,
            decisive=sorted(wave.left or wave.topics),
        )
        return applied.complete

    async def _subscriptions(self) -> "tuple[GroupTopics, ...]":
        """Returns what the consumers of the wave's groups subscribe to at the destination."""
        moved = load_and_lint(self._request).topology
        flows = [moved.flows[name] for name in sorted(self.wave.left or self.wave.topics)]
        return await read_subscriptions(moved, flows, self._request.timeout_s, self._progress)

    async def _hand_out(self) -> WaveProgress:
        """Writes the files with the new address, and warns of clients that are still active at the source."""
        await hand_out(self.wave, self._request, self._progress)
        seen = await _progress(self.wave, self._request)
        for straggler in seen.stragglers:
            if straggler.records:
                by = f" by {few(straggler.producers)}" if straggler.producers else ""
                what = (
                    f"{straggler.topic}: {straggler.records:,} records were written at the source since{by}"
                )
                flow = min(self.wave.topics)
                hint = f"repl salvage {flow} lists them; --replay copies them once the flow is promoted"
                self._progress(warning(what, hint))
            if straggler.groups:
                what = f"{straggler.topic}: members of {few(straggler.groups)} still read it at the source"
                hint = "restart them at the destination; repl clients names them"
                self._progress(warning(what, hint))
        return seen

    @contextmanager
    def _says_what_stays(self) -> Iterator[None]:
        """Says that producers are stopped, where the command ends before the wave has moved."""
        complete = False
        try:
            yield
            complete = self._applied is None or self._applied.complete
        finally:
            fenced = self.wave.cutover.fence is not Fence.NONE
            if not complete and fenced and (self._stopped or is_fence_written(self.wave, self._request)):
                again = f"repl cutover {self.wave.cutover.name} --wave {self.wave.wave.name}"
                how = "are still stopped" if self._stopped else "may be stopped"
                what = f"the producers of the wave {self.wave.wave.name} {how} at the source"
                hint = f"{again} goes on; {again} --back lets them write there again"
                self._progress(warning(what, hint))


def is_fence_written(wave: WaveTopics, request: CutoverRequest) -> bool:
    """Returns whether the YAML says that a wave is fenced: it is written right before the first step."""
    try:
        cutovers = load_and_lint(request).topology.cutovers
    except Failure:
        return True
    return any(
        declared.fenced
        for cutover in cutovers
        for declared in cutover.waves
        if (cutover.name, declared.name) == (wave.cutover.name, wave.wave.name)
    )


# The way back


def wave_to_return(
    waves: Sequence[WaveTopics],
    in_ledgers: Collection[str],
    at_source: Collection[str],
    request: CutoverRequest,
) -> WaveTopics:
    """Returns the wave to take back: the named one, else the last that is fenced and has not moved.

    `in_ledgers` are the waves of which the ledgers show a promoted topic, and `at_source` those with a fence
    there, whose key may say otherwise. A wave that has moved returns by its name only.
    """
    if request.wave is not None:
        return _named(request.wave, waves)
    begun = [wave for wave in waves if wave.wave.fenced or wave.wave.name in {*at_source, *in_ledgers}]
    left = [wave for wave in begun if wave.wave.name not in in_ledgers]
    if left:
        return left[-1]
    if not begun:
        raise Failure(error(f"no wave of the cutover {request.cutover} has begun", "nothing was changed"))
    last = begun[-1].wave.name
    raise Failure(
        error(
            f"the wave {last} moved to the destination, where it may hold records already",
            f"repl cutover {request.cutover} --wave {last} --back copies them back first",
            exit=ExitCode.REFUSED,
        )
    )


async def _back(
    topology: Topology,
    waves: Sequence[WaveTopics],
    status: "ReplicationStatus",
    request: CutoverRequest,
    interaction: Interaction,
) -> CutoverResult:
    """Lets the producers of a wave write at the source again: its flows have copied on all the time."""
    check_ledgers_read(waves, status, request)
    plan = await plan_edited(TopologyEdits(), request, interaction)
    at_source = [wave.wave.name for wave in waves if is_live(wave, plan)]
    in_ledgers = [wave.wave.name for wave in waves if promoted_in_ledgers(wave, status)]
    wave = wave_to_return(waves, in_ledgers, at_source, request)
    if wave.wave.name in in_ledgers or (request.switch and wave.topics):
        return await _return_moved(topology, wave, status, request, interaction)
    if in_yaml := sorted(name for name, topics in wave.moved.items() if topics):
        raise Failure(
            error(
                f"no topic of the wave {wave.wave.name} has moved yet, and the topology promotes them",
                f"take state: promoted, or their patterns under promoted, out of {counted(in_yaml, 'flow')};"
                " then run the same command again",
                source=topology.flows[in_yaml[0]].source,
                exit=ExitCode.REFUSED,
            )
        )
    edits = TopologyEdits()
    if wave.wave.fenced:
        fence_edit(edits, [wave], fenced=False)
    check_plan = partial(warn_of_rules_that_stay, [wave], interaction.progress)
    applied = await apply_edited(edits, request, interaction, check_plan=check_plan)
    return CutoverResult(await _progress(wave, request), applied)


def check_ledgers_read(
    waves: Sequence[WaveTopics], status: "ReplicationStatus", request: CutoverRequest
) -> None:
    """Failure where a cluster does not say how far the waves are that may return: one may have moved."""
    chosen = waves if request.wave is None else [_named(request.wave, waves)]
    flows = {flow for wave in chosen for flow in wave.topics or wave.cutover.flows}
    silent = [
        flow
        for flow in status.flows
        if flow.name in flows and not (flow.source_answers and flow.destination_answers)
    ]
    if silent:
        raise Failure(
            error(
                f"whether topics of the cutover {request.cutover} have moved is not known:"
                f" flow.{silent[0].name}: {silent[0].why}",
                "nothing was changed. Run the same command again when both clusters answer. If you are sure"
                " that no topic of the wave was promoted, write fenced: false there and run repl apply",
            )
        )


async def _return_moved(
    topology: Topology,
    wave: WaveTopics,
    status: "ReplicationStatus",
    request: CutoverRequest,
    interaction: Interaction,
) -> CutoverResult:
    """Copies back what is new of a wave that has moved; with `switch` its clients return to the source."""
    check_returns_alone(topology, wave, status, request)
    source, flows = source_of(wave.cutover, topology), sorted(wave.topics)
    if request.switch:
        failbacks = failbacks_to_switch(topology, source, flows)
        applied = await switch_flows(topology, failbacks, request, interaction)
        return CutoverResult(await _progress(wave, request), applied, subscriptions=applied.subscriptions)
    running: dict[str, FlowState] = {name: "promoted" for name in flows if topology.flows[name].runs}
    if running:
        applied = await apply_edited(states_edited(running, request), request, interaction)
        if not applied.complete:
            return CutoverResult(await _progress(wave, request), applied)
        topology = load_and_lint(request).topology
    failbacks = [back for back in pending_failbacks(topology, source) if back.flow.name in flows]
    applied = await copy_back(topology, failbacks, request, interaction)
    return CutoverResult(await _progress(wave, request), applied, switch_follows=applied.complete)


def check_returns_alone(
    topology: Topology, wave: WaveTopics, status: "ReplicationStatus", request: CutoverRequest
) -> None:
    """Failure where a flow of a wave has topics of others: topics return with their whole flow."""
    source = source_of(wave.cutover, topology)
    others = {
        topic.topic
        for flow in status.flows
        for topic in (flow.topics if flow.name in wave.topics else ())
        if topic.topic not in wave.topics[flow.name] and not is_reserved(topic.topic)
    }
    if others:
        ended = not any(topology.flows[name].runs for name in wave.topics)
        first = "" if ended else "move the other waves of its flows too; then "
        raise Failure(
            error(
                f"{counted(sorted(others))} {'is' if len(others) == 1 else 'are'} copied by the flows of the"
                f" wave {wave.wave.name} too, and topics return with their whole flow",
                f"{first}repl failback {source} returns all; a wave with flows of its own returns alone",
                source=wave.wave.source,
                exit=ExitCode.REFUSED,
            )
        )
    if wave.left and not request.switch:
        again = f"repl cutover {wave.cutover.name} --wave {wave.wave.name}"
        raise Failure(
            error(
                f"a part of the wave {wave.wave.name} is not promoted",
                f"{again} moves the rest; if it was to return already: {again} --back --switch",
                exit=ExitCode.REFUSED,
            )
        )


def promoted_in_ledgers(wave: WaveTopics, status: "ReplicationStatus") -> bool:
    """Returns whether a ledger shows a topic of a wave as promoted."""
    return any(topic.state in ENDED for topic in healths_of(wave, status))
