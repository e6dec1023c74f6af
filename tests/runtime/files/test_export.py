"""What a task copies of a partition, and how far it says that it came (R4)."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from runtime.batch import Codec
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.manifest import FilePosition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec, Format
from runtime.contract.spec.naming import TopicPartition
from runtime.files import formats
from runtime.files.export import ExportPartition, ExportTicket, copied
from runtime.files.manifest import ManifestFolder
from runtime.kafka.cluster import KafkaCluster
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import START, batch_bytes, record, summed

AT = TopicPartition("orders", 0)
ID = b"o" * 16
BATCHES = [batch_bytes([record(at, b"v")]) for at in range(4)]


async def exported(
    folder: Path,
    log: PartitionLog,
    end: int,
    form: Format = "raw",
    layout: str = "{topic}/",
    begin: int = 1,
    unpacked_bytes: int = MAX_UNPACKED,
) -> ExportPartition:
    logs = PartitionLogs({AT: log}, {AT.topic: ID})
    position = FilePosition(
        topic=AT.topic, topic_id=ID.hex(), partition=AT.partition, position=begin, records=7
    )
    ticket = ExportTicket(
        flow="f",
        generation=1,
        cluster_name="dc1",
        cluster=ClusterSpec(id="c1", bootstrap="one:9092"),
        client_id="",
        round_s=60.0,
        files=FilesSpec(endpoint="lake", folder=str(folder), format=form, layout=layout),
        partitions=[ExportPartition(position, end)],
        unpacked_bytes=unpacked_bytes,
    )
    (found,) = await copied(ticket, cast(KafkaCluster, cast(Any, logs)), ManifestFolder(str(folder), "f"))
    return found


def test_a_partition_returns_with_its_position_behind_what_was_written(tmp_path: Path) -> None:
    found = asyncio.run(exported(tmp_path, PartitionLog(BATCHES), 4))
    position = found.position
    assert (position.position, position.records, position.last_timestamp) == (4, 10, START + 3)
    assert position.bytes == sum(file.size for file in found.files)
    assert [(file.first, file.end) for file in found.files] == [(1, 4)]
    assert found.problem is None


def test_a_partition_stops_before_a_batch_that_cannot_be_read(tmp_path: Path) -> None:
    bad = bytearray(BATCHES[3])
    bad[61] ^= 0xFF
    log = PartitionLog([*BATCHES[:3], summed(bad)])
    found = asyncio.run(exported(tmp_path, log, 4, "json"))
    assert (found.position.position, found.position.records) == (3, 9)
    assert found.problem is not None
    assert found.problem.state is PartitionState.RECORD_CORRUPT
    assert [(file.first, file.end) for file in found.files] == [(1, 3)]


@pytest.mark.parametrize(("unpacked_bytes", "position"), [(1_000_000, 1), (3_000_000, 2)])
def test_a_batch_that_unpacks_past_the_memory_of_the_job_says_what_to_raise(
    tmp_path: Path, unpacked_bytes: int, position: int
) -> None:
    batches = [batch_bytes([record(at, bytes(2_000_000))], Codec.ZSTD) for at in range(2)]
    work = exported(tmp_path, PartitionLog(batches), 2, "json", unpacked_bytes=unpacked_bytes)
    found = asyncio.run(work)
    assert found.position.position == position
    if position == 1:
        assert found.problem is not None
        assert found.problem.state is PartitionState.RECORD_TOO_LARGE
        assert found.problem.why.endswith("; raise memory of the job, of which a batch may take an eighth")


def test_an_answer_without_records_does_not_end_a_partition(tmp_path: Path) -> None:
    """A broker that did not load them in time sends none, and no error: what it has is not passed over."""
    found = asyncio.run(exported(tmp_path, PartitionLog(BATCHES[:2], end=9), 9))
    assert (found.position.position, found.position.records) == (2, 8)
    assert found.problem is not None
    assert found.problem.state is PartitionState.RETRYING


def test_a_round_ends_inside_a_batch_whose_records_want_more_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer chooses the timestamps. No commit could name a file for each record of a large batch."""
    monkeypatch.setattr(formats, "PARTITION_FILES", 8)
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 4)
    batch = batch_bytes([record(at, b"v", timestamp=at * 3_600_000) for at in range(40)])
    log = PartitionLog([batch, *(batch_bytes([record(40, b"v")]),)])
    begin, copied_through = 1, []
    while begin < 41:
        found = asyncio.run(exported(tmp_path, log, 41, "json", "{topic}/{date}-{hour}/", begin))
        assert found.problem is None
        assert len(found.files) <= 8 + 4 + 4  # one chunk, and the files that are open
        assert [(file.first, file.end) for file in found.files] == [
            (at, at + 1) for at in range(begin, found.position.position)
        ]
        assert found.position.records == 7 + found.position.position - begin
        begin = found.position.position
        copied_through.append(begin)
    assert copied_through == [13, 25, 37, 41]


@pytest.mark.parametrize("most", [1, 2])
def test_a_partition_ends_its_round_where_it_has_as_many_files_as_a_commit_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Each batch is in an hour of its own, and a file is complete when four younger folders are open."""
    monkeypatch.setattr(formats, "PARTITION_FILES", most)
    hours = [batch_bytes([record(at, b"v", timestamp=at * 3_600_000)]) for at in range(12)]
    found = asyncio.run(exported(tmp_path, PartitionLog(hours), 12, "json", "{topic}/{hour}/"))
    assert found.position.position == 1 + 4 + most
    assert [(file.first, file.end) for file in found.files] == [(at, at + 1) for at in range(1, 5 + most)]
    assert found.problem is None
