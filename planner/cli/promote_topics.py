"""`repl promote FLOW --topics RE`: some topics of a flow end, and the others go on being copied."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.editing import FlowCommandOptions, apply_edited, wrong_state
from planner.cli.promote_wait import drained
from planner.config.edit.promoted import with_promoted
from planner.config.files import text_to_edit
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, FlowState, Topology
from planner.plan.guards.promotions import matches_nothing
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.views.status_view import FlowStatusView, TopicStatusView


def promote_topics(
    topology: Topology, flow: Flow, pattern: str, seconds: float, how: FlowCommandOptions
) -> int:
    """One that was promoted before is waited for no more: what may be left of that is done."""
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
        asyncio.run(drained(topology, flow, seconds, lambda seen: chosen_of(seen, pattern)))
    return apply_edited(
        _after(flow, pattern), [flow.name], how, lambda edited: _really(edited, flow, pattern)
    )


def chosen_of(seen: "FlowStatusView", pattern: str) -> "list[TopicStatusView]":
    """Raises Failure where there is nothing to promote, or where it is the whole flow."""
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
        raise Failure(error(f"flow.{flow.name} stands in no file"))
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


def _really(topology: Topology, flow: Flow, pattern: str) -> None:
    if pattern not in topology.flows[flow.name].promoted:
        raise Failure(error(f"what flow {flow.name} promotes comes from elsewhere", "edit it by hand"))
