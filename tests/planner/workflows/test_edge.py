"""A workflow is called, or awaited by another one. Ctrl-C ends it anywhere, and releases its leases."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import click
import pytest

from planner.cli.view import ask, terminable
from planner.kafka import ClusterEndpoint
from planner.kafka.log import Appended
from planner.model.diagnostic import Failure
from planner.state import lease
from planner.state.lease import LeaseEntry, LeaseHolder, LeaseVerb, decode_lease
from planner.workflows.applying.session import leased
from planner.workflows.audit import comparison
from planner.workflows.edge import Workflow
from planner.workflows.interaction import ApproveReplay, silent

OTHER = LeaseHolder("other", "ada", "ops1", 7, "shop", "abc")
CHOSEN = {name: ClusterEndpoint(name, "127.0.0.1:9", {}) for name in ("dc1", "dc2")}


@Workflow
async def double(number: int) -> int:
    """Doubles a number."""
    await asyncio.sleep(0)
    return 2 * number


@Workflow
async def quadruple(number: int) -> int:
    return await double.coroutine(await double.coroutine(number))


@Workflow
async def refused() -> None:
    raise ValueError("no")


def test_a_call_runs_everything_that_it_awaits_in_one_loop() -> None:
    assert quadruple(3) == 12
    assert double.__doc__ == "Doubles a number."


async def test_it_can_be_called_while_a_loop_runs() -> None:
    """Jupyter runs one."""
    assert quadruple(3) == 12
    with pytest.raises(ValueError, match="no"):
        refused()
    assert asyncio.get_event_loop() is asyncio.get_running_loop()


def test_ctrl_c_while_another_loop_runs_cancels_it() -> None:
    ended = threading.Event()

    @Workflow
    async def long() -> None:
        try:
            await asyncio.sleep(0.1)  # the caller waits by then
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(10)
        finally:
            ended.set()

    async def cell() -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a notebook's kernel has it
        try:
            long()
        finally:
            signal.signal(signal.SIGINT, before)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert ended.is_set()
    assert time.monotonic() - began < 5


class FakeClient:
    def __init__(self, endpoint: ClusterEndpoint) -> None:
        self.name = endpoint.cluster

    def close(self) -> None:
        pass


Log = dict[str, list[LeaseEntry]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The lease's log of each cluster, in memory. At dc2 another apply holds the lease."""
    entries: Log = {"dc1": [], "dc2": [LeaseEntry(LeaseVerb.CLAIM, OTHER, time.time_ns() // 1_000_000)]}

    class FakeLog:
        def __init__(self, client: FakeClient) -> None:
            self._entries = entries[client.name]

        async def append(
            self, _topic: str, records: list[tuple[bytes, bytes]], *, seconds: float
        ) -> list[Appended]:
            await asyncio.sleep(0.005)
            now = time.time_ns() // 1_000_000
            self._entries += [decode_lease(value, now) for _, value in records]
            return [Appended(len(self._entries), now)]

        def close(self) -> None:
            pass

    async def read(client: FakeClient) -> list[LeaseEntry]:
        return [*entries[client.name]]

    monkeypatch.setattr(lease, "ClusterClient", FakeClient)
    monkeypatch.setattr(lease, "LogWriter", FakeLog)
    monkeypatch.setattr(lease, "read_entries", read)
    return entries


async def prompt(_held: AsyncExitStack) -> None:
    ask(ApproveReplay("dc2"))


async def second_prompt(_held: AsyncExitStack) -> None:
    """Ctrl-C comes in plain computation, right before the question."""
    signal.raise_signal(signal.SIGINT)
    ask(ApproveReplay("dc2"))


async def wait(held: AsyncExitStack) -> None:
    """Ctrl-C comes while the lease of the second cluster is waited for."""
    asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
    await held.enter_async_context(held_at("dc2"))


async def compute(_held: AsyncExitStack) -> None:
    """Ctrl-C comes after everything that is awaited."""
    signal.raise_signal(signal.SIGINT)


async def terminate(_held: AsyncExitStack) -> None:
    with terminable():
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGTERM)
        await asyncio.sleep(10)


async def cancel_all(_held: AsyncExitStack) -> None:
    """Everything is cancelled at once, the renewals of the lease as well."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(10)


def held_at(cluster: str) -> Any:
    return leased(
        CHOSEN[cluster], name="a", topology="shop", plan="abc", lock_timeout_ms=60_000, progress=silent
    )


@pytest.mark.parametrize("work", [prompt, second_prompt, wait, compute, terminate, cancel_all])
def test_ctrl_c_ends_it_at_once_and_releases_its_lease(work, log, monkeypatch) -> None:
    def terminal(*_: object, **__: object) -> str:
        signal.raise_signal(signal.SIGINT)
        time.sleep(10)
        return "yes"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", terminal)

    @Workflow
    async def interrupted() -> None:
        async with AsyncExitStack() as held:
            await held.enter_async_context(held_at("dc1"))
            await work(held)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [entry.verb for entry in log["dc1"]] == [LeaseVerb.CLAIM, LeaseVerb.RELEASE]
    assert time.monotonic() - began < 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class LostLease:
    async def lost(self, _interrupted: Callable[[], str | None]) -> str | None:
        return "another apply took it"


def test_a_replay_ends_when_its_lease_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_LOOK_S", 0.01)
    ended: list[bool] = []

    async def replay() -> bytes:
        try:
            await asyncio.sleep(10)
            return b""
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(Failure, match="the replay was ended: another apply took it"):
        asyncio.run(comparison._while_held(LostLease(), replay()))  # type: ignore[arg-type]
    assert ended == [True]


def test_a_replay_under_its_lease_ends_by_itself(log: Log) -> None:
    async def replay() -> bytes:
        await asyncio.sleep(0.05)
        return b"copied"

    async def main() -> bytes:
        async with held_at("dc1") as lease:
            return await comparison._while_held(lease, replay())

    assert asyncio.run(main()) == b"copied"
    assert log["dc1"][-1].verb is LeaseVerb.RELEASE
