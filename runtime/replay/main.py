"""This is the Spark application of `repl salvage --replay` and of `repl restore`.

A task copies some partitions in its Python worker, as a slot does.
"""

from __future__ import annotations

import argparse
import asyncio

from msgspec.structs import replace

from runtime.audit.ledger import SparkOutcome
from runtime.audit.on_spark import argument_parser, results_of, run_application, spark_context
from runtime.contract.results.records import ReplayedPartition
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.ledger.positions import FlowNotEnded
from runtime.replay.replay import orphan_uncopied
from runtime.replay.request import ReplayRequest, decode_request
from runtime.replay.restore import with_files
from runtime.replay.schemas import register_kept
from runtime.replay.task import copy_partitions

_REPLAYS_PER_CORE = 4  # groups of partitions, one Spark task each


def main() -> None:
    parser = argument_parser("Copies what a flow left behind, or restores a backup.")
    run_application(parser.parse_args(), _copied)


def _copied(arguments: argparse.Namespace) -> SparkOutcome[list[ReplayedPartition]]:
    request = decode_request(arguments.request.read_bytes())
    name, transform, per_core = "", None, 1
    try:
        if isinstance(request, ReplayRequest):
            asyncio.run(orphan_uncopied(request))
            asyncio.run(register_kept(request))
            name, transform = f"repl salvage {request.flow.name}", request.flow.transform
            per_core = _REPLAYS_PER_CORE if transform is None else 1
        else:
            request = with_files(request)
            name = f"repl restore {request.backup.flow}"
    except FlowNotEnded as refused:
        return SparkOutcome(why=str(refused))
    except (ManifestProblem, EndpointUnavailable) as problem:
        return SparkOutcome(why=f"the backup: {problem}")
    if not request.parts:
        return SparkOutcome(result=[])
    with spark_context(name) as context:
        groups = min(len(request.parts), max(context.defaultParallelism, 1) * per_core)
        spread = [replace(request, parts=request.parts[first::groups]) for first in range(groups)]
        results = dict(results_of(context, copy_partitions, spread, transform))
    return SparkOutcome(result=[part for number in range(groups) for part in results[number]])


if __name__ == "__main__":
    main()
