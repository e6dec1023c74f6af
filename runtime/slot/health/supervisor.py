"""The supervisor stops, retries and resumes partitions, and inspects them before they continue (R4, R7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from runtime.contract.records.job_status import Finding
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.timing import now_ms
from runtime.slot import log
from runtime.slot.errors import ErrorDecision, ErrorPhase, by_code, decide
from runtime.slot.health.inspection import (
    DestinationFacts,
    MissingMarker,
    MissingPartition,
    SourceFacts,
    accept_loss,
    inspect,
    judge_destination,
    judge_source,
    missing_markers,
)
from runtime.slot.partition import CopyPhase, PartitionCopy


def largest_of(topic: str) -> str:
    """Returns the setting that bounds the records of a topic at the destination."""
    return f"max.message.bytes of {topic} at the destination"


class Halted(Struct, frozen=True):
    """A partition must not be fetched; batches that are queued may still be sent."""

    copy: PartitionCopy


class Resumed(Struct, frozen=True):
    """An inspected partition, in no open transaction, is to be copied from its committed position."""

    copy: PartitionCopy


class Replaced(Struct, frozen=True):
    """The replacement progress of a partition is to be committed; it is resumed afterwards."""

    copy: PartitionCopy


class MarkerMissing(Struct, frozen=True):
    """The marker of a decided transaction is to be written; the partition is inspected again after it."""

    copy: PartitionCopy
    marker: MissingMarker


SupervisorEvent = Halted | Resumed | Replaced | MarkerMissing


class _Due:
    """A set of partitions that are inspected together; `take` waits until there is one."""

    def __init__(self) -> None:
        self._copies: dict[PartitionCopy, None] = {}
        self._wake = asyncio.Event()

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition."""
        self._copies[copy] = None
        self._wake.set()

    def remove(self, copy: PartitionCopy) -> None:
        """Removes a partition, if it is there."""
        self._copies.pop(copy, None)

    async def take(self) -> list[PartitionCopy]:
        """Waits for partitions, then returns and removes all of them."""
        await self._wake.wait()
        self._wake.clear()
        copies, self._copies = list(self._copies), {}
        return copies


class PartitionSupervisor:
    """The supervisor owns the retry timers of a flow's partitions, and the sets that await an inspection.

    No partition enters or re-enters the copy loop without an inspection. `run` inspects new partitions and
    those with a new leader. `run_retries` inspects those that failed: the inspection of a partition without a
    leader takes long and must not delay the others (R7). With `accepts_loss`, lost records of every partition
    are skipped; an operator may accept the loss of one. `producer_ids` returns those of the flow's lanes.
    """

    def __init__(
        self,
        source: KafkaCluster,
        destination: KafkaCluster,
        settings: CopySettings,
        generation: int,
        accepts_loss: bool,
        emit: Callable[[SupervisorEvent], None],
        producer_ids: Callable[[], Collection[int]],
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._generation = generation
        self._accepts_loss = accepts_loss
        self._emit = emit
        self._producer_ids = producer_ids
        self._unmarked: dict[PartitionCopy, MissingMarker] = {}  # seen once: a marker may only be late
        self._due, self._due_retries = _Due(), _Due()
        self._inspecting: set[PartitionCopy] = set()
        self._timers: dict[PartitionCopy, asyncio.TimerHandle] = {}

    def retry(self, copy: PartitionCopy, why: str) -> None:
        """Stops a partition, and inspects it again after its backoff."""
        if not self._halt(copy, State.RETRYING, why):
            return
        pause_s = copy.backoff_s(self._settings.retry_ms, self._settings.retry_max_ms)
        log.info(
            "partition_retry",
            key=copy.label,
            **copy.log_fields(),
            error=why,
            failures=copy.failures,
            decision="retry",
            pause_s=round(pause_s, 3),
        )
        self._schedule(copy, pause_s)

    def stop(self, copy: PartitionCopy, state: State, why: str, *, limit: str = "") -> None:
        """Stops a partition with a state until an operator acts.

        It is inspected again at long intervals, in case the cause is gone. `limit` is the setting by which a
        record is too large, where it is not that of the mirror.
        """
        if state is State.RECORD_TOO_LARGE:
            why = f"{why}; raise {limit or largest_of(copy.at.topic)}"
        if self._halt(copy, state, why):
            self._schedule(copy, self._settings.stop_retry_ms / 1000)

    def fail(self, copy: PartitionCopy, decision: ErrorDecision, why: str) -> None:
        """Stops a partition that can't be read with the decision's state; one without a state is retried."""
        if decision.state is not None:
            self.stop(copy, decision.state, why)
        else:
            self.retry(copy, why)

    def inspect_now(self, copy: PartitionCopy) -> None:
        """Inspects a partition at once, before it continues; nothing is fetched for it meanwhile."""
        self.forget(copy)
        self._emit(Halted(copy))
        self.admit([copy])

    def admit(self, copies: Iterable[PartitionCopy]) -> None:
        """Adds partitions; each is inspected before it is copied."""
        for copy in copies:
            if not copy.releasing:
                copy.await_inspection()
                self._due.add(copy)

    def forget(self, copy: PartitionCopy) -> None:
        """Cancels the inspections and the timer of a partition."""
        self._due.remove(copy)
        self._due_retries.remove(copy)
        self._unmarked.pop(copy, None)
        timer = self._timers.pop(copy, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancels all timers."""
        for copy in list(self._timers):
            self.forget(copy)

    async def run(self) -> None:
        """Inspects new partitions until it is cancelled."""
        while True:
            await self._inspect_all(await self._due.take())

    async def run_retries(self) -> None:
        """Inspects partitions that failed until it is cancelled."""
        while True:
            await self._inspect_all(await self._due_retries.take())

    def _halt(self, copy: PartitionCopy, state: State, why: str) -> bool:
        """Halts a partition; returns False for one that leaves the slot."""
        if copy.releasing:
            return False
        self.forget(copy)
        copy.halt(state, why)
        self._emit(Halted(copy))
        return True

    def _schedule(self, copy: PartitionCopy, seconds: float) -> None:
        self._timers[copy] = asyncio.get_running_loop().call_later(seconds, self._retry_due, copy)

    def _retry_due(self, copy: PartitionCopy) -> None:
        self._timers.pop(copy, None)
        copy.await_inspection()
        self._due_retries.add(copy)

    async def _inspect_all(self, due: list[PartitionCopy]) -> None:
        """Inspects partitions and decides on each, unless it changed during the inspection."""
        copies = [copy for copy in due if copy not in self._inspecting]
        before = {copy: copy.progress for copy in copies}
        self._inspecting.update(copies)
        try:
            seen = await inspect(self._source, self._destination, copies) if copies else {}
        except WireError as error:
            for copy in copies:
                if copy.phase is CopyPhase.INSPECTING:
                    self.fail(copy, decide(ErrorPhase.FETCH, error), str(error))
            return
        finally:
            self._inspecting.difference_update(copies)
        for copy, facts in seen.items():
            if copy.phase is not CopyPhase.INSPECTING:
                continue
            if copy.in_transaction or copy.progress is not before[copy]:
                # The inspected facts are older than the progress that the ledger holds now or soon.
                copy.postpone()
                self._schedule(copy, self._settings.retry_ms / 1000)
            else:
                self._decide(copy, *facts)

    def _decide(
        self,
        copy: PartitionCopy,
        source: SourceFacts | MissingPartition,
        destination: DestinationFacts | MissingPartition,
    ) -> None:
        """Resumes a partition, stops it with a state, or skips what was lost where that is accepted."""
        if isinstance(source, MissingPartition):
            self._handle_missing(copy, source)
            return
        if isinstance(destination, MissingPartition):
            self._handle_missing(copy, destination)
            return
        finding = judge_source(copy.progress, source) or judge_destination(copy.progress, destination)
        marker = self._missing_marker(copy, destination)
        if finding is None and marker is not None:
            # Before it is written, the end of any other transaction of this producer id would end this one.
            seen_before = self._unmarked.get(copy) == marker
            copy.rewind()
            self.retry(copy, str(marker))
            self._unmarked[copy] = marker
            if seen_before:
                self._emit(MarkerMissing(copy, marker))
        elif finding is None:
            self._unmarked.pop(copy, None)
            copy.inspected(destination.leader_epoch)
            copy.take_topic_ids(source.topic_id, destination.topic_id)
            self._resume_if_ready(copy)
        elif self._accepts_loss or copy.assigned.accept_loss:
            self._accept_loss(copy, finding, source, destination)
        else:
            if copy.state is not finding.state:
                copy.rewind()
            self.stop(copy, finding.state, finding.why)

    def _missing_marker(self, copy: PartitionCopy, destination: DestinationFacts) -> MissingMarker | None:
        """Returns a marker that one of the flow's lanes can write; logs those that none can."""
        producer_ids = self._producer_ids()
        repairable = None
        for marker in missing_markers(copy.progress, destination, producer_ids):
            if marker.producer_id in producer_ids and marker.commit is not None:
                repairable = marker
            else:
                log.warning(
                    "marker_unrepairable",
                    key=copy.label,
                    **copy.log_fields(),
                    error=str(marker),
                    decision="continue; read_committed consumers wait there, see docs/compatibility.md",
                )
        return repairable

    def _resume_if_ready(self, copy: PartitionCopy) -> None:
        """Resumes a partition if both sides have a leader and enough replicas are in sync; else retries.

        It resumes from the position that was inspected: what was fetched behind it may have been truncated at
        the source since, and written anew (R4).
        """
        leader = self._destination.leader(*copy.at)
        if not copy.is_writable(leader):
            self.retry(copy, copy.why_not_writable(leader))
        elif self._source.leader(copy.key.topic, copy.key.partition) is None:
            self.retry(copy, f"{copy.key.at} has no leader at the source")
        else:
            copy.rewind()
            copy.resume()
            self._emit(Resumed(copy))

    def _accept_loss(
        self, copy: PartitionCopy, finding: Finding, source: SourceFacts, destination: DestinationFacts
    ) -> None:
        """Commits progress that skips the lost records, because the loss is accepted."""
        log.warning(
            "loss_accepted",
            key=copy.label,
            **copy.log_fields(),
            state=finding.state,
            error=finding.why,
            decision="go on",
        )
        copy.replace_progress(
            accept_loss(
                copy.progress,
                source,
                destination,
                destination_topic=copy.at.topic,
                generation=self._generation,
                now_ms=now_ms(),
            ),
            f"continues, because the loss is accepted: {finding.why}",
        )
        self._emit(Replaced(copy))

    def _handle_missing(self, copy: PartitionCopy, missing: MissingPartition) -> None:
        """Retries a partition that could not be inspected, or stops it where its topic is deleted."""
        if not missing.gone:
            source = missing.side == "source"
            leader = self._source.leader(*copy.key.at) if source else self._destination.leader(*copy.at)
            where = f" at broker {leader.leader}" if leader is not None else ""
            why = f"the {missing.side}'s partition can't be asked{where}: {missing.code.name}"
            self.fail(copy, by_code(ErrorPhase.FETCH, missing.code), why)
        elif missing.side == "source":
            self.stop(copy, State.SOURCE_DELETED, "the source's topic or partition is gone")
        else:
            self.stop(copy, State.RECREATED, "the destination's topic or partition was deleted")
