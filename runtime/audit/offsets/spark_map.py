"""Returns the offset map of a flow as a Spark DataFrame, for joins and counts.

The ledger is read by the call, with some bytes for each run of records; executors expand them. The records of
one transaction are there completely or not at all; call again to read newer ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from runtime.audit.ledger import open_ledger
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.keys import TOKEN_COMMAND_VARIABLE
from runtime.contract.records.offset_map import Span

SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("destination_topic", StringType(), nullable=False),
        StructField("source_offset", LongType(), nullable=False),
        StructField("destination_offset", LongType(), nullable=False),
        StructField("records", LongType(), nullable=False),
    ]
)
_SPANS_IN_A_TASK = 64

Stretch = tuple[str, int, str, Span]
Row = tuple[str, int, str, int, int, int]


def offset_map(
    spark: SparkSession, bootstrap: str, flow: str, client: Mapping[str, str] | None = None
) -> DataFrame:
    """Returns a row for each run of records that are contiguous at both sides.

    A row stands for `records` records, from `source_offset` on at the source and from `destination_offset` on
    at the destination. `bootstrap` and `client` settings are those of the destination. Source offsets in no
    row were not copied. Raises AuditFailure.
    """
    reach = ClusterEndpoint(
        bootstrap, bootstrap, client or {}, token_command=os.environ.get(TOKEN_COMMAND_VARIABLE)
    )
    with ThreadPoolExecutor(1) as executor:  # in a notebook, this thread runs an event loop already
        stretches = executor.submit(asyncio.run, _stretches(reach, flow)).result()
    slices = max(1, len(stretches) // _SPANS_IN_A_TASK)
    rows = spark.sparkContext.parallelize(stretches, slices).flatMap(_rows)
    return spark.createDataFrame(rows, SCHEMA)


async def _stretches(reach: ClusterEndpoint, flow: str) -> list[Stretch]:
    async with open_ledger(reach) as opened:
        await opened.decided(flow)
        progress = opened.progress(flow)
        return [
            (
                key.topic,
                key.partition,
                progress[key].destination_topic,
                replace(span, encoded=span.encoded_runs()),  # executors can't read this process's files
            )
            for key, offsets in sorted(opened.all(flow).items())
            if not progress[key].map_name  # a file has no offsets
            for span in offsets.spans
        ]


def _rows(stretch: Stretch) -> Iterator[Row]:
    topic, partition, destination_topic, span = stretch
    for run in span.runs:
        yield (topic, partition, destination_topic, run.source, run.destination, run.records)
