"""Defines the request and the outcome of the replay application: files of JSON, and bytes for its tasks.

It is pure.
"""

from __future__ import annotations

import msgspec

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec
from runtime.contract.views.salvage_view import ReplayedPartition


class ReplayPartition(msgspec.Struct, frozen=True):
    """Describes a partition of the source that has orphans.

    `mirror` is the flow's name of its topic at the destination, `into` the topic that the records are copied
    to.
    """

    topic: str
    partition: int
    mirror: str
    into: str
    max_message_bytes: int
    begun: bool

    def key(self, flow: str) -> PartitionKey:
        return PartitionKey(flow, self.topic, self.partition)


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a replay. It holds no secret: clusters hold references, as in a job's spec.

    `bytes` is the approximate size of one transaction, in bytes at the source.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    parts: list[ReplayPartition]
    bytes: int = 2 << 20
    within_s: float = 10.0


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the copied partitions, or the cluster that could not be used, or why the replay was refused."""

    parts: list[ReplayedPartition] = []
    cluster: str = ""
    why: str = ""
    refused: str = ""


encode_request = msgspec.json.encode
encode_outcome = msgspec.json.encode
encode_part = msgspec.msgpack.encode
encode_replayed = msgspec.msgpack.encode
decode_request = msgspec.json.Decoder(ReplayRequest).decode
decode_outcome = msgspec.json.Decoder(ReplayOutcome).decode
decode_part = msgspec.msgpack.Decoder(ReplayPartition).decode
decode_replayed = msgspec.msgpack.Decoder(ReplayedPartition).decode
