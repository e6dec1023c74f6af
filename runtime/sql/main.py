"""Runs the Spark application that checks transforms, or tries one, with `--request FILE --out FILE`.

It exits with 0 whatever it found: the outcome is in the file.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

# Python puts a script's own folder first in the path; its modules must not be importable as top-level names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
try:
    import runtime.sql  # noqa: F401 - installed
except ModuleNotFoundError:
    sys.path.insert(0, str(_HERE.parents[1]))

from pyspark import SparkConf, SparkContext  # noqa: E402

from runtime.contract.results.transforms import (  # noqa: E402
    CheckRequest,
    SqlOutcome,
    TryRequest,
    decode_request,
    decode_results,
    encode,
)
from runtime.sql.check import problems, run_trial  # noqa: E402
from runtime.sql.query import SETTINGS, STANDING, session_of, standing_query  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks or tries the transforms of flows.")
    parser.add_argument("--request", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    request = decode_request(arguments.request.read_bytes())
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    context = SparkContext.getOrCreate(SparkConf().setAppName("repl: transforms"))
    context.setLogLevel("ERROR")
    arguments.out.write_bytes(encode(_outcome(context, request)))


def _outcome(context: SparkContext, request: CheckRequest | TryRequest) -> SqlOutcome:
    transforms = (
        request.transforms if isinstance(request, CheckRequest) else {request.flow: request.transform}
    )
    session = session_of(context, SETTINGS)
    files = request.files if isinstance(request, CheckRequest) else {}
    refusals = [
        problem
        for flow, spec in transforms.items()
        for problem in problems(session, flow, spec, files.get(flow))
    ]
    if refusals or isinstance(request, CheckRequest):
        return SqlOutcome(refusals)
    collect = functools.partial(run_trial, encode(request))
    (answer,) = standing_query(session_of(context, STANDING), request.transform, collect)
    return SqlOutcome([], decode_results(answer))


if __name__ == "__main__":
    main()
