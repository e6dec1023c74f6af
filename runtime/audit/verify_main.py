"""The Spark application of `repl verify`: `spark-submit … runtime/audit/verify_main.py --request … --out …`.

It ends with 0 whatever it found: the outcome is in the file. One task compares one stretch of a partition in
its Python worker; no record ever crosses into the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import threading
import time
from pathlib import Path

# A script's own folder comes first in the path, and the modules in it are not meant as top-level names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
try:
    import runtime.audit  # noqa: F401 - installed
except ModuleNotFoundError:
    sys.path.insert(0, str(_HERE.parent.parent))

from py4j.protocol import Py4JError  # noqa: E402
from pyspark import SparkConf, SparkContext  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402

from runtime.audit.ledger import AuditFailure  # noqa: E402
from runtime.audit.verify_plan import Planned, grouped, plan  # noqa: E402
from runtime.audit.verify_request import (  # noqa: E402
    Outcome,
    PieceVerified,
    VerifyRequest,
    decode_request,
    encode_outcome,
    encode_request,
)
from runtime.audit.verify_result import results  # noqa: E402
from runtime.audit.verify_task import decode_verified, encode_pieces, run_task  # noqa: E402
from runtime.contract.seen_verify import Verified  # noqa: E402

_LOOK_S = 0.5
_SAID = "verify: "  # what begins so is for the person who waits


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares both sides of a flow.")
    parser.add_argument("--request", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    asked = decode_request(arguments.request.read_bytes())
    arguments.out.write_bytes(encode_outcome(_outcome(asked)))


def _outcome(asked: VerifyRequest) -> Outcome:
    at_ms, began = int(time.time() * 1000), time.monotonic()
    try:
        planned = asyncio.run(plan(asked))
    except AuditFailure as failure:
        return Outcome(cluster=failure.cluster, why=failure.why)
    try:
        pieces = _compared(asked, planned)
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return Outcome(cluster="Spark", why=(lines or [type(error).__name__])[0][:500])
    verified = Verified(
        flow=asked.flow.name,
        source=asked.flow.source,
        destination=asked.flow.destination,
        at_ms=at_ms,
        took_ms=round((time.monotonic() - began) * 1000),
        sample=asked.sample,
        partitions=results(planned, pieces),
    )
    return Outcome(verified=verified)


def _compared(asked: VerifyRequest, planned: list[Planned]) -> list[PieceVerified]:
    groups = [encode_pieces(group) for group in grouped(planned)]
    if not groups:
        return []
    SparkContext._ensure_initialized()  # only then does a SparkConf know what was given
    conf = SparkConf().setAppName(f"repl verify {asked.flow.name}")
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    try:
        tasks = min(max(context.defaultParallelism, 1), len(groups))
        ended = threading.Event()
        telling = threading.Thread(target=_tell, args=(context, len(groups), ended), daemon=True)
        telling.start()
        task = functools.partial(run_task, encode_request(asked), tasks)
        found = context.parallelize(groups, len(groups)).mapPartitions(task).collect()
        ended.set()
        telling.join()
    finally:
        context.stop()
    return [piece for group in found for piece in decode_verified(group)]


def _tell(context: SparkContext, stretches: int, ended: threading.Event) -> None:
    tracker, said = context.statusTracker(), 0
    while not ended.wait(_LOOK_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if done > said:
            said = done
            sys.stderr.write(f"{_SAID}compared {done} of {stretches} stretches\n")
            sys.stderr.flush()


if __name__ == "__main__":
    main()
