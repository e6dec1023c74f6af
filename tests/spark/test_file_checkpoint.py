"""Checkpoints of a manifest on a real broker and real Spark, wherever the driver dies."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.spec.jobspec import JobExit
from runtime.driver.duties.checkpoint import EVERY
from runtime.files.backup import read_backup
from runtime.files.manifest import ManifestFolder
from runtime.lab.lab import Lab
from tests import checker
from tests.checker.reader import read as consume
from tests.records import create_topic
from tests.spark.exported import assert_equal, expected
from tests.spark.job import start_job
from tests.spark.test_files import copied, into_files, job_of

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_job_writes_checkpoints_and_its_readers_begin_there(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
):
    """It dies before the commit that names the checkpoint, and behind it. Then older commits are removed."""
    client = dict(lab.clusters["dc1"].client)
    topic, folder = fresh("long"), tmp_path / "lake"
    folder.mkdir()
    create_topic(client, topic, 2, config=checker.TOPIC_CONFIG)
    flow = into_files(fresh("flow"), [topic], folder, "raw")
    spec = job_of(lab, fresh("job"), [flow])
    log = folder / "_repl" / flow.name / "log"
    checker.write(client, topic, checker.Spec(records=300, large_every=0))
    job = start_job(spec, tmp_path)
    try:
        copied(job, client, topic, folder)
        assert job.stop() == JobExit.STOPPED, job.tail()
    finally:
        job.kill()
    grow(ManifestFolder(str(folder), flow.name))

    for failpoint in ("before_checkpoint", "after_checkpoint"):
        job = start_job(spec, tmp_path, environ={"REPL_FAILPOINT": failpoint})
        try:
            assert job.ended() != JobExit.STOPPED, job.tail()
        finally:
            job.kill()
        named = ManifestFolder(str(folder), flow.name).read().checkpoint
        assert (named is not None) == (failpoint == "after_checkpoint")
    assert named is not None
    before = read_backup(str(folder), flow.name)
    for path in log.iterdir():
        if path.name < f"{named.number:020d}.json":
            path.unlink()
    assert read_backup(str(folder), flow.name) == before

    checker.write(client, topic, checker.Spec(records=300, large_every=0))
    job = start_job(spec, tmp_path)
    try:
        copied(job, client, topic, folder)
        assert job.stop() == JobExit.STOPPED, job.tail()
    finally:
        job.kill()
    assert_equal(spec, flow.name, len(expected(consume(client, topic))))


def grow(manifest: ManifestFolder) -> None:
    """Adds as many commits as rounds without records of other partitions would."""
    state = manifest.read()
    for _ in range(EVERY):
        last = state.last
        assert last is not None
        now_ms = int(time.time() * 1000)
        manifest.add(
            state, replace(last, number=last.number + 1, at_ms=now_ms, positions=[], files=[], complete=False)
        )
