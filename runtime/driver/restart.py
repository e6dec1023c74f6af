"""Decides whether a driver that its supervisor started again may run the job, and keeps its spec up to date.

While a machine was away, a standby may have started the job on another one. A restarted driver must not fence
a healthy driver there, and it must not bring back a job that repl stopped meanwhile. A driver that a command
or a standby starts fences any other one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from msgspec.structs import replace

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobStatus, UnreadableStatus
from runtime.contract.spec import jobspec, naming
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.records import InternalTopicScan
from runtime.slot.log import log_driver_message

_WATCH_S = 2.5  # heartbeats come once a second
_POLL_S = 0.25
_PROC = Path("/proc")


async def exit_after_restart(cluster: KafkaCluster, job: str) -> JobExit | None:
    """Returns how a restarted driver must end because the job was stopped or runs elsewhere, or None.

    It waits only where the last heartbeat may be of a driver that is still alive. Raises WireError.
    """
    scan = InternalTopicScan(cluster, naming.STATUS, 0)
    await scan.refresh()
    last = _status(scan, job)
    if last is None:
        return None
    if last.stop_requested:
        log_driver_message(f"the job {job} was stopped by repl: this start of it ends")
        return JobExit.STOPPED
    if _ended_here(last):
        return None
    key = job_status.encode_key(JobKey(job))
    seen, loop = scan.fold.offset(key), asyncio.get_running_loop()
    deadline = loop.time() + _WATCH_S
    while loop.time() < deadline:
        await asyncio.sleep(_POLL_S)
        await scan.refresh()
        if scan.fold.offset(key) != seen:
            now = _status(scan, job) or last
            where = f"pid {now.process} on {now.host}"
            log_driver_message(f"the job {job} runs as {where} by now: this start of it ends")
            return JobExit.FENCED
    return None


def _status(scan: InternalTopicScan, job: str) -> JobStatus | None:
    value = scan.fold.get(job_status.encode_key(JobKey(job)))
    try:
        return job_status.decode_job(value) if value is not None else None
    except UnreadableStatus:
        return None


def _ended_here(last: JobStatus) -> bool:
    """Returns whether the driver of the last heartbeat ran on this machine and has ended."""
    return last.host == socket.gethostname() and not (_PROC / str(last.process)).exists()


class SpecFile:
    """A SpecFile is the file that the job was started with, and that its next start uses.

    The command that changes a job may be called on another machine. So the driver itself writes the spec that
    it took over, for its supervisor. The clusters and the launch in the file never come from a record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, spec: JobSpec, started: JobSpec) -> None:
        """Writes the flows of `spec` with the clusters and the launch that the job was started with.

        A file that can't be written, as in a pod, stays as it is: the launcher there keeps the spec.
        """
        known = {name: one for name, one in started.clusters.items() if name in spec.clusters}
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(jobspec.encode(replace(spec, clusters=known, launch=started.launch)))
            new.replace(self._path)
        except OSError as error:
            log_driver_message(f"{self._path} stays as it is: {error.strerror or error}")
