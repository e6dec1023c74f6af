"""Lints of jobs: one destination for each job, and Spark ports without a shared secret."""

from collections.abc import Iterator

from planner.model.address import job_address
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.topology import Job, Topology

_SECURED = ("spark.authenticate", "spark.network.crypto.enabled")


def jobs(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for a job with several destinations: a transaction can't span clusters."""
    destinations: dict[str, dict[str, str]] = {}
    for flow in sorted(topology.flows.values(), key=lambda one: one.name):
        destinations.setdefault(flow.job, {}).setdefault(flow.destination_cluster, flow.name)
    for name, found in sorted(destinations.items()):
        if len(found) > 1:
            (one, first), (other, second), *_ = found.items()
            yield error(
                f"job {name} would write to {one} (flow.{first}) and to {other} (flow.{second}): a job"
                " has one destination",
                f"give flow.{second} another job, or leave job out: then it is {other}",
                address=str(job_address(name)),
                source=topology.flows[second].source,
                code="job-destinations",
            )
    for job in sorted(topology.jobs.values(), key=lambda one: one.name):
        yield from _unauthenticated(job)


def _unauthenticated(job: Job) -> Iterator[Diagnostic]:
    """Warns about Spark ports without authentication: whatever connects to them may run code in the job."""
    settings = {key: value.strip().lower() for key, value in job.conf.items()}
    off = [key for key in _SECURED if settings.get(key, "true") == "false"]
    if off:
        yield warning(
            f"{' and '.join(off)}: off; whatever reaches the ports of its driver and executors may read what "
            "they send, and run code in them",
            "take it out of conf; on a standalone cluster give Master, Workers and the job's machine "
            "a secret (docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-unauthenticated",
        )
    elif job.launcher == "standalone" and "spark.authenticate" not in settings:
        yield note(
            "it starts only where spark-defaults.conf has the secret of its standalone cluster",
            "write conf: {spark.authenticate: true} once Master, Workers and the job's machine have it "
            "(docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-secret",
        )
