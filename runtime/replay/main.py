"""The Spark application of `repl salvage --replay`: `spark-submit … main.py --request … --out …`.

It ends with 0 whatever came of it: the outcome is in the file. A task copies some partitions in its Python
worker, as a slot does; no record ever crosses into the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runtime.audit.ledger import AuditFailure, telling
from runtime.audit.verify.logs import open_spec
from runtime.contract.views.salvage_view import ReplayedPart
from runtime.ledger.orphans import NotEnded, leave_orphans
from runtime.replay.request import (
    ReplayOutcome,
    ReplayRequest,
    decode_replayed,
    decode_request,
    encode_outcome,
    encode_part,
    encode_request,
)
from runtime.replay.task import run_task

_GROUPS = 4  # of partitions, for each core


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies what a flow left behind.")
    for option in ("--request", "--out"):
        parser.add_argument(option, required=True, type=Path)
    given = parser.parse_args()
    asked = decode_request(given.request.read_bytes())
    given.out.write_bytes(encode_outcome(_outcome(asked)))


def _outcome(asked: ReplayRequest) -> ReplayOutcome:
    try:
        asyncio.run(_let_go(asked))
        return ReplayOutcome(parts=_replayed(asked))
    except AuditFailure as failure:
        return ReplayOutcome(cluster=failure.cluster, why=failure.why)
    except NotEnded as refused:
        return ReplayOutcome(refused=str(refused))
    except (Py4JError, PySparkException) as error:
        return ReplayOutcome(cluster="Spark", why=_cause(error))


def _cause(error: Exception) -> str:
    """Java's own words, where there are some: they stand behind a colon in the second line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    java = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return next(java, lines[0])[:500]


async def _let_go(asked: ReplayRequest) -> None:
    """From here on the flow never sends them itself: what is replayed is on record as orphaned."""
    flow = asked.flow
    new = {part.key(flow.name): part.mirror for part in asked.parts if not part.begun}
    async with (
        open_spec(asked.source, flow.source) as source,
        open_spec(asked.destination, flow.destination) as destination,
    ):
        with telling(flow.destination):
            await leave_orphans(flow.name, source, destination, "replay", mirrors=new)


def _replayed(asked: ReplayRequest) -> list[ReplayedPart]:
    SparkContext._ensure_initialized()  # only then does a SparkConf know what was given
    conf = SparkConf().setAppName(f"repl salvage {asked.flow.name}")
    context = SparkContext.getOrCreate(conf.set("spark.ui.showConsoleProgress", "false"))
    context.setLogLevel("ERROR")
    try:
        parts = [encode_part(part) for part in asked.parts]
        groups = min(len(parts), context.defaultParallelism * _GROUPS)
        task = functools.partial(run_task, encode_request(asked))
        return [
            decode_replayed(one) for one in context.parallelize(parts, groups).mapPartitions(task).collect()
        ]
    finally:
        context.stop()


if __name__ == "__main__":
    main()
