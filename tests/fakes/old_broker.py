"""A broker of another age, with the API versions that a test wants. kafka-python encodes its answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from tests.fakes.hostile_broker import API_VERSIONS, Asked, Fault, HostileBroker

DESCRIBE_CONFIGS = 32
UNSUPPORTED_VERSION = 35
CLUSTER_ID = "an-old-cluster"
Entry = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult


class OldBroker(HostileBroker):
    """Knows the topic "orders" (and more) with `retention.ms` set to 1000, and the setting num.partitions: 4.

    `versions`: API key → the highest version it speaks. It says of `missing` topics that they do not exist.
    """

    def __init__(self, versions: Mapping[int, int], *more_topics: str, missing: Sequence[str] = ()) -> None:
        super().__init__(Fault(self._reply))
        self._missing = missing
        self._versions = dict(versions)
        self._topics = ("orders", *more_topics)
        self.stands_still = False  # as a process that is stopped: connections stay, and nothing is answered

    def _reply(self, asked: Asked) -> Sequence[bytes]:
        if self.stands_still:
            return ()
        answer = self._answer(asked.api, asked.version)
        answer.with_header(correlation_id=asked.correlation_id)
        return (answer.encode(header=True, framed=True),)

    def _answer(self, key: int, version: int) -> Any:
        if key == API_VERSIONS and version > self._versions[API_VERSIONS]:
            return ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[], version=0)
        match key:
            case 18:
                known = [
                    ApiVersionsResponse.ApiVersion(api_key=one, min_version=0, max_version=highest)
                    for one, highest in self._versions.items()
                ]
                return ApiVersionsResponse(error_code=0, api_keys=known, version=version)
            case 3:
                return self._metadata(version)
            case 32:
                return self._configs(version)
            case _:
                raise AssertionError(f"nobody told this broker of API {key}")

    def _metadata(self, version: int) -> Any:
        broker = MetadataResponse.MetadataResponseBroker(
            node_id=1, host="127.0.0.1", port=self.port, rack=None
        )
        topic = MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        topics = [
            topic(error_code=0, name=name, is_internal=False, partitions=[partition]) for name in self._topics
        ]
        topics += [topic(error_code=3, name=name, is_internal=False, partitions=[]) for name in self._missing]
        return MetadataResponse(
            brokers=[broker], cluster_id=CLUSTER_ID, controller_id=1, topics=topics, version=version
        )

    def _configs(self, version: int) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        entries = (("retention.ms", "1000", 1), ("num.partitions", "4", 4))
        configs = [
            Entry(name=name, value=value, read_only=False, config_source=source, synonyms=[])
            for name, value, source in entries
        ]
        found = result(
            error_code=0, error_message=None, resource_type=2, resource_name="orders", configs=configs
        )
        return DescribeConfigsResponse(results=[found], version=version)
