"""Edits of a flow's state in the YAML: the edited text is planned, approved, written, then applied.

`repl pause` stops copying, and `repl resume` continues where the flow stopped. With `accept_loss` a resumed
flow continues behind records that are lost; nothing else is passed over. `repl promote` is a planned
switch-over of a flow, or of some of its topics.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.apply.losses import StoppedPartitions, accept_loss
from planner.config.edit import with_promoted, with_state
from planner.config.files import in_form_of, text_to_edit, write_edited
from planner.config.load import NOTHING_EDITED
from planner.graph.messages import few
from planner.graph.routes import router_of
from planner.kafka import ClusterClient
from planner.model.address import flow_address
from planner.model.change import Action
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, SourceLocation, error, warning
from planner.model.plan import Plan
from planner.model.topology import Flow, Topology
from planner.plan.make import with_diagnostics
from planner.plan.transitions import matches_nothing, may_follow
from planner.workflows.applying.apply import ApplyResult, execute
from planner.workflows.audit.access import endpoints_of
from planner.workflows.edge import Workflow
from planner.workflows.flows.ending import (
    SILENT_MS,
    drained,
    groups_moved,
    left_to_copy,
    report_subscriptions,
    status_of,
    subscriptions_after,
    warn_of_groups_that_stay,
    warn_of_unread_replays,
)
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveLoss,
    Interaction,
    Noticed,
    ProgressText,
    partitions_text,
)
from planner.workflows.plans import observe_and_plan
from planner.workflows.requests import ChangeRequest, FlowRequest, PromoteRequest, ResumeRequest
from planner.workflows.topology import checked, flow_of, job_flow_of
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.results.status import next_step
from runtime.contract.spec.flow import RUNNING, FlowState
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.audit.status.reader import StatusReader
    from runtime.contract.results.groups import GroupLoss, GroupTopics
    from runtime.contract.results.status import FlowHealth, PartitionHealth, TopicHealth


async def apply_with_states(
    states: Mapping[str, FlowState],
    request: ChangeRequest,
    interaction: Interaction,
    *,
    given_up: str | None = None,
    must_copy: bool = False,
    edits: Mapping[Path, str] = NOTHING_EDITED,
    check: Callable[[Topology], None] = lambda _: None,
    check_plan: Callable[[Plan], None] = lambda _: None,
) -> ApplyResult:
    """Writes the state of each flow into the topology, and applies the edited topology.

    `edits` are other edits of the same plan, and `check` raises Failure where these have another effect, and
    `check_plan` where that plan may not be applied.
    """
    topology = checked(request.path, request.var_files).topology
    after = dict(edits)
    for name, state in states.items():
        flow = job_flow_of(topology, name)
        edit_flow(
            after,
            flow,
            partial(in_state, flow, state),
            f"write state: {state} there, then run repl apply",
        )

    def check_states(edited: Topology) -> None:
        check(edited)
        for name, state in states.items():
            if edited.job_flows[name].state != state:
                raise Failure(error(f"the state of flow {name} is set elsewhere", "edit it by hand"))

    return await apply_edited(
        after,
        states,
        request,
        interaction,
        check_states,
        given_up=given_up,
        must_copy=must_copy,
        check_plan=check_plan,
    )


def in_state(flow: Flow, state: FlowState, text: str) -> str | None:
    """Returns the text of the flow's file with this state; None where the flow is not found."""
    return text if flow.state == state else with_state(text, flow.name, state)


def edit_flow(
    after: dict[Path, str], flow: Flow, edit: Callable[[str], str | None], hint: str, what: str = ""
) -> None:
    """Edits the text of the file that declares a flow; `after` holds the edited files.

    Failure says `what`, where `edit` finds no place, and what to write by hand.
    """
    edit_file(
        after,
        flow.source,
        edit,
        hint,
        what or f"the place where flow {flow.name} is written is not found",
    )


def edit_file(
    after: dict[Path, str],
    source: SourceLocation | None,
    edit: Callable[[str], str | None],
    hint: str,
    what: str,
) -> None:
    """Edits the text of the file in which something is declared; `after` holds the edited files.

    Failure says `what`, where `edit` finds no place, and what to write by hand.
    """
    if source is None:
        raise Failure(error(what, hint))
    file = Path(source.file)
    edited = edit(after[file] if file in after else text_to_edit(file))
    if edited is None:
        raise Failure(error(f"{file}: {what}", hint, source=source))
    after[file] = edited


async def apply_edited(
    after: Mapping[Path, str],
    flows: Iterable[str],
    request: ChangeRequest,
    interaction: Interaction,
    check: Callable[[Topology], None],
    *,
    given_up: str | None = None,
    must_copy: bool = False,
    reviewed: Plan | None = None,
    check_plan: Callable[[Plan], None] = lambda _: None,
) -> ApplyResult:
    """Plans the edited texts, asks, writes the files right before the first step, and applies.

    `flows` are the edited ones. `check` raises Failure where the edit has not the intended effect, and
    `check_plan` where its plan may not be applied.
    `given_up` is a cluster that is waited for only briefly. With `must_copy`, the apply is not complete while
    a partition of the flows waits for a decision. `reviewed` is a plan that was approved: a plan whose
    changes are all among its own does not ask again.
    """
    before = {file: file.read_bytes() for file in after}
    changed = {
        file: in_form_of(before[file], text) for file, text in after.items() if text != text_to_edit(file)
    }
    plan = await plan_edited(after, request, interaction, check, given_up=given_up)
    check_plan(plan)
    unknown = {change.address for change in plan.changes if change.action is Action.UNKNOWN}
    named = [flow_address(name) for name in flows]
    can_apply = not named or any(address not in unknown for address in named)  # else the edit changes nothing
    return await execute(
        plan,
        request,
        interaction,
        approved=reviewed is not None and is_part_of(plan, reviewed),
        wait_for=set(flows) if must_copy else (),
        write=partial(write_edited, before, changed) if changed and can_apply else None,
    )


async def plan_edited(
    after: Mapping[Path, str],
    request: ChangeRequest,
    interaction: Interaction,
    check: Callable[[Topology], None],
    *,
    given_up: str | None = None,
) -> Plan:
    """Returns the plan of the edited texts. `check` raises Failure where the edit has another effect."""
    loaded = checked(request.path, request.var_files, edited=after)
    check(loaded.topology)
    plan = await observe_and_plan(
        loaded.topology, request.timeout_ms, interaction.progress, given_up=given_up
    )
    return with_diagnostics(plan, loaded.warnings)


def is_part_of(plan: Plan, reviewed: Plan) -> bool:
    """Returns whether every change of a plan was a change of the one that people reviewed."""
    known = {change.address: (change.action, change.fields) for change in reviewed.changes}
    return all(
        change.action in (Action.NO_OP, Action.UNKNOWN)
        or known.get(change.address) == (change.action, change.fields)
        for change in plan.changes
    )


def wrong_state(flow: Flow, wanted: str) -> Failure:
    """Returns the refusal of a state that may not follow the flow's own."""
    return Failure(
        error(
            f"flow.{flow.name} is {flow.state} and can't be {wanted}",
            may_follow(flow.state),
            source=flow.source,
            exit=ExitCode.REFUSED,
        ),
    )


@Workflow
async def pause(request: FlowRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: paused` into the topology and applies it. The job continues with its other flows."""
    flow = job_flow_of(checked(request.path, request.var_files).topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "paused")
    return await apply_with_states({flow.name: "paused"}, request, interaction)


@Workflow
async def resume(request: ResumeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: active` into the topology and applies it.

    The result is incomplete while a partition of the flow waits for a decision, unless its loss is accepted.
    """
    flow = job_flow_of(checked(request.path, request.var_files).topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "resumed")
    applied = await apply_with_states(
        {flow.name: "active"}, request, interaction, must_copy=not request.accept_loss
    )
    if request.accept_loss and applied.complete:
        await resume_over_loss(checked(request.path, request.var_files).topology, flow, interaction)
    return applied


async def resume_over_loss(topology: Topology, flow: Flow, interaction: Interaction) -> None:
    """Asks on its own, because an active flow has no plan that could be approved."""
    from planner.workflows.audit.replication_status import status_request
    from runtime.audit.status.reader import StatusReader

    destination = topology.clusters[flow.destination_cluster]

    def approve(lost: Sequence[PartitionStatus]) -> None:
        interaction.require(ApproveLoss(flow.name, tuple(lost)))

    endpoint = endpoints_of([destination])[destination.name]
    async with ClusterClient(endpoint) as client:
        stopped = await accept_loss(client, flow.job, flow.name, approve)
    left: list[PartitionHealth] = []
    # For a flow with files, the next round may be far away.
    if stopped.over_loss and not stopped.problem and flow.name not in topology.file_flows:
        async with StatusReader(status_request(topology), SILENT_MS / 1000) as reader:
            left = await not_copying(reader, flow.name, stopped.over_loss)
    report_loss(stopped, flow, interaction, left)


async def not_copying(
    reader: "StatusReader", flow: str, accepted: Iterable[PartitionStatus]
) -> "list[PartitionHealth]":
    """Waits until partitions of a flow copy again, and returns those that do not in time.

    Failure where the status does not show each of them: their cluster does not answer.
    """
    loop, places = asyncio.get_running_loop(), {(lost.topic, lost.partition) for lost in accepted}
    deadline = loop.time() + _COPIES_S
    while True:
        status = await reader.status()
        health = next(health for health in status.flows if health.name == flow)
        shown = [part for part in health.partitions if (part.topic, part.partition) in places]
        left = [part for part in shown if part.state not in _COPIES]
        is_late, is_known = loop.time() > deadline, len(shown) == len(places)
        if is_known and (is_late or not left):
            return left
        if is_late:
            why = health.why or "the status does not show each of its partitions"
            what = f"flow.{flow}: the loss is accepted; whether it copies again is not known: {why}"
            raise Failure(error(what, "look at repl status"))
        await asyncio.sleep(_LOOK_S)


def report_loss(
    stopped: StoppedPartitions,
    flow: Flow,
    interaction: Interaction,
    left: "Sequence[PartitionHealth]" = (),
) -> None:
    """Reports what continues and what does not. Failure where nothing continues.

    `left` are partitions whose loss was accepted, but which do not copy yet.
    """
    by_state = groupby(sorted(stopped.others, key=_state), _state)
    others = [_no_loss(state, list(partitions), flow) for state, partitions in by_state]
    if stopped.problem:
        raise Failure(error(f"flow.{flow.name}: {stopped.problem}", "look at repl status"))
    if not stopped.over_loss:
        nothing = error(
            f"flow.{flow.name}: none of its partitions is stopped over lost records", "look at repl status"
        )
        raise Failure(others or nothing)
    places = {(part.topic, part.partition) for part in left}
    if copying := [lost for lost in stopped.over_loss if (lost.topic, lost.partition) not in places]:
        lost = partitions_text(copying)
        interaction.progress(ProgressText(f"flow.{flow.name}: continues behind the lost records: {lost}"))
    for part in left:
        why = f": {part.why}" if part.why else ""
        what = f"{part.topic}-{part.partition}: its loss is accepted, and it is {part.state}{why}"
        address = str(flow_address(flow.name))
        interaction.progress(Noticed(warning(what, part.next or "look at repl status", address=address)))
    for other in others:
        interaction.progress(Noticed(warning(other.summary, other.hint, address=other.address)))


def _state(partition: PartitionStatus) -> PartitionState:
    return partition.state


def _no_loss(state: PartitionState, stopped: list[PartitionStatus], flow: Flow) -> Diagnostic:
    first = stopped[0]
    names = [f"{partition.topic}-{partition.partition}" for partition in stopped]
    why = f" ({names[0]}: {first.why})" if first.why else ""
    return error(
        f"{few(names)}: {state} is no loss that can be accepted{why}",
        next_step(state, flow.name, first.topic, first.partition, "from" if flow.from_files else ""),
        address=str(flow_address(flow.name)),
        exit=ExitCode.REFUSED,
    )


_COPIES = (PartitionState.COPYING, PartitionState.CAUGHT_UP)
_COPIES_S = 15.0  # by then a slot has inspected a partition again
_LOOK_S = 0.5
_MAY_BE_PROMOTED = ("active", "paused", "promoted")


class PromoteResult(Struct, frozen=True):
    """The apply, and what the groups of a whole flow subscribe to; empty if it is incomplete."""

    applied: ApplyResult
    subscriptions: "tuple[GroupTopics, ...]" = ()


@Workflow
async def promote(request: PromoteRequest, interaction: Interaction = UNATTENDED) -> PromoteResult:
    """Copies everything, moves the groups, then stops the flow and makes its destination writable.

    Waits until the lag is 0, then writes `state: promoted` into the topology and applies it. Producers at
    the source must be stopped before. Failure where records are left at the timeout: the flow keeps copying.
    """
    topology = checked(request.path, request.var_files).topology
    flow = flow_of(topology, request.flow)
    seconds = request.copied_within_ms / 1000
    if request.topics is not None:
        return PromoteResult(
            await _promote_topics(topology, flow, request.topics, seconds, request, interaction)
        )
    if flow.state not in _MAY_BE_PROMOTED:
        raise wrong_state(flow, "promoted")
    if flow.state == "active":
        await drained(topology, flow, seconds, interaction.progress)
    await warn_of_unread_replays(topology, [flow], request.timeout_ms, interaction.progress)
    if flow.state != "promoted":
        await warn_of_groups_that_stay(topology, flow, request.timeout_ms, interaction.progress)
    applied = await apply_with_states({flow.name: "promoted"}, request, interaction)
    if not applied.complete:
        return PromoteResult(applied)
    groups = await report_subscriptions(topology, [flow], request.timeout_ms, interaction.progress)
    return PromoteResult(applied, groups)


async def _promote_topics(
    topology: Topology,
    flow: Flow,
    pattern: str,
    seconds: float,
    request: ChangeRequest,
    interaction: Interaction,
) -> ApplyResult:
    """Promotes some topics. A pattern that is in the file already is applied without a wait."""
    if flow.state == "paused":
        raise Failure(
            error(
                f"flow.{flow.name} is paused, and topics are promoted while a flow copies",
                f"repl resume {flow.name} first; or promote all of it: repl promote {flow.name}",
                source=flow.source,
                exit=ExitCode.REFUSED,
            )
        )
    if flow.state != "active":
        raise wrong_state(flow, "promoted by topics")
    if pattern not in flow.promoted:
        await drained(topology, flow, seconds, interaction.progress, lambda seen: chosen_of(seen, pattern))
        reads = partial(reads_topics, router_of(topology), flow.name, pattern)
        await warn_of_groups_that_stay(topology, flow, request.timeout_ms, interaction.progress, reads)
    after: dict[Path, str] = {}
    edit_flow(
        after,
        flow,
        lambda text: text if pattern in flow.promoted else with_promoted(text, flow.name, pattern),
        f"write {pattern!r} under its promoted, then run repl apply",
    )

    def check(edited: Topology) -> None:
        if pattern not in edited.flows[flow.name].promoted:
            raise Failure(error(f"the key promoted of flow {flow.name} is set elsewhere", "edit it by hand"))

    return await apply_edited(after, [flow.name], request, interaction, check)


def reads_topics(router: Router, flow: str, pattern: str, loss: "GroupLoss") -> bool:
    """Returns whether a group reads topics whose names at the source match."""
    match = NamePatterns([pattern]).match
    names = (router.routes[flow].source_topic(topic) for topic in loss.topics)
    return any(name is not None and match(name) for name in names)


class PromoteRehearsal(Struct, frozen=True):
    """What a promotion of a flow means: what is left to copy, and what becomes of each group.

    `left` is "" where everything is copied.
    """

    left: str
    groups: "tuple[GroupLoss, ...]"
    subscriptions: "tuple[GroupTopics, ...]"


@Workflow
async def rehearse_promote(request: PromoteRequest) -> PromoteRehearsal:
    """Returns what a promotion means. It changes nothing, and waits for nothing."""
    topology = checked(request.path, request.var_files).topology
    flow = flow_of(topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "promoted")
    status = await status_of(topology, request.timeout_ms)
    health = next(health for health in status.flows if health.name == flow.name)
    answers = health.source_answers and health.destination_answers
    pattern = request.topics
    topics = health.topics if pattern is None or not answers else chosen_of(health, pattern)
    groups = await groups_moved(topology, flow, request.timeout_ms / 1000)
    if pattern is not None:
        groups = [loss for loss in groups if reads_topics(router_of(topology), flow.name, pattern, loss)]
    return PromoteRehearsal(
        left_to_copy(topics) if answers else health.why,
        tuple(groups),
        subscriptions_after(topology, groups),
    )


def chosen_of(seen: "FlowHealth", pattern: str) -> "list[TopicHealth]":
    """Returns the topics to promote. Failure where there are none, or where they are the whole flow."""
    match = NamePatterns([pattern]).match
    copied = [topic for topic in seen.topics if topic.state != "promoted"]
    chosen = [topic for topic in copied if match(topic.topic)]
    if chosen and len(chosen) == len(copied):
        raise Failure(
            error(
                f"--topics {pattern!r} leaves flow.{seen.name} nothing to copy",
                f"promote all of it: repl promote {seen.name}",
            )
        )
    if not chosen:
        promoted = [topic.topic for topic in seen.topics if match(topic.topic)]
        raise Failure(
            error(f"{', '.join(promoted[:3])} of flow.{seen.name} was promoted before")
            if promoted
            else error(
                f"--topics {pattern!r} matches no topic of flow.{seen.name}",
                matches_nothing(pattern, [topic.topic for topic in copied]),
            )
        )
    return chosen
