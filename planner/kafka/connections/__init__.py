"""Connections of the Kafka client (`runtime.kafka`) for code without an event loop, with errors for people.

librdkafka's DescribeConfigs can't ask for single keys and asks for every synonym besides: for 9,000 topics
3.8 s and 3.1 s of CPU, against 0.9 and 0.5 here for all keys and 0.3 and 0.1 for three.
"""

from planner.kafka.connections.connection import BlockingConnection
from planner.kafka.connections.failure import (
    Closed,
    NoAnswer,
    NoConnection,
    Refused,
    Unreadable,
    WireFailure,
)
from planner.kafka.connections.loop import LoopThread

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
