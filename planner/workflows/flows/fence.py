"""The fence of a wave as it is at the source: what a plan still has to make of it, and which brokers show it.

The key `fenced` says what is wanted. Only the source says whether producers are stopped: an apply may have
ended between the two.
"""

import asyncio
from collections.abc import Collection, Iterable

from msgspec import Struct

from planner.graph.acl_protection import job_principal
from planner.graph.cutovers import (
    WaveTopics,
    fence_addresses,
    fences_of,
    is_fenced,
    made_by_others,
    source_of,
    stops_jobs,
)
from planner.graph.messages import few
from planner.kafka import ClusterClient
from planner.kafka.failures import Closed, NoAnswer
from planner.model.address import Address
from planner.model.change import Action
from planner.model.diagnostic import ExitCode, Failure, error, warning
from planner.model.observed import RegistryEntry, Unreachable
from planner.model.plan import Plan
from planner.model.topology import Fence, Topology
from planner.plan.steps.registry import Own
from planner.workflows.audit.waves import fences_shown, source_client
from planner.workflows.interaction import ProgressHandler
from runtime.contract.spec.acls import EVERYONE

_EVERY_S = 0.2
_REPORT_AFTER_S = 2.0
_BROKER_S = 5.0


class LiveFence(Struct, frozen=True):
    """The rules or quotas of a fence, and those of them that a plan makes or changes.

    It is `begun` where an apply has made one that is at the source.
    """

    whole: frozenset[Address] = frozenset()
    missing: frozenset[Address] = frozenset()
    begun: bool = False

    def is_complete(self, wave: WaveTopics) -> bool:
        """Returns whether nothing is left to make, and the YAML says so.

        Rules that were there before may be the whole fence; the key `fenced` is written nevertheless. Where
        people stop the producers, there is nothing to make or to write.
        """
        return not self.missing and (wave.wave.fenced or wave.cutover.fence is Fence.NONE)

    @property
    def missing_text(self) -> str:
        return few(sorted(map(str, self.missing)))


def fence_in(plan: Plan, wave: WaveTopics) -> LiveFence:
    """Returns the fence of a wave by a plan of a topology in which the wave is fenced.

    Rules for topics that were created since the wave was looked at are missing too. Failure where the source
    could not be read: nothing is known of the fence then.
    """
    topology = plan.topology
    addresses = frozenset(fence_addresses(wave, topology))
    name = source_of(wave.cutover, topology)
    source = plan.inputs.observed.clusters[name]
    if isinstance(source, Unreachable):
        what = (
            f"{name} could not be read, so the fence of the wave {wave.wave.name} is not known: {source.why}"
        )
        hint = "nothing was changed; run the same command again once it can be read"
        raise Failure(error(what, hint, source=wave.wave.source))
    origin = wave.fenced_by.text
    addresses |= {
        step.entry.address for step in plan.steps if isinstance(step, Own) and step.entry.origin == origin
    }
    shown = fences_of(wave.cutover.fence, source.acls or (), source.quotas)
    planned = {change.address: change.action for change in plan.changes if change.address in addresses}
    missing = frozenset(
        address
        for address, action in planned.items()
        if action is not Action.NO_OP or address.name not in shown
    )
    return LiveFence(frozenset(planned), missing, is_fenced(wave, topology, source.owned, shown))


def is_live(wave: WaveTopics, plan: Plan) -> bool:
    """Returns whether an apply has made a part of the fence of a wave, by what a plan has read."""
    topology = plan.topology
    source = plan.inputs.observed.reachable(source_of(wave.cutover, topology))
    if source is None:
        return False
    shown = fences_of(wave.cutover.fence, source.acls or (), source.quotas)
    return is_fenced(wave, topology, source.owned, shown)


def warn_of_rules_that_stay(waves: Iterable[WaveTopics], progress: ProgressHandler, plan: Plan) -> None:
    """Warns of rules that existed before waves were fenced: a plan that removes their fences leaves them."""
    for wave in waves:
        if kept := _rules_that_stay(wave, plan):
            progress(
                warning(
                    f"there before the wave {wave.wave.name} was fenced, so not removed, and still"
                    f" stopping producers: {few([str(entry.address) for entry in kept])}",
                    "remove it with the tool that made it, if they may write again",
                )
            )


def _rules_that_stay(wave: WaveTopics, plan: Plan) -> list[RegistryEntry]:
    source = plan.inputs.observed.reachable(source_of(wave.cutover, plan.topology))
    return made_by_others(wave, source) if source is not None else []


def check_jobs_may_write(waves: Iterable[WaveTopics], plan: Plan) -> None:
    """Failure where a rule that was there before a wave was fenced keeps the job from copying back."""
    topology = plan.topology
    for wave in waves:
        if not stops_jobs(wave, topology):
            continue
        job = job_principal(topology.clusters[source_of(wave.cutover, topology)])
        stays = [
            str(entry.address)
            for entry in _rules_that_stay(wave, plan)
            if job is None or entry.spec.get("principal") in (EVERYONE, job)
        ]
        if stays:
            raise Failure(
                error(
                    f"the job can't copy back what is new in the wave {wave.wave.name}: there before it was"
                    f" fenced, so not removed, and denying WRITE: {few(stays)}",
                    "remove it with the tool that made it, then run the same command again",
                    source=wave.wave.source,
                    exit=ExitCode.REFUSED,
                )
            )


def check_still_fenced(wave: WaveTopics, plan: Plan) -> None:
    """Failure where a plan that promotes a wave would make a part of its fence as well."""
    fence = fence_in(plan, wave)
    if fence.missing:
        raise Failure(
            error(
                f"the fence of the wave {wave.wave.name} is not at the source any more, or not for all its"
                f" topics: {fence.missing_text}",
                "nothing was promoted. Run the same command again: it makes the fence first",
                source=wave.wave.source,
            )
        )


async def wait_until_in_effect(
    topology: Topology,
    wave: WaveTopics,
    fence: LiveFence,
    timeout_s: float,
    within_s: float,
    progress: ProgressHandler,
) -> None:
    """Waits until every live broker of the source shows the fence. Failure: one does not in time.

    Brokers learn of a rule one after the other, and let producers write until then. What changed is reported.
    """
    names = {address.name for address in fence.whole}
    if not names:
        return
    source = source_of(wave.cutover, topology)
    loop = asyncio.get_running_loop()
    began = loop.time()
    reported: list[str] = []
    async with source_client(topology, source, timeout_s) as client:
        while behind := await _brokers_behind(client, wave.cutover.fence, names):
            what = f"brokers of {source} do not show the fence of the wave {wave.wave.name}: {few(behind)}"
            if loop.time() > began + within_s:
                raise Failure(error(what, "look at their logs, then run the same command again"))
            if behind != reported and loop.time() > began + _REPORT_AFTER_S:
                progress(what)
                reported = behind
            await asyncio.sleep(_EVERY_S)


async def _brokers_behind(client: ClusterClient, fence: Fence, names: Collection[str]) -> list[str]:
    """Returns the live brokers that do not show the whole fence. One that is down reads it when it starts.

    A broker that accepts a connection and does not answer in time may still take records by its old rules.
    """
    reached = await client.dial_live(_BROKER_S)
    behind: list[str] = []
    try:
        for broker, connection in sorted(reached.connections.items()):
            try:
                shown = await fences_shown(client, fence, connection)
            except NoAnswer:
                behind.append(f"broker {broker}, which does not answer")
                continue
            except Closed:
                continue
            if not shown.issuperset(names):
                behind.append(f"broker {broker}")
    finally:
        reached.close()
    return behind
