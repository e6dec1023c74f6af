"""Examines a live cluster for `repl doctor`: versions, features, rights, clock and round trip.

Nothing is changed.
"""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation

from planner.kafka import ClusterEndpoint, admin
from planner.kafka.connections import BlockingConnection, Refused, WireFailure
from planner.kafka.connections.session import Session
from planner.model.cluster_report import BrokerReport, ClusterReport, FeatureReport, RightReport
from planner.model.topology import Topology
from planner.observe.brokers import BrokerVersions, reach_each
from planner.observe.features import BROKER_FEATURES, lacking, release_of
from planner.observe.listing import identify, list_topics
from planner.observe.topic_rights import read_topic_rights, uses_of
from runtime.contract.client.settings import wire_settings
from runtime.contract.client.values import ClientSettingsError
from runtime.kafka.protocol.metadata import AnyMetadataRequest, DescribeQuorumRequest

_ROUND_TRIPS = 5  # the shortest counts: the others waited for something else
_NO_CLOCK = "this version tells no time: DescribeQuorum came with Kafka 3.3, in KRaft mode"

# What the operations of a cluster are needed for; docs/operations.md lists all rights.
_CLUSTER_RIGHTS = {
    AclOperation.DESCRIBE: "read ACLs and the controllers' clock",
    AclOperation.DESCRIBE_CONFIGS: "read the brokers' defaults",
    AclOperation.CREATE: "create topics",
    AclOperation.ALTER: "change ACLs and replicas",
    AclOperation.IDEMPOTENT_WRITE: "write in transactions before Kafka 2.8",
}


def examine(endpoint: ClusterEndpoint, timeout_s: float, topology: Topology) -> ClusterReport:
    """Asks every broker of the cluster. Raises WireFailure where none answers.

    The rights on topics are those that the flows of the topology need.
    """
    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
    except ClientSettingsError as wrong:
        raise Refused(str(wrong), f"look at client: of cluster {endpoint.cluster}") from None
    session = Session(settings, timeout_s)
    try:
        identity = session.ask(identify)
        session.add_brokers((one.host, one.port) for one in identity.brokers)
        reached = reach_each(session, identity.brokers, timeout_s)
        try:
            brokers = []
            for one in identity.brokers:
                address = f"{one.host}:{one.port}"
                if (connection := reached.connections.get(one.id)) is not None:
                    brokers.append(_broker(one.id, address, connection))
                else:
                    brokers.append(BrokerReport(one.id, address, why=reached.unreachable[one.id].why))
            offset, why = session.ask(_clock_offset)
            listing = session.ask(list_topics)
        finally:
            reached.close()
    finally:
        session.close()
    return ClusterReport(
        endpoint.cluster,
        identity.id,
        tuple(brokers),
        tuple(_features(brokers)),
        _rights(endpoint, timeout_s),
        offset,
        why,
        read_topic_rights(
            endpoint,
            uses_of(topology, endpoint.cluster, (*listing.topics, *listing.internal)),
            timeout_s,
        ),
    )


def _broker(node: int, address: str, connection: BlockingConnection) -> BrokerReport:
    best = float("inf")
    try:
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            connection.call(AnyMetadataRequest(()))
            best = min(best, time.perf_counter() - began)
    except WireFailure as failure:
        return BrokerReport(node, address, why=failure.why)
    versions = dict(connection.versions)
    return BrokerReport(node, address, release_of(versions), round(best * 1000, 2), versions)


def _features(brokers: Iterable[BrokerReport]) -> Iterable[FeatureReport]:
    offered = [
        BrokerVersions(f"{one.node} ({one.address})", one.versions)
        for one in brokers
        if one.versions is not None
    ]
    missing = {one.feature: one for one in lacking(offered)}
    for feature in BROKER_FEATURES:
        one = missing.get(feature)
        yield FeatureReport(feature) if one is None else FeatureReport(feature, one.broker, one.why)


def _clock_offset(connection: BlockingConnection) -> tuple[float | None, str]:
    """Returns the offset of the active controller's clock, by the middle of the shortest question."""
    if DescribeQuorumRequest.API not in connection.versions:
        return None, _NO_CLOCK
    best, offset = float("inf"), 0.0
    for _ in range(_ROUND_TRIPS):
        began, before = time.perf_counter(), time.time()
        answer = connection.call(DescribeQuorumRequest())
        took = time.perf_counter() - began
        if answer.error:
            return None, f"the controller does not tell: {answer.error.name}"
        there = next((one.caught_up_ms for one in answer.voters if one.node == answer.leader), -1)
        if there < 0:
            return None, "the controllers have no leader now"
        if took < best:
            best, offset = took, there - (before + took / 2) * 1000
    return round(offset, 1), ""


def _rights(endpoint: ClusterEndpoint, timeout_s: float) -> tuple[RightReport, ...]:
    client = admin(endpoint)  # lives until the answer is there
    asked = client.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s)
    try:
        allowed = asked.result(timeout_s + 5).authorized_operations
    except KafkaException:
        allowed = None
    return tuple(
        RightReport(operation.name, None if allowed is None else operation in allowed, used_to)
        for operation, used_to in _CLUSTER_RIGHTS.items()
    )
