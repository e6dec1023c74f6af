"""Reads the jobs of a destination: which jobs reported, whether they live, and which spec they run."""

import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from planner.kafka.client import ClusterClient
from planner.kafka.log import ValueReader
from planner.model.observed import FRESH_MS, LiveJob
from runtime.contract.records import ledger
from runtime.contract.records.job_status import JobStatus, JobStatusTable
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import LEDGER, STATUS

# A job sends a heartbeat every second. A job that missed a few may have died just now: it is watched until a
# heartbeat arrives or the timeout passes. Clocks of machines differ, so a job that seems dead is watched too.
CERTAIN_MS = 3_000
SECOND_CHECK_S = 3.0


class StatusLog(Protocol):
    """Reads the newest values of the status topic."""

    async def read_to_end(self) -> list[tuple[bytes, bytes | None]]: ...

    async def read_more(self, seconds: float, /) -> list[tuple[bytes, bytes | None]]: ...


async def read_jobs(
    reader: StatusLog, cluster: str, topology: str, now_ms: Callable[[], int] | None = None
) -> tuple[LiveJob, ...]:
    """Returns every job that ever reported there, by name. Doubtful jobs of `topology` are checked again.

    How old a heartbeat is that this release can't read is not known: such a job lives where it sends another.
    """
    table = JobStatusTable()
    table.update(await reader.read_to_end())
    now = now_ms() if now_ms is not None else time.time_ns() // 1_000_000
    age = {name: abs(now - status.at_ms) for name, status in table.jobs.items() if _runs(status)}
    doubtful = {
        name for name, old in age.items() if old > CERTAIN_MS and table.jobs[name].topology == topology
    }
    live = {name for name, old in age.items() if old <= FRESH_MS} - doubtful
    if doubtful or table.unreadable:
        wait_s = max([SECOND_CHECK_S, *((FRESH_MS - age[name]) / 1000 for name in doubtful)])
        live |= await _with_heartbeat({*doubtful, *table.unreadable}, table, reader, wait_s)
    return tuple(_live_job(name, cluster, table, live) for name in sorted({*table.jobs, *table.unreadable}))


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
    generations: dict[str, ledger.Generation] = {}
    by_partition: dict[int, set[str]] = {}
    for flow in flows:
        by_partition.setdefault(ledger.partition_of(flow, partitions), set()).add(flow)
    for partition, wanted in sorted(by_partition.items()):
        async with ValueReader(client, LEDGER, partition) as reader:
            for stored, value in await reader.read_to_end():
                flow, generation = _generation(stored, value)
                if flow in wanted and generation is not None:
                    generations[flow] = generation
    return generations


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
    silent: Collection[str], table: JobStatusTable, reader: StatusLog, seconds: float
) -> set[str]:
    """Returns the jobs that send a heartbeat while this waits. Their clocks do not matter."""

    def heartbeat(job: str) -> int | bytes | None:
        status = table.jobs.get(job)
        if status is None:
            return table.unreadable[job][0]
        return status.at_ms if _runs(status) else None

    before = {job: heartbeat(job) for job in silent}
    beating: set[str] = set()
    deadline = time.monotonic() + seconds
    while beating < before.keys() and (left := deadline - time.monotonic()) > 0:
        table.update(await reader.read_more(left))
        beating = {job for job, older in before.items() if heartbeat(job) not in (older, None)}
    return beating


def _live_job(name: str, cluster: str, table: JobStatusTable, live: set[str]) -> LiveJob:
    spec, status = table.specs.get(name), table.jobs.get(name)
    if status is None:
        topology = spec.topology if spec is not None else ""
        why = f"its heartbeat is of another release ({table.unreadable[name][1]})"
        return LiveJob(name, cluster, topology, "", "", 0, name in live, spec, unreadable=why)
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
