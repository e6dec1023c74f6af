"""This is the Spark application of `repl salvage --replay` and of `repl restore`.

`spark-submit … main.py --request … --out …` exits with 0 in every case: the outcome is in the file. A task
copies some partitions in its Python worker, as a slot does; no record ever crosses into the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runtime.audit.ledger import AuditFailure, as_audit_failure
from runtime.audit.partition_logs import open_spec, settings_of
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.transform import TransformSpec
from runtime.files.backup import Backup, TopicLineage, files_up_to, read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.ledger.positions import FlowNotEnded, leave_orphans
from runtime.replay.request import (
    CopyOutcome,
    ReplayRequest,
    RestorePartition,
    RestoreRequest,
    decode_all_copied,
    decode_copied,
    decode_request,
    encode_outcome,
    encode_part,
    encode_request,
)
from runtime.replay.task import RESULT, copy_partitions, copy_partitions_with_sql
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression

_REPLAYS_PER_CORE = 4  # groups of partitions, one Spark task each


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies what a flow left behind, or restores a backup.")
    for option in ("--request", "--out"):
        parser.add_argument(option, required=True, type=Path)
    arguments = parser.parse_args()
    outcome = _outcome(decode_request(arguments.request.read_bytes()))
    arguments.out.write_bytes(encode_outcome(outcome))


def _outcome(request: ReplayRequest | RestoreRequest) -> CopyOutcome:
    try:
        if isinstance(request, RestoreRequest):
            return CopyOutcome(parts=_restored(request))
        asyncio.run(_orphan_uncopied(request))
        return CopyOutcome(parts=_replayed(request))
    except AuditFailure as failure:
        return CopyOutcome(unusable=failure.cluster, why=failure.why)
    except FlowNotEnded as refused:
        return CopyOutcome(refused=str(refused))
    except (ManifestProblem, EndpointUnavailable) as problem:
        return CopyOutcome(refused=f"the backup: {problem}")
    except (Py4JError, PySparkException, RefusedExpression, BadSchema) as error:
        return CopyOutcome(unusable="Spark", why=_cause(error))


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
    parts = [encode_part(part) for part in request.parts]
    with _context(f"repl salvage {request.flow.name}") as context:
        if (transform := request.flow.transform) is not None:
            return _replayed_with_sql(context, request, transform, parts)
        return _on_spark(context, request, parts, _REPLAYS_PER_CORE)


def _restored(request: RestoreRequest) -> list[ReplayedPartition]:
    parts = [encode_part(part) for part in _restore_parts(request)]
    if not parts:
        return []
    with _context(f"repl restore {request.backup.flow}") as context:
        return _on_spark(context, request, parts, 1)


def _replayed_with_sql(
    context: SparkContext, request: ReplayRequest, transform: TransformSpec, parts: Sequence[bytes]
) -> list[ReplayedPartition]:
    """Runs one query for each core: the worker that collects its answers replays some partitions."""
    from runtime.sql.query import STANDING, session_of, standing_query  # most flows do not need Spark SQL

    text = encode_request(request)

    def replay(some: Sequence[bytes]) -> list[ReplayedPartition]:
        collect = functools.partial(copy_partitions_with_sql, text, some)
        session = session_of(context, STANDING)
        (copied,) = standing_query(session, transform, collect, f"{RESULT} BINARY")
        return decode_all_copied(bytes(copied))

    groups = min(len(parts), max(context.defaultParallelism, 1))
    with ThreadPoolExecutor(groups) as threads:
        work = [threads.submit(replay, parts[first::groups]) for first in range(groups)]
        return [part for done in work for part in done.result()]


def _on_spark(
    context: SparkContext, request: ReplayRequest | RestoreRequest, parts: Sequence[bytes], per_core: int
) -> list[ReplayedPartition]:
    """Runs a Spark job over the parts, in groups of neighbours."""
    task = functools.partial(copy_partitions, encode_request(request))
    groups = min(len(parts), context.defaultParallelism * per_core)
    spread = [part for first in range(groups) for part in parts[first::groups]]
    return [decode_copied(done) for done in context.parallelize(spread, groups).mapPartitions(task).collect()]


@contextlib.contextmanager
def _context(name: str) -> Iterator[SparkContext]:
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    conf = SparkConf().setAppName(name)
    context = SparkContext.getOrCreate(conf.set("spark.ui.showConsoleProgress", "false"))
    context.setLogLevel("ERROR")
    try:
        yield context
    finally:
        context.stop()


async def _settings(request: RestoreRequest) -> dict[str, dict[str, str]]:
    async with open_spec(request.cluster, request.name) as cluster:
        return await settings_of(
            cluster, request.name, [topic.into for topic in request.topics], ["max.message.bytes"]
        )


def _restore_parts(request: RestoreRequest) -> list[RestorePartition]:
    """Returns the partitions, the largest first. Raises ManifestProblem, AuditFailure."""
    state = request.backup
    backup = read_backup(state.folder, state.flow, state.commit, state.digest, state.client)
    settings = asyncio.run(_settings(request))
    parts = []
    for topic in request.topics:
        lineage = _lineage(backup, topic.topic, topic.topic_id)
        for partition, end in sorted(topic.ends.items()):
            parts.append(
                RestorePartition(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    into=topic.into,
                    partition=partition,
                    end=end,
                    max_message_bytes=int(settings[topic.into]["max.message.bytes"]),
                    files=files_up_to(lineage.files.get(partition, ()), end),
                )
            )
    return sorted(parts, key=lambda part: -sum(file.size for file in part.files))


def _lineage(backup: Backup, topic: str, topic_id: str) -> TopicLineage:
    for lineage in backup.lineages.get(topic, ()):
        if lineage.topic_id == topic_id:
            return lineage
    raise ManifestProblem(f"the backup holds no topic {topic} with the id {topic_id}: plan again")


if __name__ == "__main__":
    main()
