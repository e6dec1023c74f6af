"""A driver that its supervisor started again: it gives way to another one, and to a stop by repl."""

import asyncio
import errno
import logging
import os
import socket
import stat
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobStatus, StatusKey
from runtime.contract.spec import jobspec, naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.driver import clusters
from runtime.driver.clusters import exit_after_restart
from runtime.driver.commands import RefusedCommand
from runtime.driver.flows.flows import FlowManager
from runtime.driver.job import JobRunner
from runtime.driver.process import SpecFile
from runtime.kafka.errors import Disconnected
from runtime.kafka.records import InternalRecord
from runtime.slot import log
from tests.fakes.internal_topics import InternalTopics
from tests.fakes.permits import settled

pytestmark = pytest.mark.slow

HERE = socket.gethostname()
GONE = 1 << 22  # no process has this number


def heartbeat(number: int, **more: Any) -> InternalRecord:
    given: dict[str, Any] = {"driver": "other", "state": "running", "host": "other", "process": 7, **more}
    status = JobStatus(job="dc2", topology="shop", at_ms=number, started_ms=0, **given)
    return InternalRecord(job_status.encode_key(StatusKey("job", "dc2")), job_status.encode(status))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_WATCH_S", 0.3)
    monkeypatch.setattr(clusters, "_WATCH_POLL_S", 0.02)


def ended(*records: InternalRecord, later: InternalRecord | None = None) -> JobExit | None:
    topics = InternalTopics({naming.STATUS: records})

    async def asked() -> JobExit | None:
        deciding = asyncio.create_task(exit_after_restart(topics, "dc2"))  # type: ignore[arg-type]
        await settled()
        if later is not None:
            topics.grow(naming.STATUS, later)
        return await deciding

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("last", "later", "how"),
    [
        (heartbeat(1), heartbeat(2), JobExit.FENCED),
        (heartbeat(1), None, None),  # the other one is dead, too
        (heartbeat(1, host=HERE, process=os.getpid()), heartbeat(2), JobExit.FENCED),
        (heartbeat(1, host=HERE, process=GONE), heartbeat(2), None),  # the driver that this one replaces
        (heartbeat(1)._replace(value=b"\x63"), heartbeat(2)._replace(value=b"\x63"), JobExit.FENCED),
        (heartbeat(1, state="stopped"), None, None),
        (heartbeat(1, state="stopped", stop_requested=True), None, JobExit.STOPPED),
    ],
    ids=[
        "runs elsewhere",
        "silent",
        "runs here",
        "the one before",
        "by a newer release",
        "shut down",
        "stopped by repl",
    ],
)
def test_a_restart_gives_way(last: InternalRecord, later: InternalRecord | None, how: JobExit | None) -> None:
    assert ended(last, later=later) == how


def test_a_job_that_never_reported_starts() -> None:
    assert ended() is None


def spec_of(launch: LaunchSpec, *clusters: str, bootstrap: str = "a:9092", slots: int = 1) -> JobSpec:
    return JobSpec(
        job="dc2",
        topology="shop",
        destination="dc2",
        clusters={name: ClusterSpec(bootstrap=bootstrap) for name in clusters},
        flows=[],
        slots=slots,
        launch=launch,
    )


def test_the_file_takes_the_new_flows_and_keeps_what_the_job_was_started_with(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    started = spec_of(LaunchSpec(), "dc1", "dc2", "dc3")
    launch = LaunchSpec(options={"python": "/tmp/evil"})
    edited = spec_of(launch, "dc1", "dc2", bootstrap="evil:9092", slots=3)
    SpecFile(file).keep(edited, started)
    assert jobspec.decode(file.read_bytes()) == spec_of(LaunchSpec(), "dc1", "dc2", slots=3)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = spec_of(LaunchSpec(), "dc2")
    with caplog.at_level(logging.INFO):
        SpecFile(tmp_path / "absent" / "spec.json").keep(spec, spec)
    (line,) = caplog.records
    assert "stays as it is" in str(log.fields_of(line)["message"])


def test_a_full_disk_leaves_the_file_as_it_was_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, spec = tmp_path / "spec.json", spec_of(LaunchSpec(), "dc2")
    file.write_bytes(b"before")

    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", is_full)
    SpecFile(file).keep(spec, spec)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {file: b"before"}


class DyingFlows:
    """The driver dies while the first flow of a new spec ends; the file is read as its restart reads it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.at_restart: list[JobSpec] = []

    async def apply_spec(self, _: JobSpec) -> None:
        self.at_restart.append(jobspec.decode(self.file.read_bytes()))
        raise Disconnected("dc2", "away", sent=False)


async def test_a_driver_that_dies_while_it_applies_a_spec_is_restarted_with_that_spec(tmp_path: Path) -> None:
    """What it refuses does not reach the file."""
    file = tmp_path / "spec.json"
    started = spec_of(LaunchSpec(), "dc1", "dc2")
    file.write_bytes(jobspec.encode(started))
    flows = DyingFlows(file)
    runner = JobRunner(started, {}, SpecFile(file))
    runner._flows = cast(FlowManager, flows)

    with pytest.raises(RefusedCommand):
        await runner._reconfigure(spec_of(LaunchSpec(), "dc2", bootstrap="evil:9092"))
    assert jobspec.decode(file.read_bytes()) == started
    edited = replace(started, metrics=None)
    with pytest.raises(Disconnected):
        await runner._reconfigure(edited)
    assert flows.at_restart == [edited]
