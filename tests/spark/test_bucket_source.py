"""Objects of a bucket into topics, on a real broker, real Spark and a real S3 server: each line once."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import JobStatus
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.spec.jobspec import FlowSpec, JobExit
from runtime.contract.spec.launch import MetricsSpec
from runtime.lab.lab import Lab
from tests.records import create_topic, wait_for
from tests.s3 import ADMIN, SECRET, S3Server, s3_server
from tests.spark.exported import assert_equal
from tests.spark.job import Running, spec_of, start_job
from tests.spark.test_file_source import Inbox, Topic, from_files

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
_WITHIN_S = 180
FORMS = ("text", "json", "parquet")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Prefix(Inbox):
    """A prefix of a bucket that a flow reads."""

    def __init__(self, server: S3Server, bucket: str, form: str, topic: Topic, flow: FlowSpec) -> None:
        super().__init__(flow.name, topic)
        self.flow, self.bucket = flow, bucket
        self._server, self._prefix = server, f"{form}/"

    def put(self, name: str, text: str | bytes, *values: str) -> None:
        """Writes an object, from which these values are still to arrive."""
        content = text.encode() if isinstance(text, str) else text
        self._server.put(self.bucket, self._prefix + name, content)
        self.wanted += values


def rows(*numbers: int) -> tuple[bytes, list[str]]:
    """A Parquet file, and the values of its rows."""
    text = io.BytesIO()
    pq.write_table(pa.table({"id": list(numbers)}), text, row_group_size=500)
    return text.getvalue(), [f'{{"id":{number}}}' for number in numbers]


def refused(status: JobStatus, why: str) -> bool:
    """Whether all flows wait, for a reason with these words."""
    return len(status.flows) == len(FORMS) and all(why in one.why for one in status.flows)


@pytest.fixture
def inboxes(
    lab: Lab,
    fresh: Callable[[str], str],
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, Prefix]]:
    """Prefixes of a bucket that is not there yet, and topics at one broker."""
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)  # for verify, which runs in this process
    client, bucket = dict(lab.clusters["dc1"].client), fresh("bucket").lower().replace("_", "-")
    found: dict[str, Prefix] = {}
    for form in FORMS:
        topic = fresh(form)
        create_topic(client, topic, 2)
        made = from_files(fresh(form), topic, Path(), form, recursive=form == "text")
        assert made.lines is not None
        lines = replace(made.lines, endpoint=form, folder=f"s3a://{bucket}/{form}", client=server.settings)
        flow = replace(made, lines=lines)
        found[form] = Prefix(server, bucket, form, Topic(client, topic, 2), flow)
    yield found
    for one in found.values():
        one.topic.close()


def test_every_line_and_row_of_a_bucket_arrives_once_whatever_happens_to_it(
    lab: Lab,
    fresh: Callable[[str], str],
    tmp_path: Path,
    server: S3Server,
    inboxes: dict[str, Prefix],
) -> None:
    """The bucket is made late, a task dies in a transaction, the job is killed, objects change (R1, R4)."""
    text, documents, table = (inboxes[form] for form in FORMS)
    spec = spec_of(
        lab, fresh("job"), [one.flow for one in inboxes.values()], destination="dc1", metrics=MetricsSpec()
    )

    def started(**environ: str) -> Running:
        job = start_job(spec, tmp_path, environ={**ADMIN, **environ})
        for one in inboxes.values():
            one.job = job
        return job

    job = started(REPL_FAILPOINT="after_ledger:3")  # a task dies within its third transaction
    try:
        job.wait_for(lambda status: refused(status, f"the bucket {text.bucket} is not there: create it"))
        large = [f"line {number} {'x' * 1_000}" for number in range(10_000)]  # takes three transactions
        server.create_bucket(text.bucket)
        text.put("eu/large.log", "\n".join(large), *large)  # without a last line feed
        if server.takes_every_key:
            text.put("eu//odd.log", "a key that can't be read\n")
        text.put("_temporary/part.log", "not complete\n")
        wait_for(lambda: "decision=retry" in job.log.read_text(), _WITHIN_S, about=job.tail)
        wait_for(lambda: bool(text.topic.read()), _WITHIN_S, about=job.tail)
    finally:
        job.kill()  # kill -9 of the job and its tasks

    job = started()
    try:
        text.arrived()
        documents.put("a.jsonl", '{"id": 1}\n\n{"id": 2}', '{"id": 1}', '{"id": 2}')
        content, values = rows(*range(2_000))
        table.put("a.parquet", content, *values)
        table.put("_SUCCESS", "")
        for one in inboxes.values():
            one.arrived()
        text.awaited("eu/large.log", S.CAUGHT_UP, "")
        read = text.status("eu/large.log")
        assert read is not None
        assert (read.position, read.source_end, read.records) == (len("\n".join(large)),) * 2 + (10_000,)
        ignored = "1 objects whose keys have an empty part (//) in the bucket are not read"
        if server.takes_every_key:
            job.wait_for(lambda status: any(ignored in one for flow in status.flows for one in flow.notes))

        if server.has_users:  # another server than moto's always knows the credentials
            with server.rights_checked():
                job.wait_for(lambda status: refused(status, "the store refuses the credentials"))
        # An object that grew is read on; one that has other bytes waits.
        text.put("eu/large.log", "\n".join([*large, "more", "and more"]), "more", "and more")
        table.put("a.parquet", rows(7)[0])
        table.awaited("a.parquet", S.FILE_TRUNCATED, "does not hold the 2,000 rows that were read")
        for one in inboxes.values():
            one.arrived()
        assert job.stop() == JobExit.STOPPED, job.tail()
    finally:
        job.kill()
    table.put("a.parquet", content)
    for form, records in (("text", 10_002), ("json", 2), ("parquet", 2_000)):
        assert_equal(spec, inboxes[form].flow.name, records)
    written = job.log.read_text() + "".join(path.read_text() for path in tmp_path.glob("*.json"))
    assert ADMIN[SECRET] not in written
