"""What the audit needs of Spark: the spec of a flow's job, and one-off applications.

The request and the outcome of a one-off application travel as files.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.model.diagnostic import Failure, error
from planner.model.observed import Unreachable
from planner.model.topology import Flow, Topology
from planner.workflows.interaction import ProgressHandler, SparkOutput
from planner.workflows.planning.plans import see
from runtime.contract.spec.jobspec import JobSpec


def job_spec(topology: Topology, flow: Flow, timeout_ms: int, progress: ProgressHandler) -> JobSpec:
    """Returns the spec of the flow's job: provenance resolved, clusters pinned, no secret.

    Both clusters of the flow must answer. Failure names the one that does not.
    """
    seen = see(topology, timeout_ms, progress=progress)
    for name in (flow.source_cluster, flow.destination_cluster):
        match seen.observed.clusters[name]:
            case Unreachable(why=why, way_out=way_out):
                raise Failure(error(f"{name} can't be read, and both sides are needed: {why}", way_out))
    for job in seen.desired.jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))


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
    from runtime.launch.launcher import LaunchError
    from runtime.launch.once import run_once

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
