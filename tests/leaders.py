"""Leadership that moves in tests while no broker dies: replicas in another order, and an election."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from planner.kafka import ClusterClient, ClusterEndpoint, run_at
from planner.kafka.failures import RequestRefused
from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import AlterReassignmentsRequest, Refusal
from runtime.kafka.protocol.layout import indexes
from runtime.kafka.protocol.metadata import MetadataRequest
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Message, Request


class ElectLeadersRequest(Request[ErrorCode], frozen=True):
    """The preferred replica of each partition is to lead. One that can't lead is left."""

    MESSAGE: ClassVar[Message] = Message(
        Api.ELECT_LEADERS,
        2,
        """
        _preferred   int8    = 0
        topics       []
          name       string
          indexes    []int32
        timeout_ms   int32
        """,
        """
        throttle_ms  int32
        error        error
        _topics      rest
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (2, 2)

    partitions: Sequence[TopicPartition]
    timeout_ms: int

    def values(self, version: int) -> Any:
        return indexes(self.partitions), self.timeout_ms

    def result(self, _throttle_ms: int, error: ErrorCode) -> ErrorCode:
        return error


def prefer(bootstrap: str, replicas: Mapping[TopicPartition, Sequence[int]], timeout_s: float) -> None:
    """Moves the replicas and has the first of each elected. Raises ClusterFailure or WireError."""
    move_replicas(bootstrap, replicas, timeout_s)
    elect(bootstrap, list(replicas), timeout_s)


def move_replicas(bootstrap: str, replicas: Mapping[TopicPartition, Sequence[int]], timeout_s: float) -> None:
    """Returns when the controller took it. Raises ClusterFailure."""

    async def move(client: ClusterClient) -> None:
        request = AlterReassignmentsRequest(replicas, int(timeout_s * 1000))
        refused = await client.ask_controller(request)
        for refusal in [refused] if isinstance(refused, Refusal) else refused.values():
            raise RequestRefused(refusal.error, refusal.message)

    run_at(ClusterEndpoint("test", bootstrap), move, timeout_s)


def elect(bootstrap: str, partitions: Sequence[TopicPartition], timeout_s: float) -> None:
    async def ask() -> None:
        async with await KafkaCluster.open(wire_settings(bootstrap, {})) as cluster:
            controller = (await cluster.ask_any(MetadataRequest(()))).controller
            await cluster.call(controller, ElectLeadersRequest(partitions, int(timeout_s * 1000)))

    asyncio.run(ask())
