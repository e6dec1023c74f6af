"""This module opens the destination of a job: it creates the internal topics and reads the last heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobStatus, UnreadableStatus
from runtime.contract.spec import internal_topics, naming
from runtime.contract.spec.internal_topics import InternalTopic
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.log import log_driver_message
from runtime.driver.topics.admin import TopicToCreate
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.ledger.ledger import Ledger
from runtime.ledger.scan import InternalTopicScan

_REPLICAS = 3
_LEADERS_TIMEOUT_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class OpenDestination:
    """An OpenDestination holds the clients of the job's destination cluster.

    `generations` maps each flow to its generation in the job's last heartbeat.
    """

    cluster: KafkaCluster
    ledger: Ledger
    generations: Mapping[str, int]


async def open_destination(spec: JobSpec, clusters: DriverClusters) -> OpenDestination:
    """Opens the destination cluster and its ledger.

    Raises WireError, ClientSettingsError; the caller then retries.
    """
    cluster = await clusters.cluster(spec.destination)
    await ensure(clusters, spec.destination, internal_topics.at_destination(), spec)
    scan = InternalTopicScan(cluster, naming.STATUS, 0)
    await scan.refresh()
    last = _decode_status(scan, spec.job)
    generations = {flow.flow: flow.generation for flow in last.flows} if last is not None else {}
    return OpenDestination(cluster, await Ledger.open(cluster), generations)


async def ensure(clusters: DriverClusters, name: str, topics: Sequence[InternalTopic], spec: JobSpec) -> None:
    """Creates the internal topics that do not exist yet; existing topics stay unchanged.

    Raises WireError, ClientSettingsError.
    """
    cluster = await clusters.cluster(name)
    found = await cluster.topics([one.name for one in topics], fresh=True)
    missing = [one for one in topics if found[one.name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if not missing:
        return
    replicas = spec.internal.replication or min(_REPLICAS, max(len(cluster.brokers), 1))
    wanted = [_topic_to_create(one, one.replication or replicas) for one in missing]
    refused = await (await clusters.admin(name)).create(wanted)
    if refused:
        topic, why = next(iter(refused.items()))
        raise WireError(f"{topic} can't be made at {name}: {why}")
    await _await_leaders(cluster, [one.name for one in missing])


def _topic_to_create(one: InternalTopic, replicas: int) -> TopicToCreate:
    """Returns the request for a topic whose minimum in-sync replicas are all replicas but one."""
    config = {**one.config, "min.insync.replicas": str(max(1, replicas - 1))}
    return TopicToCreate(one.name, one.partitions, config, replicas)


async def _await_leaders(cluster: KafkaCluster, names: Sequence[str]) -> None:
    """Waits until every topic is listed with a leader for each partition. Raises BrokerError after 20 s."""
    deadline = asyncio.get_running_loop().time() + _LEADERS_TIMEOUT_S
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


async def last_status(cluster: KafkaCluster, job: str) -> JobStatus | None:
    """Returns the job's newest committed heartbeat, or None. Raises WireError."""
    scan = InternalTopicScan(cluster, naming.STATUS, 0)
    await scan.refresh()
    return _decode_status(scan, job)


def _decode_status(scan: InternalTopicScan, job: str) -> JobStatus | None:
    value = scan.fold.get(job_status.encode_key(JobKey(job)))
    try:
        return job_status.decode_job(value) if value is not None else None
    except UnreadableStatus as error:
        log_driver_message(f"the last heartbeat of {job} was skipped: {error}")
        return None
