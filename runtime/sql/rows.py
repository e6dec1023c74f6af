"""Defines the rows that a slot sends to Spark, and the columns that expressions may read. It is pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.transform import FIELDS, TransformSpec

# Raw bytes of the record; expressions read `value` and `key`, which are decoded from them.
VALUE, KEY = "__value", "__key"
COLUMNS = (
    (VALUE, "BINARY"),
    (KEY, "BINARY"),
    ("headers", "MAP<STRING, STRING>"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP"),
    ("timestamp_type", "INT"),
)
DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
ROWS = 512  # in each Arrow batch: Spark passes a batch on once it has so many rows
APPENDED = 1  # the timestamp type of a record with the broker's time


class SourceRow(NamedTuple):
    """A record of the source as expressions read it. The fields are those of COLUMNS, in their order."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, str | None]]
    topic: str
    partition: int
    offset: int
    timestamp: int | None  # microseconds since 1970
    timestamp_type: int


def row_of(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    *,
    appended: bool,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> SourceRow:
    """Returns the row of a record that was read without its batch: the last value of each header."""
    last = {name: content for name, content in headers if name != HEADER}
    return SourceRow(
        value,
        key,
        [
            (name, content.decode(errors="replace") if content is not None else None)
            for name, content in last.items()
        ],
        topic,
        partition,
        offset,
        timestamp_ms * 1000 if timestamp_ms >= 0 else None,
        APPENDED if appended else 0,
    )


def read_columns(transform: TransformSpec) -> frozenset[str]:
    """Returns the columns that the expressions may read; the others need not be sent.

    It goes by the names that occur in their texts, so it may name a column that is not read.
    """
    words = {word.lower() for text in transform.expressions for word in re.findall(r"\w+", text)}
    found = {name for name, _ in COLUMNS if name in words}
    if "key" in words or transform.key.format in FIELDS:
        found.add(KEY)
    return frozenset({*found, VALUE})
