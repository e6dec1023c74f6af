"""The outcome of a command's Spark application, as the command reads it."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import AnalysisException

from runtime.audit.ledger import AuditFailure, SparkOutcome
from runtime.audit.on_spark import run_application
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression

JAVA = "An error occurred while calling o1.collect.\n: java.io.IOException: no space left\n\tat java.base"


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (SparkOutcome(result=[3, 4]), SparkOutcome(result=[3, 4])),
        (SparkOutcome(why="the backup: it is gone"), SparkOutcome(why="the backup: it is gone")),
        (AuditFailure("dc1", "it does not answer", "is it up?"), ("dc1", "it does not answer", "is it up?")),
        (AnalysisException(JAVA), ("Spark", "java.io.IOException: no space left", "")),
        (BadSchema("no message\nCustomer"), ("Spark", "no message", "")),
        (RefusedExpression(""), ("Spark", "RefusedExpression", "")),
        (BadSchema("x" * 600), ("Spark", "x" * 500, "")),
    ],
)
def test_an_application_writes_what_became_of_it(
    tmp_path: Path,
    ended: SparkOutcome[list[int]] | Exception,
    outcome: SparkOutcome[list[int]] | tuple[str, str, str],
) -> None:
    def run(_: argparse.Namespace) -> SparkOutcome[list[int]]:
        if isinstance(ended, Exception):
            raise ended
        return ended

    if isinstance(outcome, tuple):
        cluster, why, hint = outcome
        outcome = SparkOutcome(cluster=cluster, why=why, hint=hint)
    assert run_application(argparse.Namespace(out=tmp_path / "out.json"), run) == outcome
    assert msgspec.json.decode((tmp_path / "out.json").read_bytes(), type=SparkOutcome[list[int]]) == outcome


def test_an_unexpected_error_is_no_outcome(tmp_path: Path) -> None:
    def run(_: argparse.Namespace) -> SparkOutcome[list[int]]:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        run_application(argparse.Namespace(out=tmp_path / "out.json"), run)
    assert not list(tmp_path.iterdir())
