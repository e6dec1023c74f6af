"""A job from a job-spec file copies, on real Spark: once, in order, unchanged (R1, R2)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.lab.lab import Lab
from tests import checker
from tests.records import create_topic
from tests.spark.job import flow_of, spec_of, start_job

pytestmark = pytest.mark.spark


def test_records_arrive_and_only_python_workers_copy(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    source, there = (lab.clusters[name].client for name in ("dc1", "dc2"))
    topic, flow = fresh("orders"), fresh("flow")
    create_topic(source, topic, 3, config=checker.TOPIC_CONFIG)
    written = checker.write(source, topic, checker.Spec(records=1_000))
    job = start_job(spec_of(lab, fresh("job"), [flow_of(flow, [topic])]), tmp_path)
    try:
        job.wait_for(lambda status: bool(status.slots) and status.slots[0].state == "running")
        report = checker.compare(source, there, topic, written=written)
        assert report.clean, report
        assert job.stop() == 0, job.tail()
    finally:
        job.kill()
