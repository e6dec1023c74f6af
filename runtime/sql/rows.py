"""Defines the rows that a slot sends to Spark, and the feeding worker that takes them from a socket.

The feeding worker and the slot's worker are in one Spark task. They meet at a socket in a folder of the
task's own, which only this user may enter.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

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
FLUSH = "__flush"  # whether Spark passes the answers to the rows before this one on
DDL = ", ".join(f"`{name}` {kind}" for name, kind in [*COLUMNS, (FLUSH, "BOOLEAN")])
ROWS = 1_024  # in each Arrow batch, at most
FLUSHED = 64 << 10  # bytes of answers that Spark passes on together, at most
APPENDED = 1  # the timestamp type of a record with the broker's time

# An answer begins with one of these. Behind TRAVELS stand the new values of the paths of `set`, sorted: each
# as NEXT and a JSON object with the one field NEW. It is null where an expression failed.
MISMATCH, TRAVELS, FILTERED = "b", "k", "f"
NEXT, NEW = "\n", "s"

# For files, an answer is a struct: one of these letters, or null, and the decoded value of a record that
# travels and is no tombstone.
FLAG, DECODED = "flag", "value"


_FIRST_WAIT_S, _LONGEST_WAIT_S, _PATIENCE_S = 0.005, 0.1, 60.0
_BUFFER = 1 << 20


def socket_file(token: str) -> Path:
    """Returns the socket of a task. `token` is random, so that no other user can make the folder first."""
    return Path(tempfile.gettempdir()) / f"repl-sql-{token}" / "rows"


def feed(token: str, inputs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches that the slot sends, until it closes the socket.

    An empty batch follows each of them: pyspark keeps the last bytes of a batch in its buffer until the next
    one is written.
    """
    import pyarrow as pa

    for _ in inputs:  # Spark expects that the input is read
        pass
    with _connected(socket_file(token)) as connection, connection.makefile("rb", _BUFFER) as stream:
        for batch in pa.ipc.open_stream(stream):
            yield batch
            yield batch.slice(0, 0)


def _connected(file: Path) -> socket.socket:
    """Connects to the slot, which may still be starting."""
    wait, deadline = _FIRST_WAIT_S, time.monotonic() + _PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(file))
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)
        else:
            return connection
