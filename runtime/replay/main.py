"""This is the Spark application of `repl salvage --replay` and of `repl restore`.

A task copies some partitions in its Python worker, as a slot does.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from collections.abc import Sequence

from runtime.audit.ledger import SparkOutcome
from runtime.audit.on_spark import argument_parser, results_of, run_application, spark_context
from runtime.contract.records.control import AssignedPartition
from runtime.contract.results.records import ReplayedPartition
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.ledger.positions import FlowNotEnded
from runtime.replay.replay import orphan_uncopied
from runtime.replay.request import (
    ReplayRequest,
    RestorePartition,
    decode_copied,
    decode_request,
    encode_parts,
)
from runtime.replay.restore import partitions_of
from runtime.replay.schemas import register_kept
from runtime.replay.task import copy_encoded

_REPLAYS_PER_CORE = 4  # groups of partitions, one Spark task each


def main() -> None:
    parser = argument_parser("Copies what a flow left behind, or restores a backup.")
    run_application(parser.parse_args(), _copied)


def _copied(arguments: argparse.Namespace) -> SparkOutcome[list[ReplayedPartition]]:
    encoded = arguments.request.read_bytes()
    request = decode_request(encoded)
    parts: Sequence[AssignedPartition | RestorePartition]
    try:
        if isinstance(request, ReplayRequest):
            asyncio.run(orphan_uncopied(request))
            asyncio.run(register_kept(request))
            parts, name = request.parts, f"repl salvage {request.flow.name}"
            transform, per_core = request.flow.transform, _REPLAYS_PER_CORE
        else:
            parts, name = partitions_of(request), f"repl restore {request.backup.flow}"
            transform, per_core = None, 1
    except FlowNotEnded as refused:
        return SparkOutcome(why=str(refused))
    except (ManifestProblem, EndpointUnavailable) as problem:
        return SparkOutcome(why=f"the backup: {problem}")
    if not parts:
        return SparkOutcome(result=[])
    with spark_context(name) as context:
        per_core = per_core if transform is None else 1
        groups = min(len(parts), max(context.defaultParallelism, 1) * per_core)
        spread = [encode_parts(parts[first::groups]) for first in range(groups)]
        copy = functools.partial(copy_encoded, encoded)
        results = dict(results_of(context, copy, spread, transform))
    return SparkOutcome(result=[part for number in range(groups) for part in decode_copied(results[number])])


if __name__ == "__main__":
    main()
