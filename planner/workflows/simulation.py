"""Forecasts what the flows of a topology mean for their links: the first copy, an outage, and the traffic.

The figures come from live clusters: what is in the source topics, how fast they were written in the last
hour, what each flow has copied, and the retention of the source. Nothing is changed.
"""

import time
from collections import defaultdict
from collections.abc import Mapping

from planner.model.diagnostic import Failure
from planner.model.forecast import FlowForecast, Simulation, TopicVolume, forecast
from planner.model.observed import ClusterDetailsRequest, ObservedCluster
from planner.model.topology import Flow, Topology
from planner.workflows.audit.access import answered, cluster_endpoint
from planner.workflows.audit.replication_status import status_request
from planner.workflows.edge import Workflow
from planner.workflows.observing import read_clusters
from planner.workflows.requests import SimulationRequest
from planner.workflows.topology import load_topology
from runtime.audit.offsets.locate import offsets_by_time
from runtime.audit.status.reader import read_status
from runtime.contract.results.status import FlowHealth, PartitionHealth
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Latest

_HOUR_MS = 3_600_000
_KEYS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes"})


@Workflow
async def simulate(request: SimulationRequest) -> Simulation:
    """Forecasts the running flows. Failure: the topology has errors, or a secret is missing."""
    topology = load_topology(request)
    flows = {
        name: flow
        for name, flow in sorted(topology.flows.items())
        if flow.runs and (request.flows is None or name in request.flows)
    }
    if not flows:
        return ()
    status = await read_status(status_request(topology), 0.0, request.timeout_s)
    views = {health.name: health for health in status.flows}
    unread: dict[str, str] = {}
    volumes = await _volumes(topology, flows, views, request.timeout_s, unread)
    return tuple(
        forecast(flow, volumes[name], request.rate, request.outage_ms)
        if name in volumes
        else FlowForecast(
            name,
            flow.source_cluster,
            flow.destination_cluster,
            request.rate,
            request.outage_ms,
            why=unread.get(flow.source_cluster, "it could not be read"),
        )
        for name, flow in flows.items()
    )


async def _volumes(
    topology: Topology,
    flows: Mapping[str, Flow],
    views: Mapping[str, FlowHealth],
    timeout_s: float,
    unread: dict[str, str],
) -> dict[str, list[TopicVolume]]:
    """Returns the volumes of each flow whose source can be read; `unread` receives why a source can't be."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for name, flow in flows.items():
        wanted[flow.source_cluster] |= {topic.topic for topic in views[name].topics}
    request = {
        source: ClusterDetailsRequest(
            configs=dict.fromkeys(topics, _KEYS), explicit=False, sizes=frozenset(topics)
        )
        for source, topics in wanted.items()
    }
    sources = {source: topology.clusters[source] for source in wanted}
    observed = (await read_clusters(sources, timeout_s, lambda _: request)).clusters
    volumes: dict[str, list[TopicVolume]] = {}
    for source in sorted(wanted):
        cluster = observed.get(source)
        if not isinstance(cluster, ObservedCluster):
            unread[source] = f"{source} does not answer"
            continue
        flows_of_source = {name: flow for name, flow in flows.items() if flow.source_cluster == source}
        reader = _SourceReader(topology, cluster, timeout_s)
        try:
            volumes |= {
                name: await reader.volumes(flow, views[name]) for name, flow in flows_of_source.items()
            }
        except Failure as failure:
            unread[source] = failure.diagnostics[0].summary
    return volumes


class _SourceReader:
    """Reads the volumes of flows out of one cluster. Raises Failure if it does not answer."""

    def __init__(self, topology: Topology, cluster: ObservedCluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._access = cluster_endpoint(topology.clusters[cluster.name])
        self._within_s = timeout_s
        self._now_ms = int(time.time() * 1000)

    async def volumes(self, flow: Flow, view: FlowHealth) -> list[TopicVolume]:
        """Returns the volume of each topic of a flow."""
        partitions = {(partition.topic, partition.partition): partition for partition in view.partitions}
        hour_ago = await self._at_time(dict.fromkeys(partitions, self._now_ms - _HOUR_MS))
        volumes: list[TopicVolume] = []
        starts = await self._starts(flow, partitions)
        for topic in view.topics:
            places = [(topic.topic, partition.partition) for partition in topic.partitions]
            bounded = [
                partition
                for place in places
                if (partition := partitions[place]).source_start is not None
                and partition.source_end is not None
            ]
            live = self._cluster.topics.get(topic.topic)
            config = {} if live is None else live.config
            policy, retention_ms, retention_bytes = (
                config[key].value if key in config else None
                for key in ("cleanup.policy", "retention.ms", "retention.bytes")
            )
            deletes = "delete" in (policy or "delete")
            sizes = self._cluster.sizes
            volumes.append(
                TopicVolume(
                    topic.topic,
                    len(places),
                    records=sum(_end(partition) - _start(partition) for partition in bounded),
                    behind=sum(
                        max(
                            0,
                            _end(partition)
                            - max(starts[partition.topic, partition.partition], _start(partition)),
                        )
                        for partition in bounded
                    ),
                    bytes=None if sizes is None else sizes.get(topic.topic, 0),
                    records_per_s=sum(
                        self._rate(partition, hour_ago.get((partition.topic, partition.partition)))
                        for partition in bounded
                    ),
                    retention_ms=_limit(retention_ms) if deletes else None,
                    retention_bytes=_limit(retention_bytes) if deletes else None,
                )
            )
        return volumes

    async def _starts(
        self, flow: Flow, partitions: Mapping[tuple[str, int], PartitionHealth]
    ) -> dict[tuple[str, int], int]:
        """Returns the next offset that the flow copies of each partition, by the ledger or by `start`."""
        starts = {
            place: partition.position
            for place, partition in partitions.items()
            if partition.position is not None
        }
        begun = {place: partition for place, partition in partitions.items() if place not in starts}
        by_time: Mapping[tuple[str, int], tuple[int, int]] = {}
        if begun and isinstance(flow.start, AtTimestamp):
            by_time = await self._at_time(dict.fromkeys(begun, flow.start.timestamp_ms))
        for place, partition in begun.items():
            match flow.start:
                case Latest():
                    starts[place] = _end(partition)
                case AtTimestamp():
                    first = by_time.get(place)
                    starts[place] = _end(partition) if first is None else first[0]
                case AtOffsets(offsets=offsets):
                    starts[place] = offsets.get(place[0], {}).get(place[1], _start(partition))
                case _:
                    starts[place] = _start(partition)
        return starts

    def _rate(self, partition: PartitionHealth, first: tuple[int, int] | None) -> float:
        """Returns the records per second since the offset and time of the first record of the last hour."""
        if first is None:
            return 0.0
        offset, timestamp_ms = first
        younger = offset <= _start(partition)  # the log does not reach back an hour
        elapsed_ms = min(_HOUR_MS, max(1000, self._now_ms - timestamp_ms)) if younger else _HOUR_MS
        return max(0, _end(partition) - offset) * 1000 / elapsed_ms

    async def _at_time(self, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        return await answered(offsets_by_time(self._access, times, self._within_s)) if times else {}


def _start(partition: PartitionHealth) -> int:
    return partition.source_start or 0


def _end(partition: PartitionHealth) -> int:
    return partition.source_end or 0


def _limit(value: str | None) -> int | None:
    """Returns a retention as a number; None for -1, which is no limit, and for an unknown value."""
    return int(value) if value is not None and value.isdecimal() else None
