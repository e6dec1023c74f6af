"""`repl pause`, `repl resume` and `repl promote`: the state of a flow is edited in the YAML, and applied.

A paused flow continues where it stopped. With `accept_loss` it continues behind records that are lost;
nothing else is passed over. A promotion is a planned switch-over of a flow, or of some of its topics.
"""

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from planner.apply.losses import accept_loss, lost_of
from planner.graph.messages import few
from planner.graph.routes import router_of
from planner.kafka import ClusterClient
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.plan import ApplyResult
from planner.model.topology import Flow, Topology
from planner.plan.transitions import matches_nothing
from planner.workflows.audit.access import cluster_endpoint
from planner.workflows.edge import Workflow
from planner.workflows.flows.edits import TopologyEdits, apply_edited, states_edited, wrong_state
from planner.workflows.flows.ending import (
    SILENT_MS,
    LeftToCopy,
    Rehearsal,
    drained,
    groups_moved,
    read_subscriptions,
    status_of,
    warn_of_groups_that_stay,
    warn_of_unread_replays,
)
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveLoss,
    Interaction,
    partitions_text,
)
from planner.workflows.requests import ChangeRequest, FlowRequest, PromoteRequest, ResumeRequest
from planner.workflows.topology import flow_of, job_flow_of, load_and_lint
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.results.status import next_step
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.audit.status.reader import StatusReader
    from runtime.contract.results.groups import GroupLoss
    from runtime.contract.results.status import FlowHealth, PartitionHealth, TopicHealth


@Workflow
async def pause(request: FlowRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: paused` into the topology and applies it. The job continues with its other flows."""
    flow = job_flow_of(load_and_lint(request).topology, request.flow)
    if not flow.runs:
        raise wrong_state(flow, "paused")
    return await apply_edited(states_edited({flow.name: "paused"}, request), request, interaction)


@Workflow
async def resume(request: ResumeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: active` into the topology and applies it.

    The result is incomplete while a partition of the flow waits for a decision, unless its loss is accepted.
    """
    flow = job_flow_of(load_and_lint(request).topology, request.flow)
    if not flow.runs:
        raise wrong_state(flow, "resumed")
    applied = await apply_edited(
        states_edited({flow.name: "active"}, request),
        request,
        interaction,
        wait_for=() if request.accept_loss else {flow.name},
    )
    if request.accept_loss and applied.complete:
        await resume_over_loss(load_and_lint(request).topology, flow, interaction)
    return applied


async def resume_over_loss(topology: Topology, flow: Flow, interaction: Interaction) -> None:
    """Asks on its own, because an active flow has no plan that could be approved."""
    from planner.workflows.audit.replication_status import status_request
    from runtime.audit.status.reader import StatusReader

    destination = topology.clusters[flow.destination_cluster]

    def approve(lost: Sequence[PartitionStatus]) -> None:
        interaction.require(ApproveLoss(flow.name, tuple(lost)))

    endpoint = cluster_endpoint(destination)
    async with ClusterClient(endpoint) as client:
        stopped = await accept_loss(client, flow.job, flow.name, approve)
    left: list[PartitionHealth] = []
    # For a flow with files, the next round may be far away.
    if (accepted := lost_of(stopped)) and flow.name not in topology.file_flows:
        async with StatusReader(status_request(topology), SILENT_MS / 1000) as reader:
            left = await not_copying(reader, flow.name, accepted)
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
    stopped: Sequence[PartitionStatus],
    flow: Flow,
    interaction: Interaction,
    left: "Sequence[PartitionHealth]",
) -> None:
    """Reports which of the stopped partitions continue and which do not. Failure where none continues.

    `left` are partitions whose loss was accepted, but which do not copy yet.
    """
    accepted = lost_of(stopped)
    by_state = groupby(sorted((part for part in stopped if part not in accepted), key=_state), _state)
    others = [_no_loss(state, list(partitions), flow) for state, partitions in by_state]
    if not accepted:
        nothing = error(
            f"flow.{flow.name}: none of its partitions is stopped over lost records", "look at repl status"
        )
        raise Failure(others or nothing)
    places = {(part.topic, part.partition) for part in left}
    if copying := [lost for lost in accepted if (lost.topic, lost.partition) not in places]:
        lost = partitions_text(copying)
        interaction.progress(f"flow.{flow.name}: continues behind the lost records: {lost}")
    for part in left:
        why = f": {part.why}" if part.why else ""
        what = f"{part.topic}-{part.partition}: its loss is accepted, and it is {part.state}{why}"
        address = str(flow_address(flow.name))
        interaction.progress(warning(what, part.next or "look at repl status", address=address))
    for other in others:
        interaction.progress(warning(other.summary, other.hint, address=other.address))


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


@Workflow
async def promote(request: PromoteRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Copies everything, moves the groups, then stops the flow and makes its destination writable.

    Waits until the lag is 0, then writes `state: promoted` into the topology and applies it. Producers at
    the source must be stopped before. Failure where records are left at the timeout: the flow keeps copying.
    """
    topology = load_and_lint(request).topology
    flow = flow_of(topology, request.flow)
    seconds = request.copied_within_ms / 1000
    if request.topics is not None:
        return await _promote_topics(topology, flow, request.topics, seconds, request, interaction)
    if flow.state not in _MAY_BE_PROMOTED:
        raise wrong_state(flow, "promoted")
    if flow.state == "active":
        await drained(topology, flow, seconds, interaction.progress)
    await warn_of_unread_replays(topology, [flow], request.timeout_s, interaction.progress)
    if flow.state != "promoted":
        await warn_of_groups_that_stay(topology, flow, request.timeout_s, interaction.progress)
    applied = await apply_edited(states_edited({flow.name: "promoted"}, request), request, interaction)
    if not applied.complete:
        return applied
    groups = await read_subscriptions(topology, [flow], request.timeout_s, interaction.progress)
    return dataclasses.replace(applied, subscriptions=groups)


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
        await warn_of_groups_that_stay(topology, flow, request.timeout_s, interaction.progress, reads)
    edits = TopologyEdits()

    def check(edited: Topology) -> None:
        if pattern not in edited.flows[flow.name].promoted:
            raise Failure(error(f"the key promoted of flow {flow.name} is set elsewhere", "edit it by hand"))

    edits.promote_topics(flow, pattern, check)
    return await apply_edited(edits, request, interaction)


def reads_topics(router: Router, flow: str, pattern: str, loss: "GroupLoss") -> bool:
    """Returns whether a group reads topics whose names at the source match."""
    match = NamePatterns([pattern]).match
    names = (router.routes[flow].source_topic(topic) for topic in loss.topics)
    return any(name is not None and match(name) for name in names)


@Workflow
async def rehearse_promote(request: PromoteRequest) -> Rehearsal:
    """Returns what a promotion means. It changes nothing, and waits for nothing."""
    topology = load_and_lint(request).topology
    flow = flow_of(topology, request.flow)
    if not flow.runs:
        raise wrong_state(flow, "promoted")
    status = await status_of(topology, request.timeout_s)
    health = next(health for health in status.flows if health.name == flow.name)
    answers = health.source_answers and health.destination_answers
    pattern = request.topics
    topics = health.topics if pattern is None or not answers else chosen_of(health, pattern)
    groups = await groups_moved(topology, flow, request.timeout_s)
    if pattern is not None:
        groups = [loss for loss in groups if reads_topics(router_of(topology), flow.name, pattern, loss)]
    left = LeftToCopy.of(flow.name, topics) if answers else LeftToCopy(flow.name, None, {}, health.why)
    return Rehearsal.of(topology, groups, left=(left,))


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
