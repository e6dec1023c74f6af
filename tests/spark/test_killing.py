"""Whatever dies, nothing is lost, doubled or reordered, and nobody goes on copying (R1, R2, R3)."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runtime.contract.spec.jobspec import JobExit
from runtime.driver import leadership
from runtime.lab.lab import Lab
from tests import checker
from tests.processes import below, freeze, lives, thaw
from tests.records import create_topic, wait_for
from tests.spark.job import Running, flow_of, generations, spec_of, start_job

pytestmark = pytest.mark.spark
_STARTS_S = 180  # a job, or a slot
_STOPPED = """
import asyncio, os
from pyspark import SparkContext
from runtime.driver.application import start_application
from runtime.slot import log

async def main():
    application = start_application("stopped", None, None)
    SparkContext._active_spark_context._jsc.sc().stop()  # as a cluster does that ends the application
    await application.submit_round("slot", list, [b""])

log.start(os.environ)
asyncio.run(main())
"""


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(lives, processes))


def running(job: Running, slots: int = 1) -> None:
    """Every slot of this driver's has a worker that reports."""
    job.wait_for(
        lambda status: (
            [slot.state for slot in status.slots] == ["running"] * slots and status.process == job.driver.pid
        )
    )


def copies(job: Running) -> None:
    """Waits until records are copied now."""
    last = records(job)

    def grows() -> bool:
        nonlocal last
        before, last = last, records(job)
        return last > before

    wait_for(grows, _STARTS_S)


def records(job: Running) -> int:
    return sum(partition.records for partition in job.partitions().values())


def test_workers_and_drivers_die_and_a_driver_that_was_replaced_ends_for_good(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
):
    """Three lives of one job, with the same records all the time (R1, R2, R3, R10).

    The first loses a worker, and then its JVM. The second stands still like a machine that hangs, is replaced
    by the third, and wakes up. The third loses its driver.
    """
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    topic, flow = fresh("killed"), fresh("flow")
    create_topic(source, topic, 3, config=checker.TOPIC_CONFIG)
    spec = spec_of(lab, fresh("job"), [flow_of(flow, [topic])], slots=2)
    jobs: list[Running] = []
    with checker.writing(source, topic, checker.Spec(records=10**9, rate=200, large_every=0)) as writing:
        try:
            job = start_job(spec, tmp_path, "local[2,4]")  # this Spark repeats a task that failed
            jobs.append(job)
            running(job, 2)
            copies(job)

            # Fencing 3: what Spark repeats by itself carries a stale ticket and copies nothing.
            # Where it takes 5 s to begin, the driver has replaced the slot before.
            wait_for(lambda: end_of_killed_worker(job).startswith("retried"))
            assert_logged(job)

            before = below(job.pid)
            job.kill()  # the JVM
            wait_for(lambda: gone(before))

            old = start_job(spec, tmp_path)
            jobs.append(old)
            running(old, 2)
            copies(old)
            asleep = below(old.pid)
            freeze(asleep)
            number = generations(spec)[flow].number

            new = start_job(spec, tmp_path)
            jobs.append(new)
            running(new, 2)
            assert generations(spec)[flow].number > number
            copies(new)

            thaw(asleep)
            assert old.ended() == JobExit.FENCED, old.tail()
            wait_for(lambda: gone(asleep))
            copies(new)
            report = checker.compare(source, there, topic, written=writing.written, patience=120)
            assert report.clean, report

            before = below(new.pid)
            new.driver.kill()  # the Python driver
            new.ended()
            wait_for(lambda: gone(before))
        finally:
            for job in jobs:
                if job.process.poll() is None:
                    thaw(below(job.pid))
                job.kill()


def end_of_killed_worker(job: Running) -> str:
    """Kills the worker of slot 0, and returns why its attempt has ended, once the next one has reported."""
    reports = job.reports()
    psutil.Process(reports[0].process).kill()
    # Without a heartbeat for a while, a slot has no report.
    wait_for(lambda: 0 in (found := job.reports()) and found[0].attempt > reports[0].attempt, _STARTS_S)
    assert job.reports()[1].attempt == reports[1].attempt  # the other slot went on
    # A slot that waits for a core names that.
    status = job.wait_for(
        lambda status: status.slots[0].attempts > reports[0].attempt and status.slots[0].state == "running"
    )
    why = status.slots[0].why
    assert why.startswith(("retried", "replaced: no heartbeat for ")), why
    return why


def assert_logged(job: Running) -> None:
    """What the workers log is in the job's log, too."""
    log = job.log.read_text(errors="replace")
    of_driver = ("driver_started", "driver_leading", "flow_started", "flow_taken_over", "slot_resubmitted")
    for event in (*of_driver, "slot_started"):
        assert f" repl INFO {event} " in log, log[-5_000:]


@pytest.mark.long
def test_a_jvm_that_stands_still_takes_the_job_from_no_driver(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
):
    """For longer than the coordinator leaves the id to a driver that is silent (R10); the slot goes on, too.

    A slot without a core makes the driver ask the JVM every second.
    """
    source = dict(lab.clusters["dc1"].client)
    topic = fresh("paused")
    create_topic(source, topic, 3, config=checker.TOPIC_CONFIG)
    spec = spec_of(lab, fresh("job"), [flow_of(fresh("flow"), [topic])], slots=2)
    with checker.writing(source, topic, checker.Spec(records=10**9, rate=200, large_every=0)):
        job = start_job(spec, tmp_path, "local[1]")
        jvm = [psutil.Process(job.pid)]
        try:
            before = job.wait_for(
                lambda status: sorted(slot.state for slot in status.slots) == ["running", "unscheduled"]
            )
            copies(job)
            wait_for(lambda: len(job.partitions()) == 3, _STARTS_S)
            freeze(jvm)
            until_ms = int(time.time() * 1000) + leadership.TIMEOUT_MS + 5_000
            job.wait_for(lambda status: "JVM has not answered" in status.trouble, 60)
            job.wait_for(lambda status: status.at_ms > until_ms, 60)
            copies(job)
            thaw(jvm)
            job.wait_for(lambda status: not status.trouble, 60)
            assert job.wait_for(lambda status: status.at_ms > until_ms).driver == before.driver
            assert job.stop() == JobExit.STOPPED, job.tail()
        finally:
            thaw(jvm)
            job.kill()


def test_a_file_that_is_no_job_spec_is_said_and_not_tried_again(lab: Lab, tmp_path: Path):
    spec = spec_of(lab, "bad", [flow_of("f", ["t"], destination="dc1")])
    job = start_job(spec, tmp_path)
    assert job.ended() == JobExit.BAD_SPEC
    assert "the job's destination is dc2" in job.tail()


def test_a_driver_ends_with_an_application_that_spark_has_stopped():
    environ = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell"}
    command = [sys.executable, "-c", _STOPPED]
    ended = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=_STARTS_S, check=False
    )
    assert ended.returncode == JobExit.FAILED
    assert "Spark's application has ended: this driver ends" in ended.stderr
