"""Which jobs live, by their heartbeats: also one whose heartbeat only another release can read."""

import pytest

from planner.observe import jobs
from planner.observe.jobs import read_jobs
from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobStatus, StatusKey

KEY = job_status.encode_key(StatusKey("job", "dc2"))
Values = list[tuple[bytes, bytes | None]]


class Log:
    """A status topic: what it holds, and what arrives while it is watched."""

    def __init__(self, held: bytes, *arriving: bytes) -> None:
        self._held, self._arriving = held, list(arriving)

    async def read_to_end(self) -> Values:
        return [(KEY, self._held)]

    async def read_more(self, _seconds: float) -> Values:
        return [(KEY, self._arriving.pop(0))] if self._arriving else []


def heartbeat(at_ms: int) -> bytes:
    return job_status.encode(JobStatus("dc2", "shop", "d", "running", at_ms, 0))


@pytest.mark.parametrize(
    ("log", "live", "unreadable"),
    [
        (Log(b"\x02one", b"\x02two"), True, True),
        (Log(b"\x02one"), False, True),
        (Log(heartbeat(1), b"\x02two"), True, True),  # another release took it over just now
        (Log(b"\x02one", heartbeat(2)), True, False),
        (Log(heartbeat(1)), False, False),
        (Log(heartbeat(1), heartbeat(2)), True, False),  # its clock is wrong
    ],
)
async def test_a_job_lives_that_sends_heartbeats_nobody_here_can_read(
    log: Log, live: bool, unreadable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("FRESH_MS", "SECOND_CHECK_S"):
        monkeypatch.setattr(jobs, constant, 0.05)

    (job,) = await read_jobs(log, "dc2", "shop", lambda: 1_000_000)

    assert (job.live, bool(job.unreadable)) == (live, unreadable)
