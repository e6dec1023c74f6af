"""Commands do not wait for each other, and each is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AcceptLoss, Command, Reconfigure, StopJobCommand
from runtime.contract.spec.jobspec import ClusterSpec, JobSpec
from runtime.driver.commands import CommandHandler
from runtime.kafka.errors import Disconnected

SPEC = JobSpec(
    job="shop", topology="t", destination="dc2", clusters={"dc2": ClusterSpec(bootstrap="b:1")}, flows=[]
)
AWAY = Disconnected("dc2", "away", sent=False)


class Job:
    """Takes on a spec as `outcome` says, which is an error or nothing."""

    def __init__(self) -> None:
        self.outcome: Exception | None = None
        self.tried: list[JobSpec] = []
        self.stopped = 0
        self.accepted: list[AcceptLoss] = []
        self._running: asyncio.Task[None] | None = None
        self.answered = 0
        self.commands = CommandHandler(
            self._stop, self.accepted.append, self._reconfigure, self._count_answer, retry_s=0.01
        )

    def _count_answer(self) -> None:
        self.answered += 1

    def _stop(self) -> None:
        self.stopped += 1

    async def _reconfigure(self, spec: JobSpec) -> None:
        self.tried.append(spec)
        if self.outcome is not None:
            raise self.outcome

    def tell(self, *commands: Command) -> None:
        for command in commands:
            self.commands.accept(command)

    async def until(self, holds: Callable[[], bool]) -> None:
        self._running = self._running or asyncio.create_task(self.commands.run())
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.005)


def test_a_spec_that_cannot_be_taken_on_holds_up_no_other_command() -> None:
    async def work() -> None:
        job = Job()
        job.outcome = AWAY
        job.tell(Reconfigure("edit", SPEC))
        await job.until(lambda: len(job.tried) >= 2)
        assert job.commands.trouble == str(AWAY)
        loss = AcceptLoss("loss", "flow", [("orders", 0)])
        job.tell(loss, StopJobCommand("stop"))
        assert (job.accepted, job.stopped) == ([loss], 1)
        assert job.commands.answers == {"loss": "", "stop": ""}
        assert job.answered == 2
        job.outcome = None
        await job.until(lambda: job.commands.last_id == "edit")
        assert (job.commands.answers["edit"], job.commands.trouble) == ("", "")

    asyncio.run(work())


def test_a_spec_gives_way_to_a_newer_one() -> None:
    async def work() -> None:
        job = Job()
        job.outcome = AWAY
        job.tell(Reconfigure("older", SPEC))
        await job.until(lambda: bool(job.tried))
        job.outcome = None
        newer = replace(SPEC, metrics_port=None)
        job.tell(Reconfigure("newer", newer))
        await job.until(lambda: job.commands.last_id == "newer")
        assert job.tried[-1] == newer
        assert "newer spec" in job.commands.answers["older"]

    asyncio.run(work())


def test_a_refused_spec_is_answered_with_its_error_and_not_tried_again() -> None:
    async def work() -> None:
        job = Job()
        job.outcome = ClientSettingsError("job", "another job")
        job.tell(Reconfigure("edit", SPEC))
        await job.until(lambda: bool(job.commands.answers))
        assert job.commands.answers == {"edit": str(job.outcome)}
        assert job.commands.trouble == str(job.outcome)
        job.outcome = None
        job.tell(Reconfigure("next", replace(SPEC, metrics_port=None)))
        await job.until(lambda: job.commands.last_id == "next")
        assert len(job.tried) == 2

    asyncio.run(work())


def test_answers_are_of_the_newest_commands() -> None:
    job = Job()
    job.tell(*(AcceptLoss(str(number), "flow", []) for number in range(50)))
    assert list(job.commands.answers) == [str(number) for number in range(30, 50)]
