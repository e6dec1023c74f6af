"""Asking one broker: the newest version that both sides speak, and what the error numbers mean."""

from typing import Any

from kafka.errors import for_code

from planner.observe.wire import Connection, WireFailure

NONE = 0
UNKNOWN_TOPIC = 3
TOPIC_REFUSED = 29
CLUSTER_REFUSED = 31
NO_AUTHORIZER = 54


class Unreadable(WireFailure):
    """The broker answers, and does not tell: for want of a right, most often. The rest can still be read."""


def version_of(connection: Connection, request: Any, at_most: int, at_least: int = 0) -> int:
    version = connection.version(request, at_most, at_least)
    if version is None:
        name = request.__name__.removesuffix("Request")
        raise Unreadable(f"{connection.where} is too old: it does not know {name}")
    return version


def meaning(code: int, message: str | None = None) -> str:
    """`topic authorization failed`, and the broker's own words where it has some."""
    name = str(for_code(code).__name__).removesuffix("Error")
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return f"{words}: {message}" if message else words
