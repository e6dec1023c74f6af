"""Objects of a bucket into topics, on a real broker, real Spark and a real S3 server: each line once."""

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

from runtime.contract.records.control import AcceptLoss
from runtime.contract.records.job_status import JobStatus, PartitionStatus
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.spec.jobspec import FlowSpec, JobExit, JobSpec
from runtime.contract.spec.launch import MetricsSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import create_topic, wait_for
from tests.s3 import ADMIN, SECRET, S3Server, s3_server
from tests.spark.exported import assert_equal, verified
from tests.spark.job import Running, spec_of, start_job
from tests.spark.test_file_source import Topic, from_files

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
_WITHIN_S = 180
FORMS = ("text", "json", "parquet")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Inbox:
    """A prefix of a bucket that a flow reads, its topic, and the values that must be in the topic."""

    def __init__(self, server: S3Server, bucket: str, form: str, topic: Topic, flow: FlowSpec) -> None:
        self.server, self.bucket, self.prefix = server, bucket, f"{form}/"
        self.topic, self.flow = topic, flow
        self.wanted: list[str] = []
        self.job: Running | None = None

    def put(self, name: str, text: str | bytes, *values: str) -> None:
        """Writes an object, from which these values are still to arrive."""
        content = text.encode() if isinstance(text, str) else text
        self.server.put(self.bucket, self.prefix + name, content)
        self.wanted += values

    def delete(self, name: str) -> None:
        self.server.delete(self.bucket, self.prefix + name)

    def arrived(self) -> None:
        assert self.job is not None
        self.topic.holds(self.job, self.wanted)

    def status(self, name: str) -> PartitionStatus | None:
        assert self.job is not None
        states = self.job.partitions().values()
        return next((one for one in states if (one.flow, one.topic) == (self.flow.name, name)), None)

    def awaited(self, name: str, state: S, why: str) -> PartitionStatus:
        """Waits until the object has this state, for a reason with these words."""
        assert self.job is not None

        def entered() -> bool:
            status = self.status(name)
            return status is not None and status.state is state and why in status.why

        wait_for(entered, _WITHIN_S, about=self.job.tail)
        status = self.status(name)
        assert status is not None
        return status

    def accept_loss(self, name: str) -> None:
        assert self.job is not None
        status = self.status(name)
        assert status is not None
        command = f"accept-{name}-{status.since_ms}"
        self.job.tell(AcceptLoss(id=command, flow=self.flow.name, partitions=[(name, status.partition)]))


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
) -> Iterator[dict[str, Inbox]]:
    """Prefixes of a bucket that is not there yet, and topics at one broker."""
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)  # for verify, which runs in this process
    client, bucket = dict(lab.clusters["dc1"].client), fresh("bucket").lower().replace("_", "-")
    found: dict[str, Inbox] = {}
    for form in FORMS:
        topic = fresh(form)
        create_topic(client, topic, 2)
        made = from_files(fresh(form), topic, Path(), form, recursive=form == "text")
        assert made.lines is not None
        lines = replace(made.lines, endpoint=form, folder=f"s3a://{bucket}/{form}", client=server.settings)
        flow = replace(made, lines=lines)
        found[form] = Inbox(server, bucket, form, Topic(client, topic, 2), flow)
    yield found
    for one in found.values():
        one.topic.close()


def test_every_line_and_row_of_a_bucket_arrives_once_whatever_happens_to_it(
    lab: Lab,
    fresh: Callable[[str], str],
    tmp_path: Path,
    server: S3Server,
    inboxes: dict[str, Inbox],
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
        read = text.awaited("eu/large.log", S.CAUGHT_UP, "")
        assert (read.position, read.source_end, read.records) == (len("\n".join(large)),) * 2 + (10_000,)
        ignored = "1 objects whose keys have an empty part (//) in the bucket are not read"
        if server.takes_every_key:
            job.wait_for(lambda status: any(ignored in one for flow in status.flows for one in flow.notes))

        overwritten(text, large)
        while_the_store_refuses(job, server, text)
        deleted_unread(job, text)
        table.put("a.parquet", rows(7)[0])
        table.awaited("a.parquet", S.FILE_TRUNCATED, "does not hold the 2,000 rows that were read")
        text.delete("eu/large.log")  # it was read: it is forgotten
        wait_for(lambda: text.status("eu/large.log") is None, _WITHIN_S, about=job.tail)
        for one in inboxes.values():
            one.arrived()
        assert job.stop() == JobExit.STOPPED, job.tail()
    finally:
        job.kill()
    table.put("a.parquet", content)
    compared(spec, inboxes, tmp_path)
    written = job.log.read_text() + "".join(path.read_text() for path in tmp_path.glob("*.json"))
    assert ADMIN[SECRET] not in written


def overwritten(text: Inbox, large: list[str]) -> None:
    """An object that grew is read on; one that has other bytes waits until that is accepted."""
    text.put("eu/large.log", "\n".join([*large, "more", "and more"]), "more", "and more")
    text.put("short.log", "one\ntwo\n", "one", "two")
    text.arrived()
    text.put("short.log", "ONE\ntwo\nthree\n")
    text.awaited("short.log", S.FILE_TRUNCATED, "does not hold the 8 bytes that were read")
    text.put("other.log", "goes on\n", "goes on")
    text.arrived()
    text.wanted += ["ONE", "two", "three"]
    text.accept_loss("short.log")
    text.arrived()
    text.awaited("short.log", S.CAUGHT_UP, "")


def while_the_store_refuses(job: Running, server: S3Server, text: Inbox) -> None:
    """The store does not know the credentials for a while, and then does."""
    if server.has_users:  # another server than moto's always knows them
        with server.rights_checked():
            job.wait_for(lambda status: refused(status, "the store refuses the credentials"))
    text.put("later.log", "later\n", "later")
    text.arrived()


def deleted_unread(job: Running, text: Inbox) -> None:
    """An object of which nothing was read leaves no trace."""
    text.put("unread.log", b"\xff is no text\n")
    text.awaited("unread.log", S.RECORD_CORRUPT, "the line at byte 0 is not UTF-8")
    text.delete("unread.log")
    wait_for(lambda: text.status("unread.log") is None, _WITHIN_S, about=job.tail)


def compared(spec: JobSpec, inboxes: dict[str, Inbox], folder: Path) -> None:
    """`repl verify` finds all that is there equal, with the command, too; and an object that is not."""
    text, documents, table = (inboxes[form] for form in FORMS)
    assert_equal(spec, documents.flow.name, 2)
    assert_equal(spec, table.flow.name, 2_000)
    seen = {one.topic: one for one in verified(spec, text.flow.name).partitions}
    assert "unread.log" not in seen
    assert (seen["short.log"].compared, seen["later.log"].compared) == (3, 1)
    assert [one.why for one in seen["eu/large.log"].not_comparable] == ["the file is not there any more"]
    topology = topology_of(spec, documents, folder)
    done = repl("verify", documents.flow.name, str(topology), env=ADMIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Equal: 2 records compared" in done.stdout
    documents.put("a.jsonl", '{"id": 1}\n\n{"id": 3}')
    done = repl("verify", documents.flow.name, str(topology), env=ADMIN)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "it is not the file that was read: it was truncated or overwritten" in done.stdout
    done = repl("locate", documents.flow.name, "a.jsonl:0:0", "--path", str(topology), env=ADMIN)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "comes from the files of" in done.stderr


def topology_of(spec: JobSpec, inbox: Inbox, folder: Path) -> Path:
    """A topology that declares the flow of an inbox."""
    lines = inbox.flow.lines
    assert lines is not None
    source: dict[str, Any] = {"file": lines.folder, "format": lines.format, "client": lines.client}
    declared = {"name": inbox.flow.name, "from": source, "to": "dc1", "topics": {"to": lines.topic}}
    clusters = {"dc1": {"bootstrap": spec.clusters["dc1"].bootstrap}}
    topology = {"apiVersion": "repl/v1", "name": inbox.flow.name, "clusters": clusters, "flows": [declared]}
    path = folder / "t.yaml"
    path.write_text(json.dumps(topology))
    return path
