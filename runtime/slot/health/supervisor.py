"""Partitions that do not move: why, until when, and what is looked at before they go on (R4, R7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.slot.health.findings import (
    DestinationFacts,
    Finding,
    SourceFacts,
    go_on,
    judge_destination,
    judge_source,
)
from runtime.slot.health.inspection import Missing, Seen, inspect
from runtime.slot.log import log_event
from runtime.slot.partition import PartitionCopy, now_ms


class Patient(Protocol):
    """The flow, as its care sees it."""

    def halt(self, copy: PartitionCopy) -> None:
        """Nothing is fetched for the partition any more; what is queued may still go out."""

    def resume(self, copy: PartitionCopy) -> None:
        """The partition, which is in no open transaction, goes on from its committed position."""

    def replace(self, copy: PartitionCopy) -> None:
        """The partition's replacement is to be committed; it is resumed afterwards."""

    def accepts_loss(self, copy: PartitionCopy) -> bool:
        """Whether the topology or an operator said to go on over what is lost."""


class _Due:
    """Partitions to be looked at together."""

    def __init__(self) -> None:
        self._copies: dict[PartitionCopy, None] = {}
        self._wake = asyncio.Event()

    def add(self, copy: PartitionCopy) -> None:
        self._copies[copy] = None
        self._wake.set()

    def remove(self, copy: PartitionCopy) -> None:
        self._copies.pop(copy, None)

    async def take(self) -> list[PartitionCopy]:
        await self._wake.wait()
        self._wake.clear()
        copies, self._copies = list(self._copies), {}
        return copies


class Care:
    """Every way back into the copy loop leads through a look. `run` looks at those that nothing is known
    against, `run_again` at those that were in trouble: a look at one without a leader takes long (R7).
    """

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        settings: CopySettings,
        generation: int,
        patient: Patient,
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._generation = generation
        self._patient = patient
        self._new, self._again = _Due(), _Due()
        self._looking: set[PartitionCopy] = set()
        self._timers: dict[PartitionCopy, asyncio.TimerHandle] = {}

    def retry(self, copy: PartitionCopy, why: str, state: State = State.RETRYING) -> None:
        """Backs off and looks again."""
        self._halted(copy, state, why)
        pause_s = copy.backoff_s(self._settings.retry_ms, self._settings.retry_max_ms)
        log_event(
            "partition_retry",
            key=copy.label,
            **copy.logged(),
            error=why,
            failures=copy.failures,
            decision="retry",
            pause_s=round(pause_s, 3),
        )
        self._after(copy, pause_s)

    def stop(self, copy: PartitionCopy, state: State, why: str) -> None:
        """Until someone acts; looked at again in case the cause went away."""
        if state is State.RECORD_TOO_LARGE:
            why = f"{why}; raise max.message.bytes of {copy.at.topic} at the destination"
        self._halted(copy, state, why)
        self._after(copy, self._settings.stop_retry_ms / 1000)

    def look(self, copy: PartitionCopy, why: str) -> None:
        """Soon, but no more often than the backoff allows."""
        self.retry(copy, why)

    def look_now(self, copy: PartitionCopy) -> None:
        """Before it goes on; it is not read meanwhile."""
        self.forget(copy)
        self._patient.halt(copy)
        self.admit([copy])

    def admit(self, copies: Iterable[PartitionCopy]) -> None:
        """New partitions: looked at before they are copied."""
        for copy in copies:
            self._new.add(copy)

    def forget(self, copy: PartitionCopy) -> None:
        self._new.remove(copy)
        self._again.remove(copy)
        timer = self._timers.pop(copy, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for copy in list(self._timers):
            self.forget(copy)

    async def run(self) -> None:
        while True:
            await self._look_at(await self._new.take())

    async def run_again(self) -> None:
        while True:
            await self._look_at(await self._again.take())

    def _halted(self, copy: PartitionCopy, state: State, why: str) -> None:
        self.forget(copy)
        copy.enter(state, why)
        self._patient.halt(copy)

    def _after(self, copy: PartitionCopy, seconds: float) -> None:
        self._timers[copy] = asyncio.get_running_loop().call_later(seconds, self._now_due, copy)

    def _now_due(self, copy: PartitionCopy) -> None:
        self._timers.pop(copy, None)
        self._again.add(copy)

    async def _look_at(self, due: list[PartitionCopy]) -> None:
        copies = [copy for copy in due if copy not in self._looking]
        before = {copy: copy.progress for copy in copies}
        self._looking.update(copies)
        try:
            seen = await inspect(self._source, self._destination, copies) if copies else {}
        except WireError as error:
            for copy in copies:
                self.retry(copy, str(error))
            return
        finally:
            self._looking.difference_update(copies)
        for copy, facts in seen.items():
            if copy.releasing or copy in self._timers:
                continue
            if copy.busy or copy.progress is not before[copy]:
                # What was seen is older than what the ledger says now, or will say.
                self._after(copy, self._settings.retry_ms / 1000)
            else:
                self._decide(copy, facts)

    def _decide(self, copy: PartitionCopy, seen: Seen) -> None:
        if isinstance(seen.source, Missing) or isinstance(seen.destination, Missing):
            self._missing(copy, seen)
            return
        source, destination = seen.source, seen.destination
        finding = judge_source(copy.progress, source) or judge_destination(copy.progress, destination)
        if finding is None:
            copy.looked_epoch = destination.leader_epoch
            self._healthy(copy)
        elif self._patient.accepts_loss(copy):
            self._go_on(copy, finding, source, destination)
        else:
            if copy.state is not finding.state:
                copy.rewind()
            self.stop(copy, finding.state, finding.why)

    def _healthy(self, copy: PartitionCopy) -> None:
        leader = self._destination.leader(*copy.at)
        if leader is None:
            self.retry(copy, f"{copy.at.topic}-{copy.at.partition} has no leader at the destination")
        elif len(leader.in_sync) < copy.assigned.min_in_sync:
            count = f"{len(leader.in_sync)} of {copy.assigned.min_in_sync}"
            self.retry(
                copy, f"{count} in-sync replicas of {copy.at.topic}-{copy.at.partition} at the destination"
            )
        elif self._source.leader(copy.key.topic, copy.key.partition) is None:
            self.retry(copy, f"{copy.key.topic}-{copy.key.partition} has no leader at the source")
        else:
            copy.enter(State.STARTING)
            self._patient.resume(copy)

    def _go_on(
        self, copy: PartitionCopy, finding: Finding, source: SourceFacts, destination: DestinationFacts
    ) -> None:
        copy.rewind()
        copy.enter(State.RETRYING, f"going on over: {finding.why}")
        log_event(
            "loss_accepted",
            key=copy.label,
            level=logging.WARNING,
            **copy.logged(),
            state=finding.state,
            error=finding.why,
            decision="go on",
        )
        copy.replacement = go_on(
            copy.progress, source, destination, generation=self._generation, now_ms=now_ms()
        )
        self._patient.replace(copy)

    def _missing(self, copy: PartitionCopy, seen: Seen) -> None:
        missing = seen.source if isinstance(seen.source, Missing) else seen.destination
        assert isinstance(missing, Missing)
        if not missing.gone:
            self.retry(copy, f"the {missing.side}'s partition can't be asked: {missing.code.name}")
        elif missing.side == "source":
            self.stop(copy, State.SOURCE_DELETED, "the source's topic or partition is gone")
        else:
            self.stop(copy, State.RECREATED, "the destination's topic or partition was deleted")
