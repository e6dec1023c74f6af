"""Heartbeats: written at a flow's source, copied by the flow, so that their lag measures the link end to end.

All flows of a source write to one topic there. Each flow copies it to a topic of its own at the destination:
two flows between the same clusters would otherwise both write the same one.
"""

import msgspec

from runtime.contract import naming

_VERSION = b"\x01"


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    flow: str
    job: str
    source_cluster_id: str
    at_ms: int


def topic_there(flow: str) -> str:
    """What a flow calls its copy of the heartbeats at the destination."""
    return f"{naming.HEARTBEATS}.{flow}"


def encode_key(flow: str) -> bytes:
    return msgspec.json.encode(["heartbeat", flow])


def encode(heartbeat: Heartbeat) -> bytes:
    return _VERSION + msgspec.json.encode(heartbeat)


def decode(value: bytes) -> Heartbeat:
    if value[:1] != _VERSION:
        raise ValueError(f"heartbeat of version {value[:1].hex() or 'none'}, this runtime reads 01")
    return msgspec.json.decode(value[1:], type=Heartbeat)
