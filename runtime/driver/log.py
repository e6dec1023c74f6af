"""Lines for people in the application's log, beside what Spark says there."""

from runtime.slot.log import log_event


def say(text: str) -> None:
    log_event("driver_message", key=text, message=text)
