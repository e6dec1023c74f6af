"""Creates the control plane's internal topics. `planner.kafka.log` reads and writes them."""

import time
from collections.abc import Iterable
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from planner.kafka import ClusterEndpoint, admin
from planner.kafka.log import FIRST_ANSWER_SECONDS, READ_SECONDS, unusable
from planner.model.diagnostic import Failure, error
from planner.model.topology import Internal
from runtime.contract.spec import naming

DAY_MS = 24 * 3_600_000
_REPLICATION = 3

_SMALL = {
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DAY_MS),
}


def configs(topic: str, internal: Internal) -> dict[str, str]:
    """Returns the settings that an internal topic needs."""
    match topic:
        case naming.REGISTRY:
            return {"cleanup.policy": "compact", **_SMALL}
        case naming.LEASE:
            return {
                "cleanup.policy": "delete",
                "retention.ms": str(DAY_MS),
                "segment.bytes": str(1 << 20),
                "message.timestamp.type": "LogAppendTime",
            }
        case _:
            kept = internal.retention_ms if internal.retention_ms is not None else 30 * DAY_MS
            return {"cleanup.policy": "delete", "retention.ms": str(kept)}


def ensure(endpoint: ClusterEndpoint, topics: Iterable[str], internal: Internal) -> None:
    """Creates missing topics, as durable as the cluster allows, and waits until they can be written."""
    client = admin(endpoint)
    try:
        metadata = client.list_topics(timeout=FIRST_ANSWER_SECONDS)
        missing = [topic for topic in topics if topic not in metadata.topics]
        if not missing:
            return
        replication = internal.replication or min(_REPLICATION, len(metadata.brokers))
        wanted = [
            NewTopic(
                topic,
                num_partitions=1,
                replication_factor=replication,
                config={**configs(topic, internal), "min.insync.replicas": str(max(1, replication - 1))},
            )
            for topic in missing
        ]
        for topic, outcome in client.create_topics(wanted, operation_timeout=READ_SECONDS).items():
            _created(endpoint, topic, outcome)
    except KafkaException as failure:
        raise unusable(endpoint, "the internal topics", failure) from failure
    _await_leaders(endpoint, client, missing)


def _created(endpoint: ClusterEndpoint, topic: str, outcome: Future[None]) -> None:
    try:
        outcome.result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise unusable(endpoint, topic, failure) from failure


def _await_leaders(endpoint: ClusterEndpoint, client: AdminClient, topics: list[str]) -> None:
    """Waits for leaders: a broker answers "created" before all brokers know the topic and its leader."""
    deadline = time.monotonic() + READ_SECONDS
    pending = set(topics)
    while pending:
        for topic in list(pending):
            known = client.list_topics(topic, timeout=READ_SECONDS).topics[topic]
            if known.error is None and known.partitions and known.partitions[0].leader >= 0:
                pending.discard(topic)
        if pending and time.monotonic() > deadline:
            raise Failure(
                error(
                    f"no leader at {endpoint.cluster} for {READ_SECONDS:.0f} s: {', '.join(sorted(pending))}",
                    "look at the brokers of the cluster, then run this again",
                )
            )
