"""This is the Spark application of `repl salvage --replay`, and with `--restore` that of `repl restore`.

`spark-submit … main.py --request … --out …` exits with 0 in every case: the outcome is in the file. A task
copies some partitions in its Python worker, as a slot does; no record ever crosses into the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    ReplayOutcome,
    ReplayRequest,
    decode_replayed,
    decode_replays,
    decode_request,
    encode_outcome,
    encode_part,
    encode_request,
)
from runtime.replay.restore import restore_partitions
from runtime.replay.restore_target import RestoreOutcome, RestorePartition, RestoreRequest, decode_restored
from runtime.replay.restore_target import decode_request as decode_restore
from runtime.replay.restore_target import encode_outcome as encode_restored
from runtime.replay.restore_target import encode_part as encode_restore_part
from runtime.replay.restore_target import encode_request as encode_restore
from runtime.replay.task import RESULT, replay_partitions, replay_partitions_with_sql
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression

_GROUPS_PER_CORE = 4  # groups of partitions, one Spark task each


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies what a flow left behind, or restores a backup.")
    parser.add_argument("--restore", action="store_true")
    for option in ("--request", "--out"):
        parser.add_argument(option, required=True, type=Path)
    arguments = parser.parse_args()
    text = arguments.request.read_bytes()
    done = (
        encode_restored(_restore_outcome(decode_restore(text)))
        if arguments.restore
        else encode_outcome(_outcome(decode_request(text)))
    )
    arguments.out.write_bytes(done)


def _outcome(request: ReplayRequest) -> ReplayOutcome:
    try:
        asyncio.run(_orphan_uncopied(request))
        return ReplayOutcome(parts=_replayed(request))
    except AuditFailure as failure:
        return ReplayOutcome(cluster=failure.cluster, why=failure.why)
    except FlowNotEnded as refused:
        return ReplayOutcome(refused=str(refused))
    except (Py4JError, PySparkException, RefusedExpression, BadSchema) as error:
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
    parts = [encode_part(part) for part in request.parts]
    if (transform := request.flow.transform) is not None:
        return _replayed_with_sql(request, transform, parts)
    task = functools.partial(replay_partitions, encode_request(request))
    done = _on_spark(f"repl salvage {request.flow.name}", parts, _GROUPS_PER_CORE, task)
    return [decode_replayed(one) for one in done]


def _replayed_with_sql(
    request: ReplayRequest, transform: TransformSpec, parts: Sequence[bytes]
) -> list[ReplayedPartition]:
    """Runs one query for each core: the worker that collects its answers replays some partitions."""
    from runtime.sql.query import standing_query  # most flows do not need Spark SQL

    text = encode_request(request)

    def replayed(context: SparkContext, some: Sequence[bytes]) -> list[ReplayedPartition]:
        token = secrets.token_hex(16)
        collect = functools.partial(replay_partitions_with_sql, text, some, token)
        return decode_replays(bytes(standing_query(context, transform, token, collect, f"{RESULT} BINARY")))

    with _context(f"repl salvage {request.flow.name}") as context:
        groups = min(len(parts), max(context.defaultParallelism, 1))
        with ThreadPoolExecutor(groups) as threads:
            work = [threads.submit(replayed, context, parts[first::groups]) for first in range(groups)]
            return [one for done in work for one in done.result()]


def _on_spark(
    name: str, parts: Sequence[bytes], per_core: int, task: Callable[[Iterable[bytes]], Iterator[bytes]]
) -> list[bytes]:
    """Runs a Spark job over the parts, in groups of neighbours, and returns what its tasks yield."""
    with _context(name) as context:
        groups = min(len(parts), context.defaultParallelism * per_core)
        spread = [part for first in range(groups) for part in parts[first::groups]]
        return list(context.parallelize(spread, groups).mapPartitions(task).collect())


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


def _restore_outcome(request: RestoreRequest) -> RestoreOutcome:
    try:
        state = request.backup
        backup = read_backup(state.folder, state.flow, state.commit, state.digest, state.client)
        parts = [encode_restore_part(part) for part in _restore_parts(request, backup)]
        task = functools.partial(restore_partitions, encode_restore(request))
        done = _on_spark(f"repl restore {state.flow}", parts, 1, task) if parts else []
        return RestoreOutcome(parts=[decode_restored(one) for one in done])
    except (ManifestProblem, EndpointUnavailable) as problem:
        return RestoreOutcome(unusable="the backup", why=str(problem), of_backup=True)
    except AuditFailure as failure:
        return RestoreOutcome(unusable=failure.cluster, why=failure.why)
    except (Py4JError, PySparkException) as error:
        return RestoreOutcome(unusable="Spark", why=_cause(error))


async def _settings(request: RestoreRequest) -> dict[str, dict[str, str]]:
    async with open_spec(request.cluster, request.name) as cluster:
        return await settings_of(
            cluster, request.name, [topic.into for topic in request.topics], ["max.message.bytes"]
        )


def _restore_parts(request: RestoreRequest, backup: Backup) -> list[RestorePartition]:
    """Returns the partitions, the largest first. Raises ManifestProblem, AuditFailure."""
    settings = asyncio.run(_settings(request))
    parts = []
    for one in request.topics:
        lineage = _lineage(backup, one.topic, one.topic_id)
        for partition, end in sorted(one.ends.items()):
            parts.append(
                RestorePartition(
                    topic=one.topic,
                    topic_id=one.topic_id,
                    into=one.into,
                    partition=partition,
                    end=end,
                    max_message_bytes=int(settings[one.into]["max.message.bytes"]),
                    files=files_up_to(lineage.files.get(partition, ()), end),
                )
            )
    return sorted(parts, key=lambda part: -sum(file.size for file in part.files))


def _lineage(backup: Backup, topic: str, topic_id: str) -> TopicLineage:
    for one in backup.lineages.get(topic, ()):
        if one.topic_id == topic_id:
            return one
    raise ManifestProblem(f"the backup holds no topic {topic} with the id {topic_id}: plan again")


if __name__ == "__main__":
    main()
