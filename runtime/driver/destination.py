"""What must be there before a job can begin: the destination, its internal topics, what was said before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobStatus, UnreadableStatus
from runtime.contract.spec import internal_topics, naming
from runtime.contract.spec.internal_topics import InternalTopic
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.clusters import Clusters
from runtime.driver.log import say
from runtime.driver.topics.admin import Created
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.ledger.ledger import Ledger
from runtime.ledger.scan import Scan

_REPLICAS = 3
_APPEAR_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Destination:
    """`generations` are the flows', as the job's last heartbeat named them."""

    cluster: Cluster
    ledger: Ledger
    generations: Mapping[str, int]


async def open_destination(spec: JobSpec, clusters: Clusters) -> Destination:
    """Raises WireError, ClientSettingsError: then again."""
    cluster = await clusters.cluster(spec.destination)
    await ensure(clusters, spec.destination, internal_topics.at_destination(), spec)
    scan = Scan(cluster, naming.STATUS, 0)
    await scan.refresh()
    last = _status(scan, spec.job)
    generations = {flow.flow: flow.generation for flow in last.flows} if last is not None else {}
    return Destination(cluster, await Ledger.open(cluster), generations)


async def ensure(clusters: Clusters, name: str, topics: Sequence[InternalTopic], spec: JobSpec) -> None:
    """Internal topics that are not there yet are made; those that are stay as they are."""
    cluster = await clusters.cluster(name)
    found = await cluster.topics([one.name for one in topics], fresh=True)
    missing = [one for one in topics if found[one.name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if not missing:
        return
    replicas = spec.internal.replication or min(_REPLICAS, max(len(cluster.brokers), 1))
    wanted = [_created(one, one.replication or replicas) for one in missing]
    refused = await (await clusters.admin(name)).create(wanted)
    if refused:
        topic, why = next(iter(refused.items()))
        raise WireError(f"{topic} can't be made at {name}: {why}")
    await _appear(cluster, [one.name for one in missing])


def _created(one: InternalTopic, replicas: int) -> Created:
    """All replicas but one must have what counts as written."""
    config = {**one.config, "min.insync.replicas": str(max(1, replicas - 1))}
    return Created(one.name, one.partitions, config, replicas)


async def _appear(cluster: Cluster, names: Sequence[str]) -> None:
    deadline = asyncio.get_running_loop().time() + _APPEAR_S
    while True:
        found = await cluster.topics(names, fresh=True)
        waiting = [
            name
            for name, topic in found.items()
            if topic.error or any(one.leader < 0 for one in topic.partitions.values())
        ]
        if not waiting:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, waiting[0])
        await asyncio.sleep(_POLL_S)


async def last_status(cluster: Cluster, job: str) -> JobStatus | None:
    """The job's newest committed heartbeat."""
    scan = Scan(cluster, naming.STATUS, 0)
    await scan.refresh()
    return _status(scan, job)


def _status(scan: Scan, job: str) -> JobStatus | None:
    value = scan.fold.get(job_status.encode_key(JobKey(job)))
    try:
        return job_status.decode_job(value) if value is not None else None
    except UnreadableStatus as error:
        say(f"the last heartbeat of {job} was skipped: {error}")
        return None
