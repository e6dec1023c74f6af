"""Runs the Spark application of `repl verify`: `spark-submit … runtime/audit/verify/main.py --request … --out
…`.

One task compares one range of a partition.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import sys
import time
from pathlib import Path

# Python puts a script's own folder first in the path; its modules must not be importable as top-level names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
try:
    import runtime.audit  # noqa: F401 - installed
except ModuleNotFoundError:
    sys.path.insert(0, str(_HERE.parents[2]))

from runtime.audit.ledger import SparkOutcome  # noqa: E402
from runtime.audit.on_spark import (  # noqa: E402
    argument_parser,
    concurrent_tasks,
    results_of,
    run_application,
    show,
    spark_context,
)
from runtime.audit.verify.pieces import decode_request  # noqa: E402
from runtime.audit.verify.verification import Verification, compare_pieces  # noqa: E402
from runtime.contract.results.records import VerificationReport  # noqa: E402

_REPORT_EVERY_S = 0.5
_COMMAND = "verify"


def main() -> None:
    parser = argument_parser("Compares both sides of a flow.")
    parser.add_argument("--book", type=Path, help="what was compared so far")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    outcome = run_application(arguments, _verified)
    if arguments.book is not None and outcome.result is not None and not outcome.result.unread:
        arguments.book.unlink(missing_ok=True)


def _verified(arguments: argparse.Namespace) -> SparkOutcome[VerificationReport]:
    request = decode_request(arguments.request.read_bytes())
    verification = asyncio.run(Verification.begin(request, arguments.book, resume=arguments.resume))
    if verification.left:
        _compare(verification)
    return SparkOutcome(result=verification.report())


def _compare(verification: Verification) -> None:
    """Stores the result of each group as soon as it is known."""
    left, total, reported = verification.left, len(verification.groups), 0.0
    if verification.resumed:
        show(_COMMAND, verification.resumed_text)
    request = verification.request
    with spark_context(f"repl verify {request.flow.name}") as context:
        compare = functools.partial(compare_pieces, request, concurrent_tasks(context, left))
        results = results_of(context, compare, left, request.flow.transform, verification.comparison.decoded)
        # Where a result can't be stored, the groups that wait are not begun.
        with contextlib.closing(results):
            for done, (_, verified) in enumerate(results, total - len(left) + 1):
                verification.add(verified)
                if time.monotonic() - reported > _REPORT_EVERY_S or done == total:
                    reported = time.monotonic()
                    show(_COMMAND, f"compared {done} of {total} stretches")


if __name__ == "__main__":
    main()
