"""Guards of jobs and flows: they must not be another topology's, and must not hold a secret in text."""

from collections.abc import Iterator, Sequence

from planner.diff.destination_jobs import DestinationJobs, destination_jobs, wanted_jobs
from planner.model.address import Address, job_address
from planner.model.change import SENSITIVE, Change
from planner.model.desired import Desired, DesiredJob
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import Observed
from runtime.contract.client.redaction import secret_settings


def job_guards(desired: Desired, observed: Observed, changes: Sequence[Change]) -> Iterator[Diagnostic]:
    """Yields the refusals for the jobs that this plan changes."""
    addresses = {change.address for change in changes}
    found = destination_jobs(observed)
    for job, destination in wanted_jobs(desired):
        if job.address in addresses:
            yield from _secret_problems(job)
            if destination in found:
                yield from _owned_by_others(job, desired.topology, found[destination])


def _secret_problems(job: DesiredJob) -> Iterator[Diagnostic]:
    """Refuses secrets in a job's spec: it is kept in a file, in a plan, and in topics."""
    assert job.spec is not None
    if not job.needed:
        return
    if settings := secret_settings(job.spec.launch.conf):
        yield error(
            f"a job's settings stand in the plan and in topics, and {', '.join(settings)} holds a secret",
            "keep it on the machines that run the job (docs/launch.md, Secrets of Spark)",
            address=str(job.address),
            source=job.job.source or job.source,
            code="job-secret",
        )
    for name, cluster in sorted(job.spec.clusters.items()):
        keys = [key for key, value in sorted(cluster.client.items()) if value == SENSITIVE]
        if keys:
            yield error(
                f"a job is told how to reach {name} without secrets, and {', '.join(keys)} is written out",
                "write it as {env: VARIABLE} or {file: PATH}, which the job resolves where it runs",
                address=str(job.address),
                source=job.source,
                code="job-secret",
            )


def _owned_by_others(job: DesiredJob, topology: str, known_jobs: DestinationJobs) -> Iterator[Diagnostic]:
    """Refuses jobs and flows whose names another topology uses at the destination."""
    live = known_jobs.job(job.job.name)
    if live is not None and live.live and live.topology != topology:
        yield _refused(job_address(live.name), live.topology, job, "run by")
    elif (entry := known_jobs.job_entry(job.job.name)) is not None and entry.topology != topology:
        yield _refused(entry.address, entry.topology, job, "owned by")
    for name in job.flows:
        entry = known_jobs.flow_entry(name)
        if entry is not None and entry.topology != topology:
            yield _refused(entry.address, entry.topology, job, "owned by")


def _refused(address: Address, owner: str, job: DesiredJob, how: str) -> Diagnostic:
    destination = job.spec.destination if job.spec is not None else ""
    return error(
        f"{how} the topology {owner!r} at {destination}",
        f"give it another name here (a job: below jobs, and in its flows), or let {owner!r} stop it first",
        address=str(address),
        source=job.source,
        code="owned",
        exit=ExitCode.REFUSED,
    )
