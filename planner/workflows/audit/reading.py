"""Single questions to clusters and their ledgers.

These are `repl read`, `clients`, `offsets`, `locate`, `doctor` and `status`.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass

from planner.config import load
from planner.graph.routes import reason_not_synced, router_of
from planner.kafka.errors import WireFailure
from planner.model.diagnostic import Failure, error
from planner.model.observed import ClusterReport
from planner.model.topology import Flow, GroupMode, Topology
from planner.observe.doctor import examine
from planner.workflows.audit.requests import answered, cluster_access, status_request
from planner.workflows.clusters import endpoints_of
from planner.workflows.topology import TopologyRequest, cluster_of, flow_of
from runtime.audit.ledger import ClusterAccess
from runtime.audit.offsets.locate import LocateRequest, locate
from runtime.audit.offsets.offsets import GroupOffsetsRequest, group_offsets
from runtime.audit.read.clients import read_clients
from runtime.audit.read.record_tracer import KnownCluster
from runtime.audit.read.records import (
    ReadFromEarliest,
    ReadFromOffset,
    ReadFromTimestamp,
    ReadNewest,
    ReadRecordsRequest,
    Start,
    read_cluster,
    read_records,
)
from runtime.audit.status.join import join
from runtime.audit.status.reader import StatusReader, read_status
from runtime.contract.views.groups_view import GroupOffsetsView, LocatedRecord
from runtime.contract.views.records_view import ClientsView, ClusterContentView, RecordsView
from runtime.contract.views.status_view import StatusView

__all__ = [
    "ClusterRequest",
    "LocateRecordRequest",
    "OffsetsRequest",
    "ReadFromEarliest",
    "ReadFromOffset",
    "ReadFromTimestamp",
    "ReadNewest",
    "ReplicationStatusRequest",
    "Start",
    "clients",
    "cluster_content",
    "doctor",
    "locate_record",
    "offsets",
    "records",
    "status",
    "watch_status",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest(TopologyRequest):
    """A request about one cluster of a topology, and about one of its topics or all."""

    cluster: str
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRequest(TopologyRequest):
    """A request for a group's offsets at both sides of a flow."""

    flow: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateRecordRequest(TopologyRequest):
    """A request for a record at the other side of a flow, by its offset or by its timestamp.

    The record is at the source, with `reverse` at the destination; `topic` is its name there.
    """

    flow: str
    topic: str
    partition: int
    offset: int | None = None
    timestamp_ms: int | None = None
    reverse: bool = False


def cluster_content(request: ClusterRequest) -> ClusterContentView:
    """Reads what a cluster holds, and how far each flow has copied into it."""
    return answered(read_cluster(_reading(request), request.timeout_ms / 1000))


def records(request: ClusterRequest, start: Start, limit: int) -> RecordsView:
    """Reads committed records of a topic, each with its provenance."""
    assert request.topic is not None, "records are read of one topic"
    return answered(read_records(_reading(request), request.topic, start, limit, request.timeout_ms / 1000))


def clients(request: ClusterRequest, over_ms: int = 0) -> ClientsView:
    """Reads which groups consume from each topic, and which producers write to it.

    `over_ms`: how far apart two readings are that give the rates; 0 reads once.
    """
    return answered(read_clients(_reading(request), request.topic, over_ms / 1000, request.timeout_ms / 1000))


def offsets(request: OffsetsRequest) -> GroupOffsetsView:
    """Reads a group's offsets at the source, translated by the ledger to the destination."""
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    source, destination = _sides(topology, flow)
    return answered(
        group_offsets(
            GroupOffsetsRequest(
                flow=flow.name,
                group=request.group,
                unsynced=reason_not_synced(flow, request.group),
                by_time=flow.groups.mode is GroupMode.TIMESTAMP,
                router=router_of(topology),
                source=source,
                destination=destination,
                within_s=request.timeout_ms / 1000,
            )
        )
    )


def locate_record(request: LocateRecordRequest) -> LocatedRecord:
    """Finds a record at the other side of a flow."""
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    source, destination = _sides(topology, flow)
    return answered(
        locate(
            LocateRequest(
                flow=flow.name,
                topic=request.topic,
                partition=request.partition,
                offset=request.offset,
                timestamp_ms=request.timestamp_ms,
                reverse=request.reverse,
                source=source,
                destination=destination,
                within_s=request.timeout_ms / 1000,
            )
        )
    )


def _sides(topology: Topology, flow: Flow) -> tuple[ClusterAccess, ClusterAccess]:
    """Returns the access to a flow's source and to its destination."""
    names = (flow.source_cluster, flow.destination_cluster)
    access = cluster_access(topology.clusters[name] for name in names)
    return access[names[0]], access[names[1]]


def _reading(request: ClusterRequest) -> ReadRecordsRequest:
    topology = load(request.path, request.var_files)
    cluster = cluster_of(topology, request.cluster)
    pinned = {one.id: one.name for one in topology.clusters.values() if one.id is not None}
    others = dict(_others(topology, cluster.name))
    access = cluster_access([cluster])[cluster.name]
    return ReadRecordsRequest(access, _flows_into(topology, cluster.name), pinned, others)


def _flows_into(topology: Topology, name: str) -> dict[str, str]:
    """Returns the flows into a cluster, each with the name of its source."""
    return {
        flow.name: flow.source_cluster for flow in topology.flows.values() if flow.destination_cluster == name
    }


def _others(topology: Topology, name: str) -> Iterator[tuple[str, KnownCluster]]:
    """Yields the clusters that records may have come through.

    One whose secrets are not available here is left out: it only adds to the answer.
    """
    for other in topology.clusters.values():
        if other.name != name:
            with suppress(Failure):
                yield (
                    other.name,
                    KnownCluster(cluster_access([other])[other.name], _flows_into(topology, other.name)),
                )


def doctor(request: ClusterRequest) -> ClusterReport:
    """Examines a cluster; nothing is changed. Raises Failure where no broker answers."""
    topology = load(request.path, request.var_files)
    known = cluster_of(topology, request.cluster)
    try:
        return examine(endpoints_of([known])[request.cluster], request.timeout_ms / 1000, topology)
    except WireFailure as failure:
        raise Failure(error(f"{request.cluster}: {failure.why}", failure.way_out)) from None


_LATER_WITHIN_S = 3.0  # a cluster that is down must not delay what the others show


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatusRequest(TopologyRequest):
    """A request for the status of every flow. `over_ms`: how long rates are measured; 0 measures none."""

    over_ms: int = 1_000


def status(request: ReplicationStatusRequest) -> StatusView:
    """Reads the status once. It is right also when a job is dead or a datacenter is down."""
    topology = load(request.path, request.var_files)
    over_s, within_s = request.over_ms / 1000, request.timeout_ms / 1000
    return asyncio.run(read_status(status_request(topology), over_s, within_s, retention=True))


async def watch_status(request: TopologyRequest, every_ms: int) -> AsyncGenerator[StatusView, None]:
    """Yields the status again and again, each with the rates since the one before."""
    asked = status_request(load(request.path, request.var_files))
    within_s = request.timeout_ms / 1000
    async with StatusReader(asked, within_s, retention=True, traffic=True) as reader:
        before = await reader.read()
        reader.within_s = min(within_s, _LATER_WITHIN_S)
        while True:
            await asyncio.sleep(every_ms / 1000)
            now = await reader.read()
            yield join(asked, now, before)
            before = now
