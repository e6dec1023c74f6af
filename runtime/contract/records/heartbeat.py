"""Heartbeats are written at a flow's source and copied by the flow: their lag measures the whole link.

All flows of a source write to one topic there. Each flow copies it to a topic of its own at the destination:
two flows between the same clusters would otherwise both write the same one.
"""

import msgspec

from runtime.contract.records.record_values import RecordCodec
from runtime.contract.spec import naming


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the flow and the job that wrote it, the source's cluster id, and the time of writing in ms."""

    flow: str
    job: str
    source_cluster_id: str
    at_ms: int


def topic_there(flow: str) -> str:
    """Returns the name of a flow's copy of the heartbeats at the destination."""
    return f"{naming.HEARTBEATS}.{flow}"


def encode_key(flow: str) -> bytes:
    return msgspec.json.encode(["heartbeat", flow])


_heartbeat = RecordCodec[Heartbeat]("heartbeat", Heartbeat)
encode, decode = _heartbeat.encode, _heartbeat.decode
