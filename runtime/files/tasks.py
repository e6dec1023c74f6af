"""Runs the Spark tasks of a flow with files: what one is to do, and what it has done.

There are three kinds of tasks: `export` writes topics to files, `compaction` merges files, and `source.load`
reads files into a topic. The driver and the tasks of a job have one release.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import uvloop

from runtime.contract.spec.cluster import ClusterSpec
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.kafka.cluster import KafkaCluster, named, opened
from runtime.kafka.errors import WireError
from runtime.ledger.records import READ_FAILURES

Ticket = TypeVar("Ticket")
Done = TypeVar("Done")

encode = msgspec.msgpack.encode
_FAILURES: Final = (WireError, EndpointUnavailable, ManifestProblem, *READ_FAILURES)


class RoundTicket(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the work of a task in one round, with the cluster of its topics.

    `round_s` bounds its time: what is left is copied by the next round. `rate` is in bytes a second.
    """

    flow: str
    generation: int
    cluster_name: str
    cluster: ClusterSpec
    client_id: str
    round_s: float
    rate: int | None = None

    async def opened(self) -> KafkaCluster:
        """Connects to the cluster. Raises WireError."""
        return await opened(self.cluster_name, named(self.cluster, self.client_id), os.environ)


class TaskResult(msgspec.Struct, Generic[Done], frozen=True):
    """The result of one task: what it has done, and why it ended early.

    With `error`, nothing of it counts but what the task has committed by itself.
    """

    done: list[Done] = []
    error: str = ""
    host: str = ""
    process: int = 0


class TaskKind(Generic[Ticket, Done]):
    """A kind of task, by the types of its tickets and of its results' parts."""

    def __init__(self, ticket: type[Ticket], done: type[Done]) -> None:
        self._ticket = msgspec.msgpack.Decoder(ticket).decode
        self._result = msgspec.msgpack.Decoder(TaskResult[done])  # type: ignore[valid-type]

    def run(self, text: bytes, work: Callable[[Ticket, list[Done]], Awaitable[None]]) -> bytes:
        """Carries out a ticket in an event loop of its own, and returns the encoded result.

        `work` adds what it has done to the list.
        """
        host, done = socket.gethostname(), list[Done]()

        async def carried_out() -> str:
            try:
                await work(self._ticket(text), done)
            except _FAILURES as failure:
                return f"on {host}: {failure}"
            return ""

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            error = runner.run(carried_out())
        return encode(TaskResult(done, error, host, os.getpid()))

    def results(self, texts: Sequence[bytes]) -> list[TaskResult[Done]]:
        """Returns the results of the tasks of a round."""
        return [self._result.decode(text) for text in texts]
