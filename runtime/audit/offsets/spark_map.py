"""The offset map of a flow as a Spark DataFrame, for whoever wants to join or count with it.

The ledger is read where this is called, some bytes for each run of records; executors unfold them. What one
transaction committed is there whole or not at all; call again for what came since.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from runtime.audit.ledger import Reach, open_ledger
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
    """A row for each run: `records` records lie side by side from `source_offset` on at the source and from
    `destination_offset` on at the destination, whose `bootstrap` and `client` settings these are. Source
    offsets in no row were not copied. Raises AuditFailure.
    """
    reach = Reach(bootstrap, bootstrap, client or {}, token_command=os.environ.get(TOKEN_COMMAND_VARIABLE))
    with ThreadPoolExecutor(1) as aside:  # a notebook has an event loop of its own in this thread
        stretches = aside.submit(asyncio.run, _stretches(reach, flow)).result()
    slices = max(1, len(stretches) // _SPANS_IN_A_TASK)
    rows = spark.sparkContext.parallelize(stretches, slices).flatMap(_rows)
    return spark.createDataFrame(rows, SCHEMA)


async def _stretches(reach: Reach, flow: str) -> list[Stretch]:
    async with open_ledger(reach) as opened:
        await opened.refresh(flow)
        progress = opened.ledger.all_progress(flow)
        return [
            (key.topic, key.partition, progress[key].destination_topic, span)
            for key, offsets in sorted(opened.maps.all(flow).items())
            for span in offsets.spans
        ]


def _rows(stretch: Stretch) -> Iterator[Row]:
    topic, partition, destination_topic, span = stretch
    for run in span.runs:
        yield (topic, partition, destination_topic, run.source, run.destination, run.records)
