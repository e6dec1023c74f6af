"""Tries a transform on some records: the same query, the same evaluation and the same edits as in a slot.

It runs in the place of the slot, as the collecting worker of the query. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from runtime.batch import PartitionLocation
from runtime.batch.selection import UnpackedRecord, unpacked_record, value_of
from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.trial_view import Decision, SampleRecord, TrialResult
from runtime.sql.request import TryRequest, decode_request, encode_results
from runtime.sql.transformer import Rejected, Transformer

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
    found: list[TrialResult] = []
    bad: Decision = "quarantined" if transform.quarantines else "stops"
    for (topic, partition, appended), some in groupby(records, _place):
        of = list(some)
        unpacked = [_unpacked(one) for one in of]
        where = PartitionLocation(topic, partition)
        for record, decided in zip(of, await transformer.decisions(unpacked, where, appended), strict=True):
            match decided:
                case Rejected(why):
                    found.append(TrialResult(record=record, decision=bad, why=why))
                case None:
                    found.append(TrialResult(record=record, decision="filtered"))
                case raw:
                    found.append(TrialResult(record=record, decision="travels", after=value_of(raw)))
    return found


def _place(record: SampleRecord) -> tuple[str, int, bool]:
    return record.topic, record.partition, record.appended


def _unpacked(record: SampleRecord) -> UnpackedRecord:
    headers = [(name.encode(), value) for name, value in record.headers]
    return unpacked_record(record.offset, record.timestamp_ms, record.key, record.value, headers)
