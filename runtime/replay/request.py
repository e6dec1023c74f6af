"""What the replaying application is told, and what it tells: files of JSON, and bytes for its tasks. Pure."""

from __future__ import annotations

import msgspec

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec
from runtime.contract.views.salvage_view import ReplayedPart


class Part(msgspec.Struct, frozen=True):
    """A partition of the source that has orphans. `mirror` is what the flow calls its topic at the
    destination, `into` the topic that the records go to.
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
    """No secret is in it: clusters hold references, as in a job's spec. `bytes`: of about so many bytes at
    the source a transaction is made.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    parts: list[Part]
    bytes: int = 2 << 20
    within_s: float = 10.0


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Either what was done, or which cluster could not be used and why, or why the flow is not to be
    replayed.
    """

    parts: list[ReplayedPart] = []
    cluster: str = ""
    why: str = ""
    refused: str = ""


encode_request = msgspec.json.encode
encode_outcome = msgspec.json.encode
encode_part = msgspec.msgpack.encode
encode_replayed = msgspec.msgpack.encode
decode_request = msgspec.json.Decoder(ReplayRequest).decode
decode_outcome = msgspec.json.Decoder(ReplayOutcome).decode
decode_part = msgspec.msgpack.Decoder(Part).decode
decode_replayed = msgspec.msgpack.Decoder(ReplayedPart).decode
