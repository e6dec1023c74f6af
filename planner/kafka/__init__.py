"""The control plane's clients: resolved settings in, quiet clients out. The one place that opens one."""

from planner.kafka.clients import admin, consumer, producer, raw_admin
from planner.kafka.endpoint import Endpoint
from planner.kafka.errors import Transient, explain, is_transient

__all__ = ["Endpoint", "Transient", "admin", "consumer", "explain", "is_transient", "producer", "raw_admin"]
