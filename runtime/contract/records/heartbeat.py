"""Heartbeats are written at a flow's source and copied by the flow: their lag measures the whole link.

All flows of a source write to one topic there. Each flow copies it to a topic of its own at the destination:
two flows between the same clusters would otherwise both write the same one.
"""

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming

_VERSION = b"\x01"


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the flow and the job that wrote it, the source's cluster id, and the time of writing in ms."""

    flow: str
    job: str
    source_cluster_id: str
    at_ms: int


class UnreadableHeartbeat(UnreadableValue):
    """The heartbeat has a version or a form that this runtime can't read."""


def topic_there(flow: str) -> str:
    """Returns the name of a flow's copy of the heartbeats at the destination."""
    return f"{naming.HEARTBEATS}.{flow}"


def encode_key(flow: str) -> bytes:
    return msgspec.json.encode(["heartbeat", flow])


def encode(heartbeat: Heartbeat) -> bytes:
    return _VERSION + msgspec.json.encode(heartbeat)


def decode(value: bytes) -> Heartbeat:
    if value[:1] != _VERSION:
        raise UnreadableHeartbeat(f"heartbeat of version {value[:1].hex() or 'none'}, this runtime reads 01")
    try:
        return record_values.decode(_heartbeat, value[1:])
    except UnreadableValue as error:
        raise UnreadableHeartbeat(f"heartbeat: {error}") from error


_heartbeat = msgspec.json.Decoder(Heartbeat)
