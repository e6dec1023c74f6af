"""What a task makes of a file that is written again while it reads it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import LinesSpec
from runtime.files.source.known_files import NO_FINGERPRINT
from runtime.files.source.load import FileLoad, LoadFile, LoadTicket, _Source


def write(path: Path, rows: int) -> None:
    """Writes rows of 1 MiB, two in each row group: a chunk has four of them."""
    pq.write_table(pa.table({"value": ["x" * (1 << 20)] * rows}), path, row_group_size=2)


def test_a_file_that_is_written_again_while_it_is_read_is_outdated_and_not_corrupt(tmp_path: Path) -> None:
    """Its row groups are not those of its footer any more: the next look tells what became of the file."""
    path = tmp_path / "a.parquet"
    write(path, 12)
    done = LoadFile(path.name, 0, 0, NO_FINGERPRINT)
    ticket = LoadTicket(
        flow="f",
        generation=1,
        cluster_name="dc1",
        cluster=ClusterSpec(bootstrap="a:1"),
        client_id="c",
        round_s=60.0,
        transactional_id="t",
        lines=LinesSpec(endpoint="inbox", folder=str(tmp_path), format="parquet", topic="rows"),
        topic_id=b"",
        max_message_bytes=2 << 20,
        files=[done],
    )
    task = FileLoad(ticket)
    task._sources.append(_Source(done, PartitionKey("f", path.name, 0), 0))
    chunks = task._chunks()
    assert next(chunks).step.position == 4
    write(path, 7)
    assert list(chunks) == []
    task.close()
    assert (done.outdated, done.problem) == (True, None)
