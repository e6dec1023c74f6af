"""This module writes messages for operators to the application's log, beside Spark's own lines."""

from runtime.slot.log import log_event


def log_driver_message(text: str) -> None:
    """Logs one message."""
    log_event("driver_message", key=text, message=text)
