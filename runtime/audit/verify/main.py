"""Runs the Spark application of `repl verify`: `spark-submit … runtime/audit/verify/main.py --request … --out
…`.

It exits with 0 whatever it found: the outcome is in the file. One task compares one range of a partition in
its Python worker. Records of the source cross into the JVM only where the flow has a transform.
"""

from __future__ import annotations

import argparse
import functools
import secrets
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
from runtime.audit.verify.plan import (  # noqa: E402
    SavedVerification,
    VerificationFile,
    begin,
    grouped,
    remaining,
    resumed,
)
from runtime.audit.verify.results import report  # noqa: E402
from runtime.audit.verify.task import (  # noqa: E402
    RESULT,
    decode_verified,
    encode_pieces,
    verify_pieces,
    verify_pieces_with_sql,
)
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
    asked = decode_request(arguments.request.read_bytes())
    book = VerificationFile(arguments.book)
    outcome = _outcome(asked, book, book.load() if arguments.resume else None)
    arguments.out.write_bytes(encode_outcome(outcome))
    if outcome.verified is not None and not outcome.verified.unread:
        book.close()


def _outcome(
    asked: VerifyRequest, book: VerificationFile, kept: SavedVerification | None
) -> VerificationOutcome:
    began = time.monotonic()
    try:
        begun = kept or begin(asked, book)
        pieces = _compared(asked, begun, book)
    except AuditFailure as failure:
        return VerificationOutcome(cluster=failure.cluster, why=failure.why, hint=failure.hint)
    except (Py4JError, PySparkException, RefusedExpression) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = (lines or [type(error).__name__])[0][:500]
        return VerificationOutcome(cluster="Spark", why=why, hint="with --resume it goes on where it stood")
    return VerificationOutcome(verified=report(asked, begun, pieces, time.monotonic() - began))


def _compared(asked: VerifyRequest, begun: SavedVerification, book: VerificationFile) -> list[VerifiedPiece]:
    """Runs one Spark job for each group, so that each result is stored as soon as it is known."""
    found, groups, reported = list(begun.pieces), grouped(begun.planned), 0.0
    if todo := remaining(groups, begun.pieces):
        if begun.pieces:
            _report(resumed(groups, todo))
        context = _context(asked)
        tasks = min(max(context.defaultParallelism, 1), len(todo))
        threads = ThreadPoolExecutor(tasks)
        try:
            ends = {threads.submit(_one, context, asked, tasks, group): group for group in todo}
            for number, end in enumerate(as_completed(ends), len(groups) - len(todo) + 1):
                book.add(ends[end], end.result())
                found += end.result()
                if time.monotonic() - reported > _REPORT_EVERY_S or number == len(groups):
                    reported = time.monotonic()
                    _report(f"compared {number} of {len(groups)} stretches")
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            context.stop()
    return found


def _context(asked: VerifyRequest) -> SparkContext:
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    conf = SparkConf().setAppName(f"repl verify {asked.flow.name}")
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    return context


def _one(
    context: SparkContext, asked: VerifyRequest, tasks: int, group: list[VerificationPiece]
) -> list[VerifiedPiece]:
    request, pieces, transform = encode_request(asked), encode_pieces(group), asked.flow.transform
    if transform is None:
        work = functools.partial(verify_pieces, request, tasks)
        (found,) = context.parallelize([pieces], 1).mapPartitions(work).collect()
        return decode_verified(found)
    from runtime.sql.query import Output, output_of, standing_query  # most flows do not need Spark SQL

    token = secrets.token_hex(16)
    collect = functools.partial(verify_pieces_with_sql, request, tasks, pieces, token)
    files = asked.flow.files
    output: Output = "edits"
    if files is not None and files.format != "raw":
        output = output_of(transform, files.format)
    found = standing_query(context, transform, token, collect, f"{RESULT} BINARY", output)
    return decode_verified(bytes(found))


def _report(text: str) -> None:
    sys.stderr.write(f"{_PREFIX}{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
