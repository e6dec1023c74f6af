"""The encoding of requests and answers of simulated brokers.

kafka-python has Kafka's own schemas, and encodes most answers. Two answers are large and the same each time,
so they are put together from parts that were encoded before: metadata, and the settings of topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol import admin, consumer, metadata, producer, sasl

from tests.bench.simulation.contents import TOPIC_DEFAULTS, ClusterTopic

# API key → the range of versions that a broker offers. The first table are the requests that it answers; the
# second ones show clients that it is a broker of Kafka 4.1, and are never sent here.
VERSIONS: Mapping[int, tuple[int, int]] = {
    0: (3, 12),
    1: (4, 17),
    2: (1, 10),
    3: (9, 12),
    8: (2, 9),
    9: (1, 9),
    10: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    22: (0, 4),
    23: (2, 4),
    24: (0, 3),
    26: (0, 4),
    29: (1, 3),
    32: (1, 4),
    48: (0, 1),
    60: (0, 1),
}
OFFERED: Mapping[int, tuple[int, int]] = {
    **VERSIONS,
    15: (0, 6),
    20: (1, 6),
    21: (0, 2),
    25: (0, 4),
    28: (0, 5),
    30: (1, 3),
    31: (1, 3),
    35: (1, 4),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    49: (0, 1),
    50: (0, 0),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
}
_REQUESTS: Mapping[int, Any] = {
    0: producer.ProduceRequest,
    1: consumer.FetchRequest,
    2: consumer.ListOffsetsRequest,
    3: metadata.MetadataRequest,
    8: consumer.OffsetCommitRequest,
    9: consumer.OffsetFetchRequest,
    10: metadata.FindCoordinatorRequest,
    16: admin.ListGroupsRequest,
    17: sasl.SaslHandshakeRequest,
    18: metadata.ApiVersionsRequest,
    19: admin.CreateTopicsRequest,
    22: producer.InitProducerIdRequest,
    23: consumer.OffsetForLeaderEpochRequest,
    24: producer.AddPartitionsToTxnRequest,
    26: producer.EndTxnRequest,
    29: admin.DescribeAclsRequest,
    32: admin.DescribeConfigsRequest,
    48: admin.DescribeClientQuotasRequest,
    60: admin.DescribeClusterRequest,
}
API_VERSIONS = 18


class Asked(NamedTuple):
    """The header of a request; `body` is the request, or None where this version is not offered."""

    api: int
    version: int
    correlation_id: int
    body: Any


def asked(data: bytes) -> Asked:
    """Decodes a request. Raises KeyError for a request that simulated brokers do not answer."""
    api, version, correlation_id = struct.unpack_from(">hhi", data)
    lowest, highest = VERSIONS[api]
    if not lowest <= version <= highest:
        return Asked(api, version, correlation_id, None)
    return Asked(api, version, correlation_id, _REQUESTS[api].decode(data, version=version, header=True))


def framed(request: Asked, answer: Any) -> bytes:
    """Encodes an answer of kafka-python with its header and its size."""
    flexible = request.api != API_VERSIONS and answer.flexible_version_q(request.version)
    return framed_parts(request, (bytes(answer.encode(version=request.version)),), flexible=flexible)


def framed_parts(request: Asked, parts: Sequence[bytes], *, flexible: bool) -> bytes:
    """Puts the header and the size before an answer that is encoded already."""
    tags = b"\0" if flexible else b""
    size = 4 + len(tags) + sum(map(len, parts))
    return b"".join((struct.pack(">ii", size, request.correlation_id), tags, *parts))


def uvarint(value: int) -> bytes:
    """Encodes an unsigned number in as few bytes as it needs."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(text: str) -> bytes:
    """Encodes a string of a flexible version."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _compact_numbers(numbers: Sequence[int]) -> bytes:
    return uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


class MetadataCodec:
    """Encodes answers to metadata requests, versions 9 to 12. Topics without a fault are encoded once."""

    def __init__(self, cluster_id: str, ports: Sequence[int]) -> None:
        brokers = b"".join(
            struct.pack(">i", node) + compact("127.0.0.1") + struct.pack(">i", port) + b"\0\0"
            for node, port in enumerate(ports, 1)
        )
        self._before = b"".join(
            (
                struct.pack(">i", 0),
                uvarint(len(ports) + 1),
                brokers,
                compact(cluster_id),
                struct.pack(">i", 1),
            )
        )
        self._topics: dict[str, bytes] = {}

    def answer(self, request: Asked, topics: Iterable[bytes]) -> bytes:
        """Returns the whole answer."""
        encoded = list(topics)
        after = struct.pack(">i", -(2**31)) if request.version <= 10 else b""
        return framed_parts(
            request, (self._before, uvarint(len(encoded) + 1), *encoded, after, b"\0"), flexible=True
        )

    def topic(self, version: int, one: ClusterTopic, *, stale: bool = False) -> bytes:
        """Encodes a topic. A stale answer names another leader of each partition, as after an election."""
        if stale or version < 10:
            return _topic(version, one, stale=stale)
        known = self._topics.get(one.name)
        if known is None:
            known = self._topics[one.name] = _topic(version, one, stale=False)
        return known

    def unknown(self, version: int, name: str) -> bytes:
        """Encodes a topic that does not exist."""
        ident = bytes(16) if version >= 10 else b""
        return struct.pack(">h", 3) + compact(name) + ident + b"\0\1" + struct.pack(">i", -(2**31)) + b"\0"


def _topic(version: int, one: ClusterTopic, *, stale: bool) -> bytes:
    parts = [struct.pack(">h", 0), compact(one.name)]
    if version >= 10:
        parts.append(one.id.bytes)
    parts += [bytes([one.internal]), uvarint(one.partitions + 1)]
    for partition in range(one.partitions):
        replicas = one.replicas(partition)
        leader = replicas[1] if stale else replicas[0]
        nodes = _compact_numbers(replicas)
        parts += [struct.pack(">hiii", 0, partition, leader, 0), nodes, nodes, b"\1\0"]
    parts.append(struct.pack(">i", -(2**31)) + b"\0")
    return b"".join(parts)


_EXPLICIT, _DEFAULT = 1, 5


class SettingsCodec:
    """Encodes answers about topic settings. Topics with the same settings share one encoding of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], bytes] = {}

    def result(self, version: int, one: ClusterTopic, keys: Sequence[str] | None, *, synonyms: bool) -> bytes:
        """Encodes the settings of a topic: these keys, or all of them."""
        known_by = (
            version,
            synonyms,
            tuple(keys) if keys is not None else None,
            *sorted(one.settings.items()),
        )
        found = self._known.get(known_by)
        if found is None:
            found = self._known[known_by] = _settings(version, one, keys, synonyms=synonyms)
        if version < 4:
            name = one.name.encode()
            return struct.pack(">hhbh", 0, -1, 2, len(name)) + name + found
        return struct.pack(">hbb", 0, 0, 2) + compact(one.name) + found


def _settings(version: int, one: ClusterTopic, keys: Sequence[str] | None, *, synonyms: bool) -> bytes:
    wanted = (
        TOPIC_DEFAULTS
        if keys is None
        else {key: TOPIC_DEFAULTS[key] for key in keys if key in TOPIC_DEFAULTS}
    )
    classes = admin.DescribeConfigsResponse.DescribeConfigsResult
    entry = classes.DescribeConfigsResourceResult
    configs = []
    for key, (default, kind) in wanted.items():
        value = one.settings.get(key, default)
        source = _EXPLICIT if key in one.settings else _DEFAULT
        also = [entry.DescribeConfigsSynonym(name=key, value=value, source=source)] if synonyms else []
        configs.append(
            entry(
                name=key,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=also,
                config_type=kind,
                documentation=None,
            )
        )
    result = classes(error_code=0, error_message=None, resource_type=2, resource_name="", configs=configs)
    answer = admin.DescribeConfigsResponse(throttle_time_ms=0, results=[result])
    encoded = bytes(answer.encode(version=version))
    # Behind throttle time, count, error, message, type and the empty name; before the tags of the answer.
    return encoded[4 + 1 + 2 + 1 + 1 + 1 : -1] if version >= 4 else encoded[4 + 4 + 2 + 2 + 1 + 2 :]
