"""Lints of jobs and flow states, from the topology alone.

A job has one destination, and its Spark ports have a shared secret. A reverse flow fits its original. Guards
judge the transitions of states later.
"""

from collections.abc import Iterator

from planner.model.address import flow_address, job_address
from planner.model.diagnostic import Diagnostic, ExitCode, error, note, warning
from planner.model.topology import RUNNING, Flow, Job, Topology

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
                f"give flow.{second} another job, or leave out job: the flow then runs in job {other}",
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
            f"{' and '.join(off)}: off; anything that connects to the ports of its driver and executors can "
            "read their data and run code in them",
            "remove it from conf; on a standalone cluster give Master, Workers and the job's machine "
            "a secret (docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-unauthenticated",
        )
    elif job.launcher == "standalone" and "spark.authenticate" not in settings:
        yield note(
            "the job starts only where spark-defaults.conf holds the secret of its standalone cluster",
            "write conf: {spark.authenticate: true} once Master, Workers and the job's machine have it "
            "(docs/launch.md, Between Spark's processes)",
            address=str(job_address(job.name)),
            source=job.source,
            code="spark-secret",
        )


def states(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each reverse flow that does not fit its original."""
    first: dict[str, str] = {}
    for flow in sorted(topology.flows.values(), key=lambda one: one.name):
        if flow.reverse_of is None:
            continue
        original = topology.flows.get(flow.reverse_of)
        if original is None:
            yield _refused(
                flow,
                f"reverses {flow.reverse_of}, and there is no such flow",
                "name in reverse_of the flow that it reverses, or remove this flow",
                "reverse-unknown",
            )
            continue
        yield from _pair(flow, original)
        if flow.reverse_of in first:
            yield _refused(
                flow,
                f"reverses {flow.reverse_of}, as {first[flow.reverse_of]} does already",
                "keep one of them",
                "reverse-twice",
            )
        first.setdefault(flow.reverse_of, flow.name)


def _pair(flow: Flow, original: Flow) -> Iterator[Diagnostic]:
    """Checks one reverse flow against its original."""
    if original.reverse_of is not None:
        yield _refused(
            flow,
            f"reverses {original.name}, which is a reverse flow itself",
            f"to fail over again, set the state of {original.reverse_of}",
            "reverse-of-reverse",
        )
    ends = (original.destination_cluster, original.source_cluster)
    if (flow.source_cluster, flow.destination_cluster) != ends:
        yield _refused(
            flow,
            f"does not reverse {original.name}: that goes from {ends[1]} to {ends[0]}",
            f"write from: {ends[0]} and to: {ends[1]}",
            "reverse-ends",
        )
    if original.state in RUNNING and flow.state in RUNNING:
        yield _refused(
            flow,
            f"reverses {original.name} while that is {original.state.value}: each would copy what the other"
            " wrote",
            f"set {original.name} to promoted or failed_over, or, once all records are copied back, set"
            " this flow to promoted",
            "reverse-running",
        )


def _refused(flow: Flow, what: str, way_out: str, code: str) -> Diagnostic:
    return error(
        f"flow.{flow.name} {what}",
        way_out,
        address=str(flow_address(flow.name)),
        source=flow.source,
        code=code,
        exit=ExitCode.REFUSED,
    )
