"""Edge: makes the Kafka clients of the control plane from resolved settings.

Only this package opens a client. It maps the errors of both libraries to texts for users.
"""

from planner.kafka.admin_requests import ReassignmentFailure, move_replicas
from planner.kafka.clients import (
    ClusterEndpoint,
    Transient,
    admin,
    client_settings,
    consumer,
    explain,
    is_transient,
    producer,
    topic_id_text,
)
from runtime.kafka.confluent import acl_parts

__all__ = [
    "ClusterEndpoint",
    "ReassignmentFailure",
    "Transient",
    "acl_parts",
    "admin",
    "client_settings",
    "consumer",
    "explain",
    "is_transient",
    "move_replicas",
    "producer",
    "topic_id_text",
]
