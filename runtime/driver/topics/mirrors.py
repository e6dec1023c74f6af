"""Mirror topics of one flow at the destination: made, grown, and kept like their sources. R10 before each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from runtime.contract.records.registry import mirror_entry, mirror_key
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.mirror import MirrorRule, TopicSettings
from runtime.contract.spec.route import Router
from runtime.driver.clusters import Clusters
from runtime.driver.leadership import Pulse
from runtime.driver.slots.channel import post
from runtime.driver.topics.admin import Created
from runtime.driver.topics.discovery import Mirror
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.ledger.records import Record

_REREAD_S = 60.0  # of mirrors that nobody but us should change
_APPEAR_S = 20.0
_POLL_S = 0.05
_DEFAULT_LARGEST = 1_048_588
_MAX_MESSAGE, _MIN_IN_SYNC = "max.message.bytes", "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the destination's topic allows."""

    max_message_bytes: int
    min_in_sync: int


class Mirrors:
    def __init__(
        self, flow: FlowSpec, job: JobSpec, router: Router, clusters: Clusters, pulse: Pulse
    ) -> None:
        self._flow = flow
        self._router = router
        self._topology = job.topology
        self._clusters = clusters
        self._pulse = pulse
        self._declared = {topic: frozenset(keys) for topic, keys in job.declared.items()}
        self._rule = MirrorRule(flow.configs.sync, flow.configs.exclude, flow.provenance == "headers")
        self._shared_rule = MirrorRule("off", [], headers=False)
        self._is_one: dict[str, bool] = {}
        self._there: dict[str, TopicSettings] = {}
        self._read_at = -_REREAD_S
        self.failed: dict[str, str] = {}
        self.done: Counter[str] = Counter()  # mirrors made, grown, edited: `topics`, `partitions`, `configs`

    async def bring(self, create: Sequence[Mirror], grow: Sequence[Mirror], all_of: Sequence[Mirror]) -> None:
        """What could not be done is in `failed`, by the mirror's name."""
        self.failed = {}
        source = await self._clusters.admin(self._flow.source)
        here = await source.settings(mirror.topic for mirror in all_of)
        await self._create(create, here)
        await self._grow(grow)
        await self._read(all_of)
        await self._edit(all_of, here)

    def limits(self, there: str) -> Limits | None:
        """None while the mirror's settings are not known."""
        settings = self._there.get(there)
        if settings is None:
            return None
        largest, in_sync = settings.effective(_MAX_MESSAGE), settings.effective(_MIN_IN_SYNC)
        return Limits(int(largest or _DEFAULT_LARGEST), int(in_sync or 1))

    async def _create(self, create: Sequence[Mirror], here: Mapping[str, TopicSettings]) -> None:
        """With all settings from the first moment: default retention would delete old records at once."""
        for one in create:
            if one.topic not in here:
                self.failed[one.there] = f"the settings of {one.topic} can't be read at the source"
        wanted = [
            Created(one.there, one.partitions, self._rule.wanted(here[one.topic]))
            for one in create
            if one.topic in here
        ]
        if not wanted:
            return
        admin = await self._clusters.admin(self._flow.destination)
        await self._pulse.still()
        self.failed |= await admin.create(wanted)
        made = [one for one in wanted if one.name not in self.failed]
        self.done["topics"] += len(made)
        await self._appear({one.name: one.partitions for one in made})
        await self._register(made, {one.there: one.topic for one in create})
        self._read_at = -_REREAD_S

    async def _register(self, made: Sequence[Created], sources: Mapping[str, str]) -> None:
        """Into the destination's registry, where the planner has made one: what it finds there is its own."""
        cluster = await self._clusters.cluster(self._flow.destination)
        names = [naming.REGISTRY, *(one.name for one in made)]
        topics = await cluster.topics(names)
        if topics[naming.REGISTRY].error is not ErrorCode.NONE:
            return
        records = [
            Record(
                mirror_key(self._flow.destination, one.name),
                mirror_entry(
                    topology=self._topology,
                    flow=self._flow.name,
                    source=(self._flow.source, sources[one.name]),
                    topic_id=topics[one.name].id,
                    partitions=one.partitions,
                    config=one.config,
                    at_ms=int(time.time() * 1000),
                ),
            )
            for one in made
            if not naming.is_internal(one.name)
        ]
        await post(cluster, naming.REGISTRY, records)

    async def _grow(self, grow: Sequence[Mirror]) -> None:
        if not grow:
            return
        admin = await self._clusters.admin(self._flow.destination)
        await self._pulse.still()
        wanted = {one.there: one.partitions for one in grow}
        self.failed |= await admin.grow(wanted)
        grown = {name: count for name, count in wanted.items() if name not in self.failed}
        self.done["partitions"] += len(grown)
        await self._appear(grown)

    async def _appear(self, partitions: Mapping[str, int]) -> None:
        """Until metadata shows them with their leaders."""
        destination = await self._clusters.cluster(self._flow.destination)
        self._clusters.stale(self._flow.destination)
        deadline = asyncio.get_running_loop().time() + _APPEAR_S
        waiting = dict(partitions)
        while waiting:
            topics = await destination.topics(waiting, fresh=True)
            for name in list(waiting):
                led = [one for one in topics[name].partitions.values() if one.leader >= 0]
                if topics[name].error is ErrorCode.NONE and len(led) >= waiting[name]:
                    del waiting[name]
            if waiting and asyncio.get_running_loop().time() > deadline:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, ", ".join(sorted(waiting)[:5]))
            if waiting:
                await asyncio.sleep(_POLL_S)

    async def _read(self, all_of: Sequence[Mirror]) -> None:
        now = asyncio.get_running_loop().time()
        names = [one.there for one in all_of]
        if now - self._read_at < _REREAD_S:
            names = [name for name in names if name not in self._there]
        else:
            self._read_at = now
        if names:
            admin = await self._clusters.admin(self._flow.destination)
            self._there |= await admin.settings(names)

    def _rule_of(self, topic: str) -> MirrorRule:
        """Where copies come back, each follows the other: a limit with room for headers grew for ever."""
        if topic not in self._is_one:
            self._is_one[topic] = self._router.is_one(self._flow.name, topic)
        return self._shared_rule if self._is_one[topic] else self._rule

    async def _edit(self, all_of: Collection[Mirror], here: Mapping[str, TopicSettings]) -> None:
        """A failback edits nothing: the topics that it copies back to keep their settings."""
        if self._flow.reverse_of is not None:
            return
        edits = {}
        for one in all_of:
            if one.topic in here and one.there in self._there:
                declared = self._declared.get(one.there, frozenset())
                edit = self._rule_of(one.topic).edit(here[one.topic], self._there[one.there], declared)
                if edit:
                    edits[one.there] = edit
        if not edits:
            return
        admin = await self._clusters.admin(self._flow.destination)
        await self._pulse.still()
        refused = await admin.edit(edits)
        self.failed |= refused
        self.done["configs"] += len(edits.keys() - refused.keys())
        self._there |= await admin.settings(edits)
