"""Runs the slots of a driver as processes of their own, in the place of Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from runtime.driver.slots.ticket import SlotStartRequest, encode
from runtime.driver.task import run_task
from runtime.slot.errors import SlotEnd


class SlotProcesses:
    """Stands for the Spark application of a driver. Each slot has a core, but for a machine that is cut off.

    `lost` are slots whose machine Spark does not reach, and still believes in: their process is not killed,
    and their next attempt gets no core.
    """

    id = "processes"
    master = "local[*]"

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.attempts: dict[int, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting: dict[str, tuple[SlotStartRequest, asyncio.Future[SlotEnd]]] = {}

    async def await_executors(self) -> None:
        """There are none."""

    async def cores(self) -> int:
        return 1

    async def waits_for(self, group: str) -> str | None:
        return "Spark has not started its task" if group in self._waiting else None

    async def cancel(self, group: str) -> None:
        self._waiting.pop(group, None)
        process = self._processes.get(group)
        if process is not None and _slot_of(group) not in self.lost:
            process.kill()

    def submit(self, group: str, ticket: SlotStartRequest) -> asyncio.Future[SlotEnd]:
        slot = ticket.spec.slot
        self.attempts[slot] = ticket.attempt
        ended: asyncio.Future[SlotEnd] = asyncio.get_running_loop().create_future()
        if slot in self.lost:
            self._waiting[group] = ticket, ended
        else:
            self._start(group, ticket, ended)
        return ended

    def process(self, slot: int, attempt: int = 0) -> subprocess.Popen[bytes]:
        """The process of the slot's attempt, or of its newest one."""
        return self._processes[f"slot {slot} attempt {attempt or self.attempts[slot]}"]

    def give_up(self, slot: int) -> None:
        """Spark has noticed that the machine is lost, and there is another one."""
        self.lost.discard(slot)
        for group in [group for group in self._waiting if _slot_of(group) == slot]:
            self._start(group, *self._waiting.pop(group))

    def end(self) -> None:
        """Kills all processes."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _start(self, group: str, ticket: SlotStartRequest, ended: asyncio.Future[SlotEnd]) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if "SLOT_LOGS" not in os.environ else None,
        )
        self._processes[group] = process
        thread = ThreadPoolExecutor(1, group)
        done = asyncio.wrap_future(thread.submit(process.communicate, encode(ticket)))
        thread.shutdown(wait=False)

        def finished(done: asyncio.Future[tuple[bytes, bytes]]) -> None:
            if not ended.done() and not done.cancelled():
                answer, _ = done.result()
                ended.set_result(
                    msgspec.json.decode(answer, type=SlotEnd) if answer else SlotEnd("failed", "killed")
                )

        done.add_done_callback(finished)


def _slot_of(group: str) -> int:
    return int(group.split()[1])


def main() -> int:
    (answer,) = run_task(sys.stdin.buffer.read(), ())
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
