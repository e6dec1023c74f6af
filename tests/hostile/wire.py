"""The requests of Kafka's transaction API as they stand on the wire, and answers to them with an error.

kafka-python has Kafka's own schemas: it decodes the requests and encodes the answers, and shares nothing with
the product's client.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from kafka.protocol import producer

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id


class Api(IntEnum):
    """The requests of the product that carry a transactional id, by their API key."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


NAMES = {
    Api.PRODUCE: "Produce",
    Api.INIT_PRODUCER_ID: "InitProducerId",
    Api.ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    Api.END_TXN: "EndTxn",
}
_KEYS = frozenset(map(int, Api))
_FLEXIBLE = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.END_TXN: 3,
}
_REQUESTS: dict[Api, Any] = {
    Api.PRODUCE: producer.ProduceRequest,
    Api.INIT_PRODUCER_ID: producer.InitProducerIdRequest,
    Api.ADD_PARTITIONS_TO_TXN: producer.AddPartitionsToTxnRequest,
    Api.END_TXN: producer.EndTxnRequest,
}


class Request(NamedTuple):
    """A request of the transaction API; `data` is all of it, without its size."""

    api: Api
    version: int
    correlation_id: int
    transactional_id: str
    data: bytes

    @property
    def flexible(self) -> bool:
        """Whether its version has compact strings and tagged fields."""
        return self.version >= _FLEXIBLE[self.api]


def transactional(data: bytes) -> Request | None:
    """Returns a request that is part of a transaction, and None for any other one."""
    key, version, correlation_id, client = _HEADER.unpack_from(data)
    if key not in _KEYS:
        return None
    api, at = Api(key), _HEADER.size + max(client, 0)
    if version >= _FLEXIBLE[api]:
        length, at = _uvarint(data, at + 1)  # behind the header's empty tags
        length -= 1
    else:
        (length,) = struct.unpack_from(">h", data, at)
        at += 2
    if length < 0:
        return None
    return Request(api, version, correlation_id, data[at : at + length].decode(), data)


def error_answer(request: Request, code: int) -> bytes:
    """Returns the answer to a request with an error, with its size, for every partition that it names."""
    body = _REQUESTS[request.api].decode(request.data, version=request.version, header=True)
    encoded = bytes(_answer(request, body, code).encode(version=request.version))
    tags = b"\0" if request.flexible else b""
    return struct.pack(">ii", 4 + len(tags) + len(encoded), request.correlation_id) + tags + encoded


def _answer(request: Request, body: Any, code: int) -> Any:
    match request.api:
        case Api.INIT_PRODUCER_ID:
            return producer.InitProducerIdResponse(
                throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1
            )
        case Api.END_TXN:
            return producer.EndTxnResponse(throttle_time_ms=0, error_code=code)
        case Api.ADD_PARTITIONS_TO_TXN:
            return _add_partitions_answer(body, code)
        case Api.PRODUCE:
            return _produce_answer(request.version, body, code)


def _add_partitions_answer(body: Any, code: int) -> Any:
    answer = producer.AddPartitionsToTxnResponse
    result = answer.AddPartitionsToTxnTopicResult
    results = [
        result(
            name=topic.name,
            results_by_partition=[
                result.AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=code)
                for one in topic.partitions
            ],
        )
        for topic in body.v3_and_below_topics
    ]
    return answer(throttle_time_ms=0, results_by_topic_v3_and_below=results)


def _produce_answer(version: int, body: Any, code: int) -> Any:
    answer = producer.ProduceResponse
    topic_answer = answer.TopicProduceResponse
    named = "topic_id" if version >= 13 else "name"
    topics = [
        topic_answer(
            **{named: getattr(topic, named)},
            partition_responses=[
                topic_answer.PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                for one in topic.partition_data
            ],
        )
        for topic in body.topic_data
    ]
    return answer(responses=topics, throttle_time_ms=0)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned number, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
