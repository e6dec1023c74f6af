"""Runs one-off Spark applications in a process of their own; request and outcome travel as files."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.model.diagnostic import Failure, error
from planner.workflows.interaction import ProgressHandler, SparkOutput
from runtime.contract.spec.jobspec import JobSpec


def on_spark(
    main: Path,
    request: bytes,
    prefix: str,
    progress: ProgressHandler,
    arguments: Sequence[str] = (),
    where: JobSpec | None = None,
) -> bytes:
    """Runs an application to its end and returns its outcome. It runs here, or where the job `where` runs.

    Lines that begin with `prefix` are reported. Failure when the application can't be started or dies.
    """
    from runtime.launch.command import run_once
    from runtime.launch.launcher import LaunchError

    with tempfile.TemporaryDirectory(prefix="repl-once-") as folder:
        asked, out = Path(folder) / "request.json", Path(folder) / "outcome.json"
        asked.write_bytes(request)
        try:
            run_once(
                main,
                ["--request", str(asked), "--out", str(out), *arguments],
                said=lambda line: progress(SparkOutput(line)),
                prefix=prefix,
                where=where,
            )
        except LaunchError as failure:
            for line in failure.log:
                progress(SparkOutput(f"  {line}"))
            raise Failure(error(failure.what, failure.way_out)) from None
        return out.read_bytes()
