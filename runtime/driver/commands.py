"""The commands that a job is told through the control topic, and how each is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.records.control import AcceptLoss, Command, Reconfigure, StopJob
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.slots.channel import pause
from runtime.kafka.errors import WireError
from runtime.slot.log import log_event

_RETRY_S = 1.0
_ANSWERS = 20  # of the newest commands


class RefusedCommand(Exception):
    """A command that this job does not carry out; the text says why, and the way out."""


class Commands:
    """Carries out commands. None waits for another one.

    A new spec that cannot be taken on now is tried again until it is, or until a newer one comes; `trouble`
    says why. `answers` has the newest commands that are done with, by id: empty, or the error.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        accept_loss: Callable[[AcceptLoss], None],
        reconfigure: Callable[[JobSpec], Awaitable[None]],
        retry_s: float = _RETRY_S,
    ) -> None:
        self.heard = ""
        self.trouble = ""
        self.answers: dict[str, str] = {}
        self._stop = stop
        self._accept_loss = accept_loss
        self._reconfigure = reconfigure
        self._retry_s = retry_s
        self._newest: Reconfigure | None = None
        self._wake = asyncio.Event()

    def take(self, command: Command) -> None:
        """Takes a command from the control topic."""
        match command:
            case StopJob():
                self._stop()
                self._answer(command)
            case AcceptLoss():
                self._accept_loss(command)
                self._answer(command)
            case Reconfigure():
                if self._newest is not None:
                    self._answer(self._newest, "a newer spec came before it could be taken on")
                self._newest = command
                self._wake.set()

    async def run(self) -> None:
        """Takes on new specs, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            command = self._newest
            if command is None:
                continue
            try:
                await self._reconfigure(command.spec)
            except WireError as error:
                self.trouble = str(error)
                log_event(
                    "command_retry", key=command.id, id=command.id, error=self.trouble, decision="retry"
                )
                await pause(self._retry_s, self._wake)
                self._wake.set()
                continue
            except (RefusedCommand, ClientSettingsError) as error:
                self._done(command, str(error))
            else:
                self._done(command)

    def _done(self, command: Reconfigure, error: str = "") -> None:
        self._answer(command, error)
        self.trouble = error
        if self._newest is command:
            self._newest = None

    def _answer(self, command: Command, error: str = "") -> None:
        self.answers.pop(command.id, None)
        self.answers[command.id] = error
        while len(self.answers) > _ANSWERS:
            del self.answers[next(iter(self.answers))]
        self.heard = command.id
        log_event(
            "command",
            key=command.id,
            command=type(command).__name__,
            id=command.id,
            error=error,
            decision="refused" if error else "carried out",
        )
