"""The control plane's clients: resolved settings in, quiet clients out. The one place that opens one."""

from planner.kafka.clients import admin, consumer, producer, topic_id_text
from planner.kafka.endpoint import Endpoint
from planner.kafka.errors import Transient, explain, is_transient
from planner.kafka.raw import RawFailure, raw_admin

__all__ = [
    "Endpoint",
    "RawFailure",
    "Transient",
    "admin",
    "consumer",
    "explain",
    "is_transient",
    "producer",
    "raw_admin",
    "topic_id_text",
]
