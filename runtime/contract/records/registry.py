"""Encodes the registry's entry of a mirror topic that a job created, in the planner's own format."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping

import msgspec

from runtime.contract.topic_ids import is_from_kafka

_VERSION = 1


def mirror_key(cluster: str, topic: str) -> bytes:
    """Returns the registry's key of a mirror topic."""
    return f"topic.{cluster}.{topic}".encode()


def mirror_entry(
    *,
    topology: str,
    flow: str,
    source: tuple[str, str],
    topic_id: bytes,
    partitions: int,
    config: Mapping[str, str],
    at_ms: int,
) -> bytes:
    """Encodes the entry of a mirror topic. `source` is the cluster's name and the topic's."""
    spec = {f"config.{key}": value for key, value in sorted(config.items())}
    spec["partitions"] = str(partitions)
    if is_from_kafka(topic_id):
        spec["id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    spec["source.cluster"], spec["source.topic"] = source
    return msgspec.json.encode(
        {
            "v": _VERSION,
            "topology": topology,
            "spec": spec,
            "protect": False,
            "on_remove": "keep",
            "origin": f"flow.{flow}",
            "created": True,
            "plan": "",
            "at": at_ms,
        }
    )
