"""Encodes what a Spark task of a flow with files is to do, and what it has done.

There are three kinds of tasks: `export` writes topics to files, `compaction` merges files, and `source.load`
reads files into a topic. The driver and the tasks of a job have one release.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster, named, opened

Ticket = TypeVar("Ticket")
Done = TypeVar("Done")

encode = msgspec.msgpack.encode


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
        self.ticket = msgspec.msgpack.Decoder(ticket).decode
        self._result = msgspec.msgpack.Decoder(TaskResult[done])  # type: ignore[valid-type]

    def results(self, texts: Sequence[bytes]) -> list[TaskResult[Done]]:
        """Returns the results of the tasks of a round."""
        return [self._result.decode(text) for text in texts]
