"""Defines the quarantine of a flow's transform: the topic beside a mirror, its settings and its records.

A quarantined record has the key, the value and the headers of the source's record, byte by byte. Headers of
this module follow them. Its timestamp is the time of the quarantine, so that the topic's retention counts
from then. It is written in the transaction that moves the flow's position past the record: exactly once.
"""

from collections.abc import Iterator

SUFFIX = ".quarantine"
PATTERN = r".*\.quarantine"

REASON = "repl.reason"
FLOW = "repl.flow"
TOPIC = "repl.topic"
PARTITION = "repl.partition"
OFFSET = "repl.offset"
TIMESTAMP = "repl.timestamp"  # of the record at the source, in ms since 1970

HEADER_ROOM = 64 << 10  # how much larger a record of the quarantine may be than one of the mirror
_LARGEST = "max.message.bytes"
_DEFAULT_LARGEST = 1_048_588

# Nothing is removed before an operator has decided. A topology that declares the topic may say otherwise.
SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
}


def quarantine_topic(mirror: str) -> str:
    """Returns the name of the quarantine topic of a mirror, at the same cluster."""
    return mirror + SUFFIX


def quarantine_origin(flow: str) -> str:
    """Returns the origin of a flow's quarantine topics in the registry."""
    return f"quarantine of flow.{flow}"


def quarantine_settings(largest: str | None) -> dict[str, str]:
    """Returns the settings of a new quarantine topic. `largest` is the mirror's max.message.bytes."""
    most = int(largest) if largest is not None and largest.isdecimal() else _DEFAULT_LARGEST
    return {**SETTINGS, _LARGEST: str(most + HEADER_ROOM)}


def quarantine_headers(
    reason: str, flow: str, topic: str, partition: int, offset: int, timestamp: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yields the headers of a quarantined record.

    No value of the record is among them, whatever the reason is.
    """
    for name, value in (
        (REASON, reason),
        (FLOW, flow),
        (TOPIC, topic),
        (PARTITION, str(partition)),
        (OFFSET, str(offset)),
        (TIMESTAMP, str(timestamp)),
    ):
        yield name.encode(), value.encode()
