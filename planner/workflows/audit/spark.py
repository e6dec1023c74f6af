"""A one-off Spark application of the audit: what it is asked and what it answers travel as files."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from planner.model.diagnostic import Failure, error
from runtime.contract.spec.jobspec import JobSpec


def on_spark(
    main: Path, request: bytes, prefix: str, words: Sequence[str] = (), where: JobSpec | None = None
) -> bytes:
    """Its outcome. What it says for people, in lines that begin with `prefix`, is passed on. Failure when it
    can't be started or dies.
    """
    from runtime.launch.launcher import LaunchError
    from runtime.launch.once import run_once

    with tempfile.TemporaryDirectory(prefix="repl-once-") as folder:
        asked, out = Path(folder) / "request.json", Path(folder) / "outcome.json"
        asked.write_bytes(request)
        try:
            run_once(
                main,
                ["--request", str(asked), "--out", str(out), *words],
                said=lambda line: click.echo(line, err=True),
                prefix=prefix,
                where=where,
            )
        except LaunchError as failure:
            for line in failure.log:
                click.echo(f"  {line}", err=True)
            raise Failure(error(failure.what, failure.way_out)) from None
        return out.read_bytes()
