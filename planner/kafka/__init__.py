"""The control plane's clients: resolved settings in, quiet clients out. The one place that opens one."""

from planner.kafka.clients import ClusterEndpoint, admin, consumer, producer, topic_id_text
from planner.kafka.errors import Transient, explain, is_transient
from planner.kafka.reassign import ReassignmentFailure, move_replicas

__all__ = [
    "ClusterEndpoint",
    "ReassignmentFailure",
    "Transient",
    "admin",
    "consumer",
    "explain",
    "is_transient",
    "move_replicas",
    "producer",
    "topic_id_text",
]
