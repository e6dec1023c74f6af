"""Runs the Spark application of `repl verify`: `spark-submit … runtime/audit/verify/main.py --request … --out
…`.

It exits with 0 in every case: the outcome is in the file. One task compares one range of a partition in
its Python worker. Records of the source cross into the JVM only where the flow has a transform.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

# Python puts a script's own folder first in the path; its modules must not be importable as top-level names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
try:
    import runtime.audit  # noqa: F401 - installed
except ModuleNotFoundError:
    sys.path.insert(0, str(_HERE.parents[2]))

from py4j.protocol import Py4JError  # noqa: E402
from pyspark import SparkConf, SparkContext  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402

from runtime.audit.ledger import AuditFailure  # noqa: E402
from runtime.audit.verify.pieces import (  # noqa: E402
    VerificationOutcome,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
    decode_request,
    encode_outcome,
    encode_request,
)
from runtime.audit.verify.task import (  # noqa: E402
    RESULT,
    comparison_of,
    decode_verified,
    encode_pieces,
    verify_pieces,
    verify_pieces_with_sql,
)
from runtime.audit.verify.verification import Verification  # noqa: E402
from runtime.sql.functions import RefusedExpression  # noqa: E402

_REPORT_EVERY_S = 0.5
_PREFIX = "verify: "  # lines with this prefix are shown to the user of the command


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares both sides of a flow.")
    parser.add_argument("--request", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--book", type=Path, help="what was compared so far")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    request = decode_request(arguments.request.read_bytes())
    verification: Verification | None = None
    try:
        verification = asyncio.run(Verification.begin(request, arguments.book, resume=arguments.resume))
        _compare(request, verification)
        outcome = VerificationOutcome(verified=verification.report())
    except AuditFailure as failure:
        outcome = VerificationOutcome(cluster=failure.cluster, why=failure.why, hint=failure.hint)
    except (Py4JError, PySparkException, RefusedExpression) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = (lines or [type(error).__name__])[0][:500]
        outcome = VerificationOutcome(
            cluster="Spark", why=why, hint="with --resume it goes on where it stood"
        )
    arguments.out.write_bytes(encode_outcome(outcome))
    if verification is not None and outcome.verified is not None and not outcome.verified.unread:
        verification.close()


def _compare(request: VerifyRequest, verification: Verification) -> None:
    """Runs one Spark job for each group, so that each result is stored as soon as it is known."""
    groups, left, reported = verification.groups, verification.left, 0.0
    if not left:
        return
    if verification.resumed:
        _report(verification.resumed_text)
    context = _context(request)
    tasks = min(max(context.defaultParallelism, 1), len(left))
    threads = ThreadPoolExecutor(tasks)
    try:
        compared = {threads.submit(_compared, context, request, tasks, group): group for group in left}
        for number, done in enumerate(as_completed(compared), len(groups) - len(left) + 1):
            verification.add(compared[done], done.result())
            if time.monotonic() - reported > _REPORT_EVERY_S or number == len(groups):
                reported = time.monotonic()
                _report(f"compared {number} of {len(groups)} stretches")
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        context.stop()


def _context(request: VerifyRequest) -> SparkContext:
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    conf = SparkConf().setAppName(f"repl verify {request.flow.name}")
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    return context


def _compared(
    context: SparkContext, request: VerifyRequest, tasks: int, group: list[VerificationPiece]
) -> list[VerifiedPiece]:
    encoded, pieces, transform = encode_request(request), encode_pieces(group), request.flow.transform
    if transform is None:
        work = functools.partial(verify_pieces, encoded, tasks)
        (verified,) = context.parallelize([pieces], 1).mapPartitions(work).collect()
        return decode_verified(verified)
    # Most flows do not need Spark SQL.
    from runtime.sql.query import STANDING, Output, output_of, session_of, standing_query

    collect = functools.partial(verify_pieces_with_sql, encoded, tasks, pieces)
    decoded = comparison_of(request).decoded
    output: Output = output_of(transform, decoded) if decoded is not None else "edits"
    session = session_of(context, STANDING)
    (verified,) = standing_query(session, transform, collect, f"{RESULT} BINARY", output)
    return decode_verified(bytes(verified))


def _report(text: str) -> None:
    sys.stderr.write(f"{_PREFIX}{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
