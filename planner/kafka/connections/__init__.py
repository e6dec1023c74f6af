"""Connections of the Kafka client (`runtime.kafka`) for code without an event loop, with errors for users.

librdkafka's DescribeConfigs can't ask for single keys and always asks for every synonym. For 9,000 topics it
takes 3.8 s and 3.1 s of CPU. This client takes 0.9 and 0.5 s for all keys, 0.3 and 0.1 s for three.
"""

from planner.kafka.connections.connection import BlockingConnection, LoopThread
from planner.kafka.connections.failure import (
    Closed,
    NoAnswer,
    NoConnection,
    Refused,
    Unreadable,
    WireFailure,
)

__all__ = [
    "BlockingConnection",
    "Closed",
    "LoopThread",
    "NoAnswer",
    "NoConnection",
    "Refused",
    "Unreadable",
    "WireFailure",
]
