"""This module carries out the commands of the control topic and keeps the answer to each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AcceptLoss, Command, Reconfigure, StopJobCommand
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.slots.channel import pause
from runtime.kafka.errors import WireError
from runtime.slot.log import log_event

_RETRY_S = 1.0
_ANSWERS = 20  # answers are kept for so many of the newest commands
_SUPERSEDED = "a newer spec arrived before it could be applied"


class RefusedCommand(Exception):
    """This job does not carry out the command; the text gives the reason and the hint."""


class CommandHandler:
    """A CommandHandler carries out the commands of one job; no command waits for another one.

    A new spec that cannot be applied yet is retried until it succeeds or a newer spec arrives; `trouble`
    gives the reason. `answers` maps the ids of the newest finished commands to an error text, which is empty
    on success. `answered` is called after each new answer.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        accept_loss: Callable[[AcceptLoss], None],
        reconfigure: Callable[[JobSpec], Awaitable[None]],
        answered: Callable[[], None],
        retry_s: float = _RETRY_S,
    ) -> None:
        self.trouble = ""
        self.answers: dict[str, str] = {}
        self._stop = stop
        self._accept_loss = accept_loss
        self._reconfigure = reconfigure
        self._answered = answered
        self._retry_s = retry_s
        self._pending: Reconfigure | None = None
        self._applying: Reconfigure | None = None  # a newer one may be pending meanwhile
        self._wake = asyncio.Event()

    def accept(self, command: Command) -> None:
        """Accepts a command that was read from the control topic."""
        match command:
            case StopJobCommand():
                self._stop()
                self._answer(command)
            case AcceptLoss():
                try:
                    self._accept_loss(command)
                except RefusedCommand as error:
                    self._answer(command, str(error))
                else:
                    self._answer(command)
            case Reconfigure():
                if self._pending is not None and self._pending is not self._applying:
                    self._answer(self._pending, _SUPERSEDED)
                self._pending = command
                self._wake.set()

    async def run(self) -> None:
        """Applies new specs until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            command = self._applying = self._pending
            if command is None:
                continue
            try:
                await self._reconfigure(command.spec)
            except WireError as error:
                self._applying = None
                self.trouble = str(error)
                if self._pending is not command:
                    self._answer(command, _SUPERSEDED)
                    continue
                log_event(
                    "command_retry", key=command.id, id=command.id, error=self.trouble, decision="retry"
                )
                await pause(self._retry_s, self._wake)
                self._wake.set()
                continue
            except (RefusedCommand, ClientSettingsError) as error:
                self._finish(command, str(error))
            else:
                self._finish(command)

    def _finish(self, command: Reconfigure, error: str = "") -> None:
        self._answer(command, error)
        self.trouble = error
        self._applying = None
        if self._pending is command:
            self._pending = None

    def _answer(self, command: Command, error: str = "") -> None:
        """Keeps and logs the answer to a command, and drops the oldest answers."""
        self.answers.pop(command.id, None)
        self.answers[command.id] = error
        while len(self.answers) > _ANSWERS:
            del self.answers[next(iter(self.answers))]
        log_event(
            "command",
            key=command.id,
            command=type(command).__name__,
            id=command.id,
            error=error,
            decision="refused" if error else "carried out",
        )
        self._answered()
