"""Topics into an object store and back on real brokers, real Spark and a real S3 server."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.files import CompactionSpec, FilesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobExit
from runtime.lab.lab import Lab
from tests import checker
from tests.checker.reader import read as consume
from tests.commands import repl
from tests.records import create_topic, read, wait_for
from tests.s3 import ADMIN, SECRET, S3Server, s3_server
from tests.spark.exported import Line, assert_equal, expected, files_of, lines_of
from tests.spark.job import flow_of, start_job
from tests.spark.test_file_source import from_files
from tests.spark.test_files import job_of, why
from tests.spark.test_restore import contents
from tests.topologies import at, declared

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
_STARTS_S = 180


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Bucket:
    """A bucket with the files of two flows, and what a reader of it sees."""

    def __init__(self, server: S3Server, name: str, folder: Path) -> None:
        self.server, self.name = server, name
        self._folder = folder
        self._seen = 0

    def flow(self, name: str, topic: str, form: Any) -> FlowSpec:
        files = FilesSpec(
            endpoint=form,
            folder=f"s3a://{self.name}/{form}",
            client=self.server.settings,
            format=form,
            size_bytes=1 << 18,
            every_ms=300,
            snapshots_ms=1_000,
            compact=CompactionSpec(every_ms=100, below_bytes=1 << 18, retention_ms=86_400_000),
        )
        settings: dict[str, Any] = {"checkpoints_every_ms": None, "follow_every_ms": None}
        flow: FlowSpec = flow_of(name, [topic], destination="dc1", files=files, **settings)
        return flow

    def rows_into(self, name: str, topic: str) -> FlowSpec:
        """A flow of the rows of the bucket's objects below `in/`."""
        flow = from_files(name, topic, Path(), "parquet", recursive=True)
        assert flow.lines is not None
        folder, client = f"s3a://{self.name}/in", self.server.settings
        return replace(flow, lines=replace(flow.lines, folder=folder, client=client))

    def seen(self, form: str) -> Path:
        """A copy of what the bucket shows now."""
        self._seen += 1
        return self.server.download(self.name, f"{form}/", self._folder / f"seen-{self._seen}") / form

    def lines(self, form: str) -> list[Line]:
        """The records in the files that the bucket shows; some that were listed may be merged since."""
        try:
            return lines_of(self.seen(form))
        except self.server.gone:
            return []


def test_records_are_in_the_bucket_once_whatever_dies_and_come_back_from_it(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, server: S3Server
) -> None:
    """The bucket is made late, the driver is killed before and after a commit, and rights are withdrawn."""
    client = dict(lab.clusters["dc1"].client)
    topic, user = fresh("stored"), fresh("user")
    bucket = Bucket(server, fresh("bucket").lower().replace("_", "-"), tmp_path)
    create_topic(client, topic, 3, config=checker.TOPIC_CONFIG)
    environ = server.create_user(user) if server.has_users else ADMIN
    flows = [bucket.flow(fresh(form), topic, form) for form in ("raw", "parquet")]
    spec = job_of(lab, fresh("job"), flows)

    for failpoint in ("before_end:3", "after_end:2"):  # the first commit of a flow holds its positions
        checker.write(client, topic, checker.Spec(records=400, large_every=0))
        with start_job(spec, tmp_path, environ={**environ, "REPL_FAILPOINT": failpoint}) as job:
            if failpoint.startswith("before"):
                job.wait_for(lambda status: f"the bucket {bucket.name} is not there" in why(status))
                server.create_bucket(bucket.name)
            assert job.ended() != JobExit.STOPPED, job.tail()
        for form in ("raw", "parquet"):
            lines = bucket.lines(form)
            assert len(set(lines)) == len(lines)

    checker.write(client, topic, checker.Spec(records=400, large_every=0))
    with start_job(spec, tmp_path, environ=environ) as job:

        def copied() -> None:
            wanted = expected(consume(client, topic))
            wait_for(
                lambda: all(bucket.lines(form) == wanted for form in ("raw", "parquet")),
                _STARTS_S,
                about=job.tail,
            )

        copied()
        if server.has_users:
            with server.rights_checked():
                checker.write(client, topic, checker.Spec(records=100, large_every=0))
                job.wait_for(lambda status: "access denied" in why(status))
                states = {one.state for one in job.partitions().values()}
                assert PartitionState.RETRYING in states, states
            server.allow(user, bucket.name)
        with server.rights_checked():  # from here on with the documented rights, and no others
            checker.write(client, topic, checker.Spec(records=100, large_every=0))
            wait_for(
                lambda: {one.state for one in job.partitions().values()} == {PartitionState.CAUGHT_UP},
                _STARTS_S,
                about=job.tail,
            )
            job.wait_for(lambda status: not why(status))
        copied()
        merged = [one.name for form in ("raw", "parquet") for one in files_of(bucket.seen(form))]
        assert any(".m" in name for name in merged), merged
        assert job.stop() == JobExit.STOPPED, job.tail()
    staged = [name for name in server.objects(bucket.name) if "/staging/" in name]
    assert staged == []
    assert environ[SECRET] not in job.log.read_text() + spec_text(tmp_path)
    restored(lab, flows[0], topic, tmp_path, environ)


def test_rows_of_objects_arrive_in_a_topic(
    lab: Lab,
    fresh: Callable[[str], str],
    tmp_path: Path,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, topic = dict(lab.clusters["dc1"].client), fresh("arriving")
    bucket = Bucket(server, server.create_bucket(fresh("bucket").lower().replace("_", "-")), tmp_path)
    create_topic(client, topic)
    flow = bucket.rows_into(fresh("rows"), topic)
    spec = job_of(lab, fresh("job"), [flow])
    server.put(bucket.name, "in/eu/a.parquet", rows(1, 2))
    with start_job(spec, tmp_path, environ=ADMIN) as job:
        wait_for(lambda: arrived(client, topic) == [1, 2], _STARTS_S, about=job.tail)
        server.put(bucket.name, "in/b.parquet", rows(3))
        wait_for(lambda: arrived(client, topic) == [1, 2, 3], _STARTS_S, about=job.tail)
        assert job.stop() == JobExit.STOPPED, job.tail()
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)  # for verify, which runs in this process
    assert_equal(spec, flow.name, 3)
    assert ADMIN[SECRET] not in job.log.read_text() + spec_text(tmp_path)


def rows(*numbers: int) -> bytes:
    """A Parquet file."""
    content = io.BytesIO()
    pq.write_table(pa.table({"id": list(numbers)}), content)
    return content.getvalue()


def arrived(client: dict[str, Any], topic: str) -> list[int]:
    return [json.loads(record.value or b"")["id"] for record in read(client, topic)]


def spec_text(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.json"))


def restored(lab: Lab, flow: FlowSpec, topic: str, folder: Path, environ: dict[str, str]) -> None:
    """The backup comes back into dc2 with the same records, from a saved plan without a secret."""
    assert flow.files is not None
    topology = at(lab, flow.name, folder, ("dc1", "dc2"))
    endpoint = {"file": flow.files.folder, "format": "raw", "client": flow.files.client}
    topology.more = {"endpoints": {"raw": endpoint}, "flows": [declared(flow.name, topic, destination="raw")]}
    verified(flow, topology.write(), environ)
    plan = folder / "restore.plan"
    asked = ["--path", str(topology.file), "--to", "dc2", "--topics", topic, "--out", str(plan)]
    done = repl("restore", "raw", *asked, env=environ, timeout=120)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert environ[SECRET].encode() not in plan.read_bytes()
    done = repl("apply", str(plan), "--auto-approve", env=environ, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = consume(dict(lab.clusters["dc1"].client), topic)
    assert contents(consume(dict(lab.clusters["dc2"].client), topic)) == contents(wanted)


def verified(flow: FlowSpec, topology: Path, environ: dict[str, str]) -> None:
    """`repl verify` finds the bucket equal to the topic."""
    done = repl("verify", flow.name, str(topology), "--json", env=environ, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["equal"], done.stdout
