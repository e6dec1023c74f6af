"""Reads the jobs of a destination: which jobs reported, whether they live, and which spec they run."""

import time
from collections.abc import Callable, Iterable

from planner.kafka.client import ClusterClient
from planner.kafka.log import JobStatusTable, ValueReader
from planner.model.observed import FRESH_MS, LiveJob
from runtime.contract.records import ledger
from runtime.contract.records.job_status import JobStatus
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import LEDGER, STATUS

# A job sends a heartbeat every second. A job that missed a few may have died just now: it is watched until a
# heartbeat arrives or the timeout passes. Clocks of machines differ, so a job that seems dead is watched too.
CERTAIN_MS = 3_000
SECOND_CHECK_S = 3.0


async def read_jobs(
    client: ClusterClient, topology: str, now_ms: Callable[[], int] | None = None
) -> tuple[LiveJob, ...]:
    """Returns every job that ever reported there, by name. Doubtful jobs of `topology` are checked again."""
    async with ValueReader(client, STATUS) as reader:
        table = JobStatusTable()
        table.update(await reader.read_to_end())
        now = now_ms() if now_ms is not None else time.time_ns() // 1_000_000
        age = {name: abs(now - status.at_ms) for name, status in table.jobs.items() if _runs(status)}
        uncertain = {
            name: table.jobs[name].at_ms
            for name, old in age.items()
            if old > CERTAIN_MS and table.jobs[name].topology == topology
        }
        live = {name for name, old in age.items() if old <= FRESH_MS and name not in uncertain}
        if uncertain:
            wait_s = max((FRESH_MS - age[name]) / 1000 for name in uncertain)
            live |= await _with_heartbeat(uncertain, table, reader, max(SECOND_CHECK_S, wait_s))
    return tuple(_live_job(status, client.name, table, live) for _, status in sorted(table.jobs.items()))


async def read_specs(client: ClusterClient) -> dict[str, JobSpec]:
    """Returns the spec of each job. A job whose spec this release can't read is left out."""
    table = JobStatusTable()
    async with ValueReader(client, STATUS) as reader:
        table.update(await reader.read_to_end())
    return {name: spec for name, spec in table.specs.items() if spec is not None}


async def read_generations(
    client: ClusterClient, flows: Iterable[str], partitions: int
) -> dict[str, ledger.Generation]:
    """Returns the newest generation in the ledger of each flow that was copied to this cluster before."""
    found: dict[str, ledger.Generation] = {}
    by_partition: dict[int, set[str]] = {}
    for flow in flows:
        by_partition.setdefault(ledger.partition_of(flow, partitions), set()).add(flow)
    for partition, wanted in sorted(by_partition.items()):
        async with ValueReader(client, LEDGER, partition) as reader:
            for stored, value in await reader.read_to_end():
                flow, generation = _generation(stored, value)
                if flow in wanted and generation is not None:
                    found[flow] = generation
    return found


def _generation(stored: bytes, value: bytes | None) -> tuple[str, ledger.Generation | None]:
    try:
        key = ledger.decode_key(stored)
        if isinstance(key, ledger.GenerationKey) and value is not None:
            return key.flow, ledger.decode_generation(value)
    except ledger.UnreadableRecord:
        pass  # written by a newer release: it is not interpreted
    return "", None


def _runs(status: JobStatus) -> bool:
    return status.state != "stopped"


async def _with_heartbeat(
    silent: dict[str, int], table: JobStatusTable, reader: ValueReader, seconds: float
) -> set[str]:
    """Returns the jobs that send a heartbeat while this waits. Their clocks do not matter."""
    beating: set[str] = set()
    deadline = time.monotonic() + seconds
    while beating < silent.keys() and (left := deadline - time.monotonic()) > 0:
        table.update(await reader.read_more(left))
        now = table.jobs
        beating = {name for name, at_ms in silent.items() if now[name].at_ms != at_ms and _runs(now[name])}
    return beating


def _live_job(status: JobStatus, cluster: str, table: JobStatusTable, live: set[str]) -> LiveJob:
    spec = table.specs.get(status.job)
    views = {view.flow: view for view in status.flows}
    ending = [
        flow.name
        for flow in (spec.flows if spec is not None else ())
        if flow.name in views and not views[flow.name].is_done_with(flow)
    ]
    return LiveJob(
        name=status.job,
        cluster=cluster,
        topology=status.topology,
        driver=status.driver,
        state=status.state,
        at_ms=status.at_ms,
        live=status.job in live,
        spec=spec,
        where=status.where,
        lag=table.lag(status.job),
        ending=tuple(ending),
    )
