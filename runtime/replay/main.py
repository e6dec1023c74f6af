"""This is the Spark application of `repl salvage --replay`: `spark-submit … main.py --request … --out …`.

It exits with 0 in every case: the outcome is in the file. A task copies some partitions in its Python worker,
as a slot does; no record ever crosses into the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runtime.audit.ledger import AuditFailure, as_audit_failure
from runtime.audit.partition_logs import open_spec
from runtime.contract.views.records_view import ReplayedPartition
from runtime.ledger.positions import FlowNotEnded, leave_orphans
from runtime.replay.request import (
    ReplayOutcome,
    ReplayRequest,
    decode_replayed,
    decode_request,
    encode_outcome,
    encode_part,
    encode_request,
)
from runtime.replay.task import replay_partitions

_GROUPS_PER_CORE = 4  # groups of partitions, one Spark task each


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies what a flow left behind.")
    for option in ("--request", "--out"):
        parser.add_argument(option, required=True, type=Path)
    arguments = parser.parse_args()
    request = decode_request(arguments.request.read_bytes())
    arguments.out.write_bytes(encode_outcome(_outcome(request)))


def _outcome(request: ReplayRequest) -> ReplayOutcome:
    try:
        asyncio.run(_orphan_uncopied(request))
        return ReplayOutcome(parts=_replayed(request))
    except AuditFailure as failure:
        return ReplayOutcome(cluster=failure.cluster, why=failure.why)
    except FlowNotEnded as refused:
        return ReplayOutcome(refused=str(refused))
    except (Py4JError, PySparkException) as error:
        return ReplayOutcome(cluster="Spark", why=_cause(error))


def _cause(error: Exception) -> str:
    """Returns Java's error message where there is one: it follows a colon in the second line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    java = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return next(java, lines[0])[:500]


async def _orphan_uncopied(request: ReplayRequest) -> None:
    """Records all uncopied source offsets as orphaned.

    From then on the flow never sends them itself: only the replay does.
    """
    flow = request.flow
    new = {part.key(flow.name): part.mirror for part in request.parts if not part.begun}
    async with (
        open_spec(request.source, flow.source) as source,
        open_spec(request.destination, flow.destination) as destination,
    ):
        with as_audit_failure(flow.destination):
            await leave_orphans(flow.name, source, destination, "replay", mirrors=new)


def _replayed(request: ReplayRequest) -> list[ReplayedPartition]:
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    conf = SparkConf().setAppName(f"repl salvage {request.flow.name}")
    context = SparkContext.getOrCreate(conf.set("spark.ui.showConsoleProgress", "false"))
    context.setLogLevel("ERROR")
    try:
        parts = [encode_part(part) for part in request.parts]
        groups = min(len(parts), context.defaultParallelism * _GROUPS_PER_CORE)
        task = functools.partial(replay_partitions, encode_request(request))
        return [
            decode_replayed(one) for one in context.parallelize(parts, groups).mapPartitions(task).collect()
        ]
    finally:
        context.stop()


if __name__ == "__main__":
    main()
