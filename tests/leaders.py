"""Leadership that moves in tests while no broker dies: replicas in another order, and an election."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from planner.kafka import ClusterClient, ClusterEndpoint, run_at
from planner.kafka.failures import RequestRefused
from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, Refusal
from runtime.kafka.protocol.administration import AlterReassignmentsRequest
from runtime.kafka.protocol.layout import Int8, Int32, Rest, Skipped
from runtime.kafka.protocol.metadata import MetadataRequest
from runtime.kafka.protocol.request import Api, Request


class ElectLeadersRequest(Request[ErrorCode], frozen=True):
    """The preferred replica of each partition is to lead. One that can't lead is left."""

    API = Api.ELECT_LEADERS
    FLEXIBLE = 2
    VERSIONS = (2, 2)
    RESPONSE = tuple[ErrorCode, Skipped[Rest]]
    _preferred: ClassVar[Int8] = 0

    partitions: Sequence[TopicPartition]
    timeout_ms: Int32

    def result(self, value: Any) -> ErrorCode:
        (error,) = value
        assert isinstance(error, ErrorCode)
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
