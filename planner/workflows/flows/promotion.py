"""`repl promote`: a planned switch-over of a flow, or of some of its topics."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planner.config.edit import with_promoted
from planner.config.files import text_to_edit
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, FlowState, Topology
from planner.plan.transitions import matches_nothing
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.flows.ending import drained, report_subscriptions
from planner.workflows.flows.states import apply_edited, apply_with_states, wrong_state
from planner.workflows.interaction import UNATTENDED, Interaction
from planner.workflows.topology import ChangeRequest, FlowRequest, checked, flow_of
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.views.groups_view import GroupTopics
    from runtime.contract.views.status_view import FlowStatusView, TopicStatusView

_MAY_BE_PROMOTED = (FlowState.ACTIVE, FlowState.PAUSED, FlowState.PROMOTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteRequest(FlowRequest):
    """A request to promote a flow, or its topics whose whole names match the regex `topics`.

    `copied_within_ms`: how long to wait until everything is copied.
    """

    topics: str | None = None
    copied_within_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class PromoteResult:
    """The apply, and what the groups of a whole flow subscribe to; empty if it is incomplete."""

    applied: ApplyResult
    subscriptions: "tuple[GroupTopics, ...]" = ()


def promote(request: PromoteRequest, interaction: Interaction = UNATTENDED) -> PromoteResult:
    """Copies everything, moves the groups, then stops the flow and makes its destination writable.

    Waits until the lag is 0, then writes `state: promoted` into the topology and applies it. Producers at
    the source must be stopped before. Failure where records are left at the timeout: the flow keeps copying.
    """
    topology = checked(request.path, request.var_files).topology
    flow = flow_of(topology, request.flow)
    seconds = request.copied_within_ms / 1000
    if request.topics is not None:
        return PromoteResult(_promote_topics(topology, flow, request.topics, seconds, request, interaction))
    if flow.state not in _MAY_BE_PROMOTED:
        raise wrong_state(flow, "promoted")
    if flow.state is FlowState.ACTIVE:
        asyncio.run(drained(topology, flow, seconds, interaction.progress))
    applied = apply_with_states({flow.name: FlowState.PROMOTED}, request, interaction)
    if not applied.complete:
        return PromoteResult(applied)
    groups = report_subscriptions(topology, [flow], request.timeout_ms, interaction.progress)
    return PromoteResult(applied, groups)


def _promote_topics(
    topology: Topology,
    flow: Flow,
    pattern: str,
    seconds: float,
    request: ChangeRequest,
    interaction: Interaction,
) -> ApplyResult:
    """Promotes some topics. A pattern that is in the file already is applied without a wait."""
    if flow.state is FlowState.PAUSED:
        raise Failure(
            error(
                f"flow.{flow.name} is paused, and topics are promoted while a flow copies",
                f"repl resume {flow.name} first; or promote all of it: repl promote {flow.name}",
                source=flow.source,
                exit=ExitCode.REFUSED,
            )
        )
    if flow.state is not FlowState.ACTIVE:
        raise wrong_state(flow, "promoted by topics")
    if pattern not in flow.promoted:
        asyncio.run(
            drained(topology, flow, seconds, interaction.progress, lambda seen: chosen_of(seen, pattern))
        )
    return apply_edited(
        _after(flow, pattern),
        [flow.name],
        request,
        interaction,
        lambda edited: _check_promoted(edited, flow, pattern),
    )


def chosen_of(seen: "FlowStatusView", pattern: str) -> "list[TopicStatusView]":
    """Returns the topics to promote. Failure where there are none, or where they are the whole flow."""
    match = NamePatterns([pattern]).match
    copied = [one for one in seen.topics if one.state != FlowState.PROMOTED]
    chosen = [one for one in copied if match(one.topic)]
    if chosen and len(chosen) == len(copied):
        raise Failure(
            error(
                f"--topics {pattern!r} leaves flow.{seen.name} nothing to copy",
                f"promote all of it: repl promote {seen.name}",
            )
        )
    if not chosen:
        promoted = [one.topic for one in seen.topics if match(one.topic)]
        raise Failure(
            error(f"{', '.join(promoted[:3])} of flow.{seen.name} was promoted before")
            if promoted
            else error(
                f"--topics {pattern!r} matches no topic of flow.{seen.name}",
                matches_nothing(pattern, [one.topic for one in copied]),
            )
        )
    return chosen


def _after(flow: Flow, pattern: str) -> dict[Path, str]:
    if flow.source is None:
        raise Failure(error(f"flow.{flow.name} is in no file"))
    file = Path(flow.source.file)
    text = text_to_edit(file)
    after = text if pattern in flow.promoted else with_promoted(text, flow.name, pattern)
    if after is None:
        raise Failure(
            error(
                f"{file}: the place where flow {flow.name} is written is not found",
                f"write {pattern!r} under its promoted, then run repl apply",
                source=flow.source,
            )
        )
    return {file: after}


def _check_promoted(topology: Topology, flow: Flow, pattern: str) -> None:
    if pattern not in topology.flows[flow.name].promoted:
        raise Failure(error(f"the key promoted of flow {flow.name} is set elsewhere", "edit it by hand"))
