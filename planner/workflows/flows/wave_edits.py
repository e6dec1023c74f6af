"""The edits of a topology that stop the producers of a wave, let them write again, and promote its topics.

Each edit is checked: a key may be set elsewhere too, by an alias or by another file.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from planner.config.edit import with_fenced, without_promoted
from planner.graph.cutovers import WaveTopics, source_of
from planner.graph.messages import counted
from planner.graph.routes import router_of
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.plan import Plan
from planner.model.topology import Fence, Topology
from planner.workflows.flows.edits import TopologyEdits
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.results.status import ReplicationStatus


def fence_edit(edits: TopologyEdits, waves: Iterable[WaveTopics], *, fenced: bool) -> None:
    """Writes whether the producers of waves are stopped at the source."""
    for wave in waves:
        edits.edit(
            wave.wave.source,
            partial(with_fenced, cutover=wave.cutover.name, wave=wave.wave.name, fenced=fenced),
            f"write fenced: {str(fenced).lower()} there, then run the same command again",
            f"the place where the wave {wave.wave.name} is written is not found",
            partial(check_fenced, wave, fenced=fenced),
        )


def check_fenced(wave: WaveTopics, edited: Topology, *, fenced: bool) -> None:
    """Failure where the edit did not set the key, or where a wave of another cutover shares its text."""
    declared = {(cutover.name, wave.name): wave for cutover in edited.cutovers for wave in cutover.waves}
    edited_wave = declared.get((wave.cutover.name, wave.wave.name))
    if edited_wave is None or edited_wave.fenced != fenced:
        what = f"the key fenced of the wave {wave.wave.name} is set elsewhere"
        hint = f"write fenced: {str(fenced).lower()} by hand, or run the command again"
        raise Failure(error(what, hint))
    shared = sorted(
        cutover
        for (cutover, _), other in declared.items()
        if edited_wave.source is not None and other is not edited_wave and other.source == edited_wave.source
    )
    if shared:
        what = (
            f"the wave {edited_wave.name} of {wave.cutover.name} shares its text with the cutover {shared[0]}"
        )
        raise Failure(error(what, "write the waves of each cutover out, without an alias"))


def promote_edit(edits: TopologyEdits, topology: Topology, wave: WaveTopics) -> None:
    """Writes the promotion of the remaining topics of a wave: topic patterns, or the states of its flows.

    Flows end with the last wave: until then topics of the others may be created.
    """
    ending = [name for name in wave.cutover.flows if not (wave.waiting or wave.others[name])]
    edits.set_states((topology.flows[name], "promoted") for name in ending if topology.flows[name].runs)
    for name, topics in sorted(wave.left.items()):
        for pattern in () if name in ending else _patterns(wave, topics):
            edits.promote_topics(topology.flows[name], pattern)
    edits.check_also(partial(_check_promoted, wave))


def _patterns(wave: WaveTopics, topics: Sequence[str]) -> list[str]:
    """Returns the patterns of a wave where no other wave may have what they match, else names of topics.

    A topic that an earlier wave matches too belongs to that one, also a topic that is created later.
    """
    earlier = takewhile(lambda other: other.name != wave.wave.name, wave.cutover.waves)
    if any(other.name in wave.waiting for other in earlier):
        return [re.escape(topic).replace("\\-", "-") for topic in topics]
    return [pattern for pattern in wave.wave.topics if any(map(NamePatterns([pattern]).match, topics))]


def _check_promoted(wave: WaveTopics, edited: Topology) -> None:
    """Failure where the edits do not stop the producers of a wave, or do not promote all its topics."""
    if wave.cutover.fence is not Fence.NONE:
        check_fenced(wave, edited, fenced=True)
    for name, topics in wave.topics.items():
        flow = edited.flows.get(name)
        if flow is not None and any(map(flow.copies, topics)):
            what = f"the promotion of flow {name} is written elsewhere"
            raise Failure(error(what, "edit it by hand"))


def promoted_after_return(
    topology: Topology, waves: Sequence[WaveTopics], status: "ReplicationStatus"
) -> dict[str, tuple[str, ...]]:
    """Returns the patterns that stay promoted when waves return, by flow; flows that keep all are left out.

    What people promoted beside the waves stays so. Failure where a pattern takes in both.
    """
    copied = {
        flow.name: {topic.topic for topic in flow.topics if not is_reserved(topic.topic)}
        for flow in status.flows
    }
    patterns = {pattern for wave in waves for pattern in wave.wave.topics}
    after: dict[str, tuple[str, ...]] = {}
    for name in sorted({name for wave in waves for name in wave.topics}):
        flow = topology.flows[name]
        returning = {topic for wave in waves for topic in wave.topics.get(name, ())}
        kept: list[str] = []
        for pattern in flow.promoted:
            matched = set(filter(NamePatterns([pattern]).match, copied.get(name, ())))
            others = sorted(matched - returning)
            if others and matched & returning:
                raise Failure(
                    error(
                        f"{pattern!r} under promoted of flow {name} takes in topics of the waves that return,"
                        f" and {counted(others)} of no such wave",
                        "write a pattern for each, then run the same command again",
                        source=flow.source,
                        exit=ExitCode.REFUSED,
                    )
                )
            if others or not (matched or pattern in patterns):
                kept.append(pattern)
        if len(kept) < len(flow.promoted):
            after[name] = tuple(kept)
    return after


def return_edit(edits: TopologyEdits, topology: Topology, promoted: Mapping[str, Sequence[str]]) -> None:
    """Writes what stays promoted of each flow when waves return."""
    for name, kept in promoted.items():
        edits.edit_flow(
            topology.flows[name],
            partial(without_promoted, flow=name, kept=kept),
            "take what the cutover wrote out of its promoted, and run the same command again",
            partial(_check_returned, name, kept),
        )


def _check_returned(flow: str, kept: Sequence[str], edited: Topology) -> None:
    """Failure where the edit did not set what stays promoted."""
    if sorted(edited.flows[flow].promoted) != sorted(kept):
        what = f"what is promoted of flow {flow} is set elsewhere"
        raise Failure(error(what, f"write promoted: [{', '.join(kept)}] by hand"))


def check_promotes_only(wave: WaveTopics, before: Topology, plan: Plan) -> None:
    """Failure where a plan would promote topics that no job has copied yet, or that are not of the wave.

    Such a topic was created at the source a moment ago. Promoted, it would never be copied.
    """
    edited = plan.topology
    source = plan.inputs.observed.reachable(source_of(wave.cutover, edited))
    router = router_of(edited)
    strays = {
        topic
        for flow in wave.cutover.flows
        for topic in (source.topics if source is not None else ())
        if router.routes[flow].answer(topic).taken
        and before.flows[flow].copies(topic)
        and not edited.flows[flow].copies(topic)
        and topic not in wave.topics.get(flow, ())
    }
    if strays:
        raise Failure(
            error(
                f"{counted(sorted(strays))} would be promoted with the wave {wave.wave.name}, and no job has"
                " copied it yet",
                "nothing was promoted. Wait until repl status shows it, then run the same command again",
                source=wave.wave.source,
            )
        )
