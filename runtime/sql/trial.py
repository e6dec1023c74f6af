"""Tries a transform on some records: the same query, the same evaluation and the same edits as in a slot.

It runs in the place of the slot, as the collecting worker of the query. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.trial_view import Decision, SampleRecord, TrialResult
from runtime.sql.request import TryRequest, decode_request, encode_results
from runtime.sql.rows import SourceRow, row_of
from runtime.sql.transformer import InvalidValue, Transformer

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "results"


def run_trial(text: bytes, token: str, answers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the encoded results of a request. `answers` are Spark's answers to the rows of its records."""
    import pyarrow as pa

    asked = decode_request(text)
    assert isinstance(asked, TryRequest)
    found = encode_results(asyncio.run(_tried(asked, token, answers)))
    yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], [RESULT])


async def _tried(asked: TryRequest, token: str, answers: Iterable[pa.RecordBatch]) -> list[TrialResult]:
    from runtime.sql.evaluator import Evaluator

    evaluator = Evaluator(token, asked.transform, answers)
    serving = asyncio.create_task(evaluator.run())
    try:
        return await results(Transformer(asked.transform, evaluator), asked.transform, asked.records)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await evaluator.close()


async def results(
    transformer: Transformer, transform: TransformSpec, records: Iterable[SampleRecord]
) -> list[TrialResult]:
    """Returns what the transformer decides about the records, in their order. Raises EvaluationEnded."""
    asked = list(records)
    bad: Decision = "quarantined" if transform.quarantines else "stops"
    found: list[TrialResult] = []
    for record, answer in zip(asked, await transformer.answers([_row(one) for one in asked]), strict=True):
        try:
            after = transformer.new_value(record.value, answer) if record.value is not None else None
        except InvalidValue as error:
            found.append(TrialResult(record=record, decision=bad, why=str(error)))
            continue
        travels = after is not None or record.value is None  # a tombstone always travels
        found.append(TrialResult(record=record, decision="travels" if travels else "filtered", after=after))
    return found


def _row(record: SampleRecord) -> SourceRow:
    return row_of(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        appended=record.appended,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
