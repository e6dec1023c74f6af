"""Applies the transform of a flow to the records of a flow into files, as Spark evaluates it.

A value of JSON or Avro becomes its declared fields, after `set` and `drop`. Text and binary values stay
bytes. As in a flow between clusters, a tombstone always travels, a partition stops before a bad record, and
`on_filtered` decides whether a filtered record leaves a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from runtime.batch import BadRecord, BatchFailure, RecordSet
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import FIELDS, TransformSpec
from runtime.files.formats import ROWS_AT_ONCE, Row, rows_of, size_of
from runtime.sql.rows import DECODED, FLAG

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.sql.transformer import Evaluates

_WINDOW_BYTES: Final = 4 << 20  # of keys, values and headers that are evaluated at a time (R8)


class Window(NamedTuple):
    """Records that are evaluated together, and then those of them that are written.

    Everything below `through` is in `rows`, or does not travel. `failure` names what stands there: a bad
    record, or a batch that can't be read. `bytes` is the size of the batches that the records are of.
    `values` are the decoded values of the rows where the format has fields. `tombstones` of the rows are
    filtered records; `filtered` counts the filtered records that are not written.
    """

    rows: list[Row]
    through: int
    bytes: int = 0
    failure: BatchFailure | None = None
    values: pa.Array | None = None
    filtered: int = 0
    tombstones: int = 0


def windows(
    members: Iterable[RecordSet], where: TopicPartition, begin: int, unpacked_bytes: int
) -> Iterator[Window]:
    """Yields the records of batches from the offset `begin` on, at most ROWS_AT_ONCE at a time (R8).

    `unpacked_bytes` bounds the records of a batch.
    """
    rows: list[Row] = []
    held, size, through = 0, 0, begin
    for member in members:
        try:
            new_rows = rows_of(member, where, begin, unpacked_bytes)
        except BatchFailure as failure:
            yield Window(rows, through, size, failure)
            return
        while len(rows) + len(new_rows) > ROWS_AT_ONCE:
            room = ROWS_AT_ONCE - len(rows)
            rows += new_rows[:room]
            new_rows = new_rows[room:]
            yield Window(rows, new_rows[0][0].offset, size)
            rows, held, size = [], 0, 0
        rows += new_rows
        through = max(through, member.next_offset)
        held += sum(size_of(record) for record, _ in new_rows)
        size += member.size
        if len(rows) >= ROWS_AT_ONCE or held >= _WINDOW_BYTES:
            yield Window(rows, through, size)
            rows, held, size = [], 0, 0
    if rows:
        yield Window(rows, through, size)


class FileTransform:
    """Evaluates the transform of a flow into files by the query of its task."""

    def __init__(self, transform: TransformSpec, evaluator: Evaluates) -> None:
        from runtime.sql.transformer import Transformer  # most flows do not need Spark SQL

        self._has_fields = transform.value.format in FIELDS
        self._transformer = Transformer(transform, evaluator, edits=not self._has_fields)

    async def apply(self, where: TopicPartition, window: Window) -> Window:
        """Returns the window with the records that are written, up to the first bad one.

        Raises EvaluationEnded, RegistryUnavailable.
        """
        import pyarrow as pa

        if not window.rows:
            return window
        answers = await self._transformer.evaluate(
            [
                ConsumerRecord(where.topic, where.partition, *record, appended=bool(kind))
                for record, kind in window.rows
            ]
        )
        flags = answers.field(FLAG) if self._has_fields else answers
        kept: list[int] = []
        rows: list[Row] = []
        through, failure, filtered, tombstones = window.through, window.failure, 0, 0
        for at, ((record, kind), answer) in enumerate(zip(window.rows, flags.to_pylist(), strict=True)):
            outcome = self._transformer.outcome(record.key, record.value, record.headers, answer)
            if outcome.decision == "bad":
                through, failure = record.offset, BadRecord(where, record.offset, outcome.why)
                break
            if outcome.decision == "filtered":
                filtered += 1
                continue
            tombstones += outcome.decision == "tombstone"
            kept.append(at)
            rows.append((record._replace(value=outcome.value, headers=outcome.headers), kind))
        values = None
        if self._has_fields:
            values = answers.field(DECODED)
            values = values.take(pa.array(kept, pa.int64())) if len(kept) < len(window.rows) else values
        return Window(rows, through, window.bytes, failure, values, filtered, tombstones)
