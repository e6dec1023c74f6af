"""Leadership that moves in tests while no broker dies: replicas in another order, and an election."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from planner.kafka import ClusterClient, ClusterEndpoint, run_at
from planner.kafka.failures import RequestRefused
from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import AlterReassignmentsRequest
from runtime.kafka.protocol.metadata import MetadataRequest
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer

_PREFERRED = 0


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    throttle_ms: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """ElectLeaders v2: the preferred replica of each partition is to lead. One that can't lead is left."""

    API: ClassVar[Api] = Api.ELECT_LEADERS
    VERSIONS: ClassVar[tuple[int, int]] = (2, 2)
    FLEXIBLE: ClassVar[int] = 2

    partitions: Sequence[TopicPartition]
    timeout_ms: int

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.int8(_PREFERRED)
        writer.by_topic(self.partitions)
        writer.int32(self.timeout_ms)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> ElectLeadersResponse:
        return ElectLeadersResponse(reader.int32(), ErrorCode(reader.int16()))


def prefer(bootstrap: str, replicas: Mapping[TopicPartition, Sequence[int]], timeout_s: float) -> None:
    """Moves the replicas and has the first of each elected. Raises ClusterFailure or WireError."""
    move_replicas(bootstrap, replicas, timeout_s)
    elect(bootstrap, list(replicas), timeout_s)


def move_replicas(bootstrap: str, replicas: Mapping[TopicPartition, Sequence[int]], timeout_s: float) -> None:
    """Returns when the controller took it. Raises ClusterFailure."""

    async def move(client: ClusterClient) -> None:
        request = AlterReassignmentsRequest(replicas, int(timeout_s * 1000))
        response = await client.ask_controller(request)
        for refusal in (response.refusal, *response.refused.values()):
            if refusal is not None:
                raise RequestRefused(refusal.error, refusal.message)

    run_at(ClusterEndpoint("test", bootstrap), move, timeout_s)


def elect(bootstrap: str, partitions: Sequence[TopicPartition], timeout_s: float) -> None:
    async def ask() -> None:
        async with await KafkaCluster.open(wire_settings(bootstrap, {})) as cluster:
            controller = (await cluster.ask_any(MetadataRequest(()))).controller
            await cluster.call(controller, ElectLeadersRequest(partitions, int(timeout_s * 1000)))

    asyncio.run(ask())
