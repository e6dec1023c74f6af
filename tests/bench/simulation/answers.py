"""What a simulated broker answers to each request."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl

from runtime.contract.spec import naming
from runtime.kafka.timing import now_ms
from tests.bench.simulation.contents import (
    BROKER_SETTINGS,
    LARGEST_BATCH,
    RECORDS,
    ClusterContents,
    ClusterTopic,
)
from tests.bench.simulation.faults import Fault
from tests.bench.simulation.logs import Coordinator, PartitionLog
from tests.bench.simulation.wire import (
    OFFERED,
    Asked,
    MetadataCodec,
    SettingsCodec,
    framed,
    framed_parts,
    uvarint,
)

NOT_LEADER, UNKNOWN_TOPIC, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION = 6, 3, 34, 35
_LATEST = -1
_EARLIEST = (-2, -4, -5)
_INTERNAL = naming.INTERNAL_PREFIX


class SimulatedCluster:
    """The state that the brokers of a cluster share."""

    def __init__(self, contents: ClusterContents) -> None:
        self.contents = contents
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.coordinator = Coordinator(self.logs)
        self.names = {one.id: one.name for one in contents.topics.values()}
        for one in contents.topics.values():
            self._open(one)

    def _open(self, one: ClusterTopic) -> None:
        if not one.name.startswith(_INTERNAL):
            return
        compacts = one.name == naming.STATUS
        for partition in range(one.partitions):
            self.logs[one.name, partition] = PartitionLog(LARGEST_BATCH, compacts=compacts)

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Creates a topic."""
        self.contents.add(name, partitions, settings)
        one = self.contents.topics[name]
        self.names[one.id] = name
        self._open(one)

    def ends(self, at: tuple[str, int]) -> tuple[int, int]:
        """Returns the log end and the last stable offset of a partition."""
        log = self.logs.get(at)
        return (RECORDS, RECORDS) if log is None else (log.end, log.stable_end)


class BrokerAnswers:
    """Answers the requests to one broker of a cluster."""

    def __init__(self, node: int, cluster: SimulatedCluster, ports: Sequence[int]) -> None:
        self._node = node
        self._cluster = cluster
        self._contents = cluster.contents
        self._ports = ports
        self._metadata = MetadataCodec(cluster.contents.cluster_id, ports)
        self._settings = SettingsCodec()
        self._by_api: Mapping[int, Callable[[Asked, Fault], bytes]] = {
            0: self._produce,
            2: self._list_offsets,
            3: self._list_topics,
            8: self._commit_offsets,
            9: self._fetch_offsets,
            10: self._find_coordinator,
            16: self._list_groups,
            17: self._no_sasl,
            18: self._api_versions,
            19: self._create_topics,
            22: self._init_producer_id,
            23: self._epoch_ends,
            24: self._add_partitions,
            26: self._end_transaction,
            29: self._acls,
            32: self._describe_configs,
            48: self._quotas,
            60: self._describe_cluster,
        }

    async def answer(self, request: Asked, fault: Fault) -> bytes:
        """Returns the encoded answer."""
        if request.api == 1:
            return await self._fetch(request, fault)
        return self._by_api[request.api](request, fault)

    def _leads(self, at: tuple[str, int], fault: Fault) -> int:
        """Returns the error code with which this broker refuses a partition, or 0."""
        topic = self._contents.topics.get(at[0])
        if topic is None or not 0 <= at[1] < topic.partitions:
            return UNKNOWN_TOPIC
        return NOT_LEADER if fault is Fault.NOT_LEADER or topic.leader(at[1]) != self._node else 0

    def _api_versions(self, request: Asked, _fault: Fault) -> bytes:
        classes = metadata.ApiVersionsResponse
        keys = [
            classes.ApiVersion(api_key=api, min_version=low, max_version=high)
            for api, (low, high) in OFFERED.items()
        ]
        if request.body is None:
            answer = classes(error_code=UNSUPPORTED_VERSION, api_keys=keys[:0])
            return framed(request._replace(version=0), answer)
        return framed(request, classes(error_code=0, api_keys=keys, throttle_time_ms=0))

    def _no_sasl(self, request: Asked, _fault: Fault) -> bytes:
        """Answers a client that asks whether this listener wants SASL."""
        return framed(request, sasl.SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[]))

    def _list_topics(self, request: Asked, fault: Fault) -> bytes:
        codec, version, topics = self._metadata, request.version, self._contents.topics
        wanted = request.body.topics
        if wanted is None:
            return codec.answer(request, [codec.topic(version, one) for one in topics.values()])
        stale = fault is Fault.STALE_METADATA
        found = []
        for each in wanted:
            name = each.name if each.name is not None else self._cluster.names.get(each.topic_id, "")
            one = topics.get(name)
            found.append(
                codec.unknown(version, name) if one is None else codec.topic(version, one, stale=stale)
            )
        return codec.answer(request, found)

    def _describe_configs(self, request: Asked, _fault: Fault) -> bytes:
        version, results = request.version, []
        for each in request.body.resources:
            topic = self._contents.topics.get(each.resource_name)
            if each.resource_type == 2 and topic is not None:
                keys, synonyms = each.configuration_keys, request.body.include_synonyms
                results.append(self._settings.result(version, topic, keys, synonyms=synonyms))
            else:
                results.append(_broker_settings(version, each.resource_type, each.resource_name))
        if version >= 4:
            parts = (struct.pack(">i", 0), uvarint(len(results) + 1), *results, b"\0")
            return framed_parts(request, parts, flexible=True)
        return framed_parts(request, (struct.pack(">ii", 0, len(results)), *results), flexible=False)

    def _list_offsets(self, request: Asked, fault: Fault) -> bytes:
        classes = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
        one = classes.ListOffsetsPartitionResponse
        stable = bool(request.body.isolation_level)
        topics = []
        for topic in request.body.topics:
            answers = []
            for each in topic.partitions:
                at = (topic.name, each.partition_index)
                error = self._leads(at, fault)
                offset = -1
                if not error:
                    offset = self._offset(at, each.timestamp, stable=stable)
                answers.append(
                    one(
                        partition_index=at[1],
                        error_code=error,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0 if not error else -1,
                    )
                )
            topics.append(classes(name=topic.name, partitions=answers))
        return framed(request, consumer.ListOffsetsResponse(throttle_time_ms=0, topics=topics))

    def _offset(self, at: tuple[str, int], timestamp: int, *, stable: bool) -> int:
        if timestamp in _EARLIEST:
            log = self._cluster.logs.get(at)
            return log.start if log is not None else 0
        end, stable_end = self._cluster.ends(at)
        return (stable_end if stable else end) if timestamp == _LATEST else -1

    async def _fetch(self, request: Asked, fault: Fault) -> bytes:
        body = request.body
        for topic in body.topics:  # a request of several partitions waits for the first one alone
            log = self._cluster.logs.get((self._name_of(topic), topic.partitions[0].partition))
            if log is not None and body.min_bytes:
                await log.grown(topic.partitions[0].fetch_offset, body.max_wait_ms / 1000)
            break
        classes = consumer.FetchResponse.FetchableTopicResponse
        topics = [
            classes(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    self._fetched((self._name_of(topic), each.partition), each, fault)
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        return framed(
            request, consumer.FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)
        )

    def _name_of(self, topic: Any) -> str:
        return topic.topic or self._cluster.names.get(topic.topic_id, "")

    def _fetched(self, at: tuple[str, int], each: Any, fault: Fault) -> Any:
        error = self._leads(at, fault)
        records, end, stable, start = b"", -1, -1, -1
        if not error:
            end, stable = self._cluster.ends(at)
            log = self._cluster.logs.get(at)
            start = log.start if log is not None else 0
            if log is not None:
                records = log.read(each.fetch_offset, each.partition_max_bytes)
        return consumer.FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=at[1],
            error_code=error,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=[],
            preferred_read_replica=-1,
            records=records,
        )

    def _produce(self, request: Asked, fault: Fault) -> bytes:
        classes = producer.ProduceResponse.TopicProduceResponse
        one = classes.PartitionProduceResponse
        topics = []
        for topic in request.body.topic_data:
            answers = []
            for each in topic.partition_data:
                at = (topic.name, each.index)
                error, base = self._leads(at, fault), -1
                if not error:
                    error, base = self._append(at, request.body.transactional_id, bytes(each.records))
                answers.append(
                    one(
                        index=at[1],
                        error_code=int(error),
                        base_offset=base,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=None,
                    )
                )
            topics.append(classes(name=topic.name, partition_responses=answers))
        return framed(request, producer.ProduceResponse(responses=topics, throttle_time_ms=0))

    def _append(self, at: tuple[str, int], transactional_id: str | None, data: bytes) -> tuple[int, int]:
        refused = self._cluster.coordinator.check(at, transactional_id, data)
        return (refused, -1) if refused else self._cluster.logs[at].append(data)

    def _epoch_ends(self, request: Asked, fault: Fault) -> bytes:
        classes = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = [
            classes(
                topic=topic.topic,
                partitions=[
                    classes.EpochEndOffset(
                        error_code=self._leads((topic.topic, each.partition), fault),
                        partition=each.partition,
                        leader_epoch=0,
                        end_offset=self._cluster.ends((topic.topic, each.partition))[0],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
        return framed(request, consumer.OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics))

    def _find_coordinator(self, request: Asked, _fault: Fault) -> bytes:
        classes = metadata.FindCoordinatorResponse
        if request.version < 4:
            node = self._contents.coordinator(request.body.key)
            port = self._ports[node - 1]
            return framed(
                request, classes(error_code=0, error_message=None, node_id=node, host="127.0.0.1", port=port)
            )
        found = []
        for key in request.body.coordinator_keys:
            node = self._contents.coordinator(key)
            port = self._ports[node - 1]
            found.append(
                classes.Coordinator(
                    key=key, node_id=node, host="127.0.0.1", port=port, error_code=0, error_message=None
                )
            )
        return framed(request, classes(throttle_time_ms=0, coordinators=found))

    def _list_groups(self, request: Asked, _fault: Fault) -> bytes:
        classes = admin.ListGroupsResponse
        groups = [
            classes.ListedGroup(
                group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic"
            )
            for name in self._contents.committed
            if self._contents.coordinator(name) == self._node
        ]
        return framed(request, classes(throttle_time_ms=0, error_code=0, groups=groups))

    def _fetch_offsets(self, request: Asked, _fault: Fault) -> bytes:
        classes = consumer.OffsetFetchResponse
        if request.version < 8:
            raise KeyError("the offsets of one group")
        groups = [
            classes.OffsetFetchResponseGroup(
                group_id=each.group_id, error_code=0, topics=self._offsets_of(each.group_id)
            )
            for each in request.body.groups
        ]
        return framed(request, classes(throttle_time_ms=0, groups=groups))

    def _offsets_of(self, group: str) -> list[Any]:
        classes = consumer.OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in self._contents.committed.get(group, {}).items():
            by_topic.setdefault(topic, []).append(
                classes.OffsetFetchResponsePartitions(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=0,
                )
            )
        return [classes(name=name, partitions=some) for name, some in by_topic.items()]

    def _commit_offsets(self, request: Asked, _fault: Fault) -> bytes:
        classes = consumer.OffsetCommitResponse.OffsetCommitResponseTopic
        mine = self._contents.committed.setdefault(request.body.group_id, {})
        topics = []
        for topic in request.body.topics:
            for each in topic.partitions:
                mine[topic.name, each.partition_index] = each.committed_offset
            answers = [
                classes.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=0)
                for each in topic.partitions
            ]
            topics.append(classes(name=topic.name, partitions=answers))
        return framed(request, consumer.OffsetCommitResponse(throttle_time_ms=0, topics=topics))

    def _init_producer_id(self, request: Asked, _fault: Fault) -> bytes:
        body = request.body
        known_id, known_epoch = (body.producer_id, body.producer_epoch) if request.version >= 3 else (-1, -1)
        error, producer_id, epoch = self._cluster.coordinator.init(
            body.transactional_id, known_id, known_epoch, now_ms()
        )
        return framed(
            request,
            producer.InitProducerIdResponse(
                throttle_time_ms=0, error_code=int(error), producer_id=producer_id, producer_epoch=epoch
            ),
        )

    def _add_partitions(self, request: Asked, _fault: Fault) -> bytes:
        body = request.body
        topics = body.v3_and_below_topics
        places = [(topic.name, partition) for topic in topics for partition in topic.partitions]
        error = self._cluster.coordinator.add(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            places,
        )
        classes = producer.AddPartitionsToTxnResponse
        result = classes.AddPartitionsToTxnTopicResult
        results = [
            result(
                name=topic.name,
                results_by_partition=[
                    result.AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=int(error)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
        return framed(request, classes(throttle_time_ms=0, results_by_topic_v3_and_below=results))

    def _end_transaction(self, request: Asked, _fault: Fault) -> bytes:
        body = request.body
        error = self._cluster.coordinator.end(
            body.transactional_id, body.producer_id, body.producer_epoch, now_ms(), commit=body.committed
        )
        return framed(request, producer.EndTxnResponse(throttle_time_ms=0, error_code=int(error)))

    def _create_topics(self, request: Asked, _fault: Fault) -> bytes:
        classes = admin.CreateTopicsResponse
        results = []
        for each in request.body.topics:
            exists = each.name in self._contents.topics
            if not (exists or request.body.validate_only):
                settings = {one.name: one.value for one in each.configs}
                self._cluster.create(each.name, each.num_partitions, settings)
            results.append(
                classes.CreatableTopicResult(
                    name=each.name,
                    error_code=36 if exists else 0,
                    error_message=None,
                    topic_config_error_code=0,
                    num_partitions=max(each.num_partitions, 1),
                    replication_factor=3,
                    configs=[],
                )
            )
        return framed(request, classes(throttle_time_ms=0, topics=results))

    def _acls(self, request: Asked, _fault: Fault) -> bytes:
        answer = admin.DescribeAclsResponse(
            throttle_time_ms=0, error_code=54, error_message="No Authorizer is configured.", resources=[]
        )
        return framed(request, answer)

    def _quotas(self, request: Asked, _fault: Fault) -> bytes:
        answer = admin.DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=0, error_message=None, entries=[]
        )
        return framed(request, answer)

    def _describe_cluster(self, request: Asked, _fault: Fault) -> bytes:
        classes = admin.DescribeClusterResponse
        brokers = [
            classes.DescribeClusterBroker(broker_id=node, host="127.0.0.1", port=port, rack=None)
            for node, port in enumerate(self._ports, 1)
        ]
        return framed(
            request,
            classes(
                throttle_time_ms=0,
                error_code=0,
                error_message=None,
                endpoint_type=1,
                cluster_id=self._contents.cluster_id,
                controller_id=1,
                brokers=brokers,
                cluster_authorized_operations=-(2**31),
            ),
        )


def _broker_settings(version: int, kind: int, name: str) -> bytes:
    """Encodes the result for a broker, or for a topic that does not exist."""
    classes = admin.DescribeConfigsResponse.DescribeConfigsResult
    entries = [
        classes.DescribeConfigsResourceResult(
            name=key,
            value=value,
            read_only=False,
            config_source=5,
            is_sensitive=False,
            synonyms=[],
            config_type=2,
            documentation=None,
        )
        for key, value in BROKER_SETTINGS.items()
        if kind == 4
    ]
    result = classes(
        error_code=0 if kind == 4 else UNKNOWN_TOPIC,
        error_message=None,
        resource_type=kind,
        resource_name=name,
        configs=entries,
    )
    encoded = bytes(
        admin.DescribeConfigsResponse(throttle_time_ms=0, results=[result]).encode(version=version)
    )
    return encoded[5:-1] if version >= 4 else encoded[8:]
