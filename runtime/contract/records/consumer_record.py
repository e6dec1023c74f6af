"""Defines a record as a consumer reads it, of any topic. It is pure data."""

import msgspec


class ConsumerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds a committed record and its place.

    `timestamp` is in ms since 1970, -1 where the record has none; `appended` says that it is the broker's.
    `producer_id` is -1 for a producer without idempotence, and for a record from a file.
    """

    topic: str
    partition: int = 0
    offset: int = 0
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    producer_id: int = -1
    appended: bool = False

    @property
    def timestamp_ms(self) -> int | None:
        """Returns the timestamp, None where the record has none."""
        return self.timestamp if self.timestamp >= 0 else None
