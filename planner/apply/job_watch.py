"""The status of the jobs of a destination as its status topic reports it, and the commands to them.

Commands go to running jobs through the control topic. The status topic tells whether they carry them out.
"""

import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Self

from planner.apply.denials import GiveUp
from planner.kafka.client import ClusterClient
from planner.kafka.log import LogWriter, ValueReader
from runtime.contract.records import control
from runtime.contract.records.control import Command
from runtime.contract.records.job_status import JobStatus, JobStatusTable
from runtime.contract.spec.naming import CONTROL, STATUS

_POLL_S = 0.25
_CATCH_UP_S = 2.0
_REPORT_S = 2.0  # between two lines about what a job waits for


class JobWatch:
    """The status of all jobs of a destination, kept up to date."""

    def __init__(self, client: ClusterClient) -> None:
        self.table = JobStatusTable()
        self._reader = ValueReader(client, STATUS)

    async def __aenter__(self) -> Self:
        self.table.update(await self._reader.read_to_end())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, value, trace)

    def job(self, name: str) -> JobStatus | None:
        """Returns what the job last reported; None if it never did."""
        return self.table.jobs.get(name)

    async def wait_until(
        self,
        awaited: Callable[[], str],
        seconds: float,
        give_up: GiveUp,
        progress: Callable[[], tuple[int, ...]] = tuple,
        waits: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Waits until `awaited` returns "", and returns "" then.

        Returns what is still missing after `seconds` in which no part of `progress` reached a new maximum, or
        the reason that `give_up` returns. `waits` is called now and then with what is missing.
        """
        most, deadline = progress(), time.monotonic() + seconds
        reported_at, reported = time.monotonic(), ""
        while what := awaited():
            if what != reported and time.monotonic() - reported_at > _REPORT_S:
                reported_at, reported = time.monotonic(), what
                waits(what)
            if (why := await give_up()) is not None:
                return why
            higher = tuple(map(max, most, progress()))
            if higher != most:
                most, deadline = higher, time.monotonic() + seconds
            if time.monotonic() > deadline:
                without = " without progress" if any(part > 0 for part in most) else ""
                return f"{what}, after {seconds:.0f} s{without}"
            await self.read_news()
        return ""

    async def read_news(self) -> None:
        """Reads new status records, for at most a moment."""
        self.table.update(await self._reader.read_more(_POLL_S))

    async def has_heartbeat(self, name: str, seconds: float) -> bool:
        """Returns whether a new heartbeat arrives within some time. The job's clock does not matter.

        What was written before now is read first: a heartbeat in it does not show that the job lives.
        """
        caught_up = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < caught_up and (news := await self._reader.read_more(_POLL_S)):
            self.table.update(news)
        before = self.job(name)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self.read_news()
            now = self.job(name)
            if now is not None and (before is None or now.at_ms != before.at_ms) and now.state != "stopped":
                return True
        return False


def new_id() -> str:
    """Returns a new id, by which the job's answer names the command."""
    return uuid.uuid4().hex


async def send_command(log: LogWriter, job: str, command: Command) -> None:
    """Writes a command to the control topic and returns when all in-sync replicas have it."""
    await log.append(CONTROL, [(control.command_key(job), control.encode(command))])


def not_acknowledged(status: JobStatus | None, command: Command) -> str:
    """Returns what is missing until the job has carried out the command; "" if nothing is."""
    if status is not None and command.id in status.answers:
        return "it refused the command" if status.answers[command.id] else ""
    trouble = f": {status.trouble}" if status is not None and status.trouble else ""
    return f"it has not carried out the command{trouble}"


def refusal_of(watch: JobWatch, job: str, command: Command) -> GiveUp:
    """Returns a check that ends the wait when the job has refused the command."""

    async def give_up() -> str | None:
        status = watch.job(job)
        error = status.answers.get(command.id) if status is not None else None
        return f"it refused the command: {error}" if error else None

    return give_up
