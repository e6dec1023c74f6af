"""This module runs the flows that copy in rounds of Spark tasks: those into files, and those from files."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowStats, PartitionState, PartitionStatus, SlotStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import Router
from runtime.driver.application import RoundWork, SparkSlotRunner, TasksFailed
from runtime.driver.flows.flow import DriverFlow, retry_pause
from runtime.driver.flows.start import FlowContext
from runtime.driver.slots.channel import pause
from runtime.files.manifest import EndpointUnavailable, ManifestProblem, ManifestTaken
from runtime.kafka.errors import WireError
from runtime.ledger.records import READ_FAILURES
from runtime.slot.log import log_event

ROUND_S: Final = 30.0  # the longest round: under a backlog, files become visible that often
_FIRST_RETRY_S, _LAST_RETRY_S = 0.5, 15.0


class PositionsLost(Exception):
    """The ledger lost the positions of the flow: reading from the beginning would double its records."""


_FAILURES = (WireError, EndpointUnavailable, ManifestProblem, ManifestTaken, TasksFailed, PositionsLost)


class RoundFlow(DriverFlow):
    """A RoundFlow copies in rounds, at least one every interval, until cancelled.

    Its status and its statistics stand in the place of a slot's.
    """

    def __init__(
        self, spec: FlowSpec, job: JobSpec, router: Router, shared: FlowContext, every_ms: int
    ) -> None:
        super().__init__(spec, job, router, shared)
        self._job = job
        self._every_ms = every_ms
        self._states: dict[PartitionKey, PartitionStatus] = {}
        self._stats = FlowStats(spec.name)
        self._worker = ("", 0)
        self.rounds = 0
        self.busy = False
        self.since_ms = int(time.time() * 1000)

    def inherit(self, before: DriverFlow) -> None:
        """Continues from the state of an older version of the same flow."""
        super().inherit(before)
        if isinstance(before, RoundFlow) and before.spec.folder == self.spec.folder:
            self._states, self._stats, self.rounds = before._states, before._stats, before.rounds

    @property
    def group(self) -> str:
        """The Spark job group of its rounds."""
        return f"{self._job.job} {self.name}"

    @property
    def why(self) -> str:
        """Why the flow does not copy now; empty where it does."""
        return self._why or self._superseded

    def slot_status(self, number: int) -> SlotStatus:
        """Returns the status of the flow's partitions, as the report of a slot."""
        host, process = self._worker
        return SlotStatus(
            slot=number,
            at_ms=int(time.time() * 1000),
            assignment=0,
            process=process,
            host=host or socket.gethostname(),
            flows=[self._stats],
            partitions=list(self._states.values()),
        )

    async def run(self) -> None:
        """Takes the flow over and copies, a round every interval, until cancelled."""
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        if not self.copies:
            return
        failures = 0
        while not self._superseded:
            began = time.monotonic()
            try:
                behind = await self._round()
            except (*_FAILURES, *READ_FAILURES) as error:
                failures += 1
                self._fail(error, failures)
                again_s = retry_pause(
                    failures, starting=self._attempts > 0, first_s=_FIRST_RETRY_S, most_s=_LAST_RETRY_S
                )
                await pause(again_s, self._follow_now)
                self._follow_now.clear()
                continue
            failures, self._why = 0, ""
            if not behind:
                left = self._every_ms / 1000 - (time.monotonic() - began)
                await pause(max(left, 0.0), self._follow_now)
                self._follow_now.clear()

    async def _round(self) -> bool:
        """Copies once, and returns whether there is more to copy at once. Raises what `run` handles."""
        raise NotImplementedError

    def _is_lost(self, error: Exception) -> bool:
        """Returns whether the failure means that the positions are lost, so that someone must decide."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Discards what was known of the committed state: it is read again after a failure."""

    def _fail(self, error: Exception, failures: int) -> None:
        """Records why a round failed. Nothing of it was committed, or its commit is found later."""
        lost = self._is_lost(error)
        state = PartitionState.LEDGER_MISSING if lost else PartitionState.RETRYING
        self._why = f"{state}: {error}" if lost else str(error)
        self._note_failure(error)
        self._forget()
        for key, status in self._states.items():
            if lost or not status.state.needs_someone:
                self._states[key] = entered(status, state, str(error))
        log_event(
            "flow_retry", key=self.name, flow=self.name, error=self._why, failures=failures, decision="retry"
        )

    async def _run_tasks(self, work: RoundWork, tickets: Sequence[bytes]) -> list[bytes]:
        """Runs a round, a task for each ticket, and returns the results of the tasks. Raises TasksFailed."""
        return await self._ended(self._application.submit_round(self.group, work, tickets))

    @property
    def _application(self) -> SparkSlotRunner:
        application = self._shared.application
        assert application is not None, "the driver of a job with files has its Spark application"
        return application

    async def _ended(self, running: asyncio.Future[list[bytes]]) -> list[bytes]:
        """Returns the results of a round that was submitted; a round of a stopped flow is cancelled."""
        self.busy, self.since_ms = True, int(time.time() * 1000)
        try:
            texts = await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._application.cancel(self.group)
            await asyncio.wait([running])
            raise
        finally:
            self.busy, self.since_ms = False, int(time.time() * 1000)
        self.rounds += 1
        return texts


def entered(status: PartitionStatus, state: PartitionState, why: str) -> PartitionStatus:
    """Returns the status with a state; `since_ms` changes with it."""
    now_ms = int(time.time() * 1000)
    return replace(
        status,
        state=state,
        why=why,
        since_ms=status.since_ms if status.state is state else now_ms,
        caught_up_since_ms=(status.caught_up_since_ms or now_ms) if state is PartitionState.CAUGHT_UP else 0,
    )


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Finishes work even if the flow is stopped meanwhile: its threads can't be stopped, and the flow's next
    version must not begin before they are done.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
