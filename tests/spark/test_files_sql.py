"""A flow into files with a transform on real brokers: values that Spark decodes, or the task itself."""

import datetime
import hashlib
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.jobspec import JobExit
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.lab.lab import Lab
from tests.records import create_topic, wait_for
from tests.spark.exported import files_of
from tests.spark.job import start_job
from tests.spark.test_files import into_files, job_of

pytestmark = [pytest.mark.spark, pytest.mark.long]
_PATIENCE_S = 240
RECORDS = 3_000  # of partition 0: several Arrow batches
GERMANS = 1_500  # of partition 1: none of them travels
WHERE = "value.country <> 'DE' AND 100 / value.id > 0"
SET = {"value.email": "sha2(value.email, 256)"}
PLAIN = TransformSpec(  # the task reads these fields
    value=FormatSpec(format="json", schema="id BIGINT, email STRING, country STRING, card STRING"),
    where=WHERE,
    set=SET,
    drop=("value.card",),
)
TYPED = TransformSpec(  # Spark reads these
    value=FormatSpec(
        format="json",
        schema="id INT, email STRING, country STRING, card STRING, born DATE, seen TIMESTAMP,"
        " amount DECIMAL(12,2), home STRUCT<street: STRING, city: STRING>",
    ),
    where=WHERE,
    set={**SET, "value.amount": "value.amount * 2"},
    drop=("value.card", "value.home.street"),
)
TYPE = pa.struct(
    [
        ("id", pa.int32()),
        ("email", pa.string()),
        ("country", pa.string()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("amount", pa.decimal128(12, 2)),
        ("home", pa.struct([("city", pa.string())])),
    ]
)


def customer(at: int, country: str) -> bytes:
    return json.dumps(
        {
            "id": at + 1,
            "email": f"c{at}@example.com",
            "country": country,
            "card": "4111",
            "other": [1, {"a": "b"}],
            "born": "1990-02-03",
            "seen": "2026-01-31T10:00:00.123456Z",
            "amount": 12.25,
            "home": {"street": "Main", "city": "Oslo"},
        }
    ).encode()


def country_of(at: int) -> str:
    return "DE" if at % 3 == 0 else "FR"


def expected(typed: bool) -> dict[int, Any]:
    """The values of partition 0 by offset; a tombstone is null."""
    found: dict[int, Any] = {}
    for at in range(RECORDS):
        if at % 100 == 1:
            found[at] = None
        elif country_of(at) != "DE":
            email = hashlib.sha256(f"c{at}@example.com".encode()).hexdigest()
            found[at] = {"id": at + 1, "email": email, "country": "FR"}
            if typed:
                seen = datetime.datetime(2026, 1, 31, 10, 0, 0, 123456, datetime.UTC)
                born = datetime.date(1990, 2, 3)
                found[at] |= {
                    "born": born,
                    "seen": seen,
                    "amount": Decimal("24.50"),
                    "home": {"city": "Oslo"},
                }
    return found


def read(folder: Path) -> list[tuple[int, int, Any]]:
    """Partition, offset and value of each record in the files."""
    rows: list[dict[str, Any]] = []
    for path in files_of(folder):
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            assert file.schema_arrow.field("value").type == TYPE
            rows += file.read().to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(((row["partition"], row["offset"], row["value"]) for row in rows), key=lambda row: row[:2])


def test_files_hold_decoded_values(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> None:
    client = dict(lab.clusters["dc1"].client)
    topic, lake, lines = fresh("customers"), tmp_path / "lake", tmp_path / "lines"
    create_topic(client, topic, 2)
    producer = Producer(client)
    for at in range(RECORDS):
        value = None if at % 100 == 1 else customer(at, country_of(at))
        producer.produce(topic, value, b"k%d" % at, partition=0, headers=[("h", b"1")])
    for at in range(GERMANS):
        producer.produce(topic, customer(at, "DE"), partition=1)
    assert producer.flush(60) == 0
    flows = []
    for folder, form, transform in ((lake, "parquet", TYPED), (lines, "json", PLAIN)):
        folder.mkdir()
        flows.append(into_files(fresh("flow"), [topic], folder, form, transform=transform))
    spec = job_of(lab, fresh("job"), flows)
    position = {0: RECORDS, 1: GERMANS}

    with start_job(spec, tmp_path) as job:

        def caught_up() -> bool:
            partitions = job.partitions()
            return len(partitions) == 4 and all(
                (one.state, one.position) == (PartitionState.CAUGHT_UP, position[key.partition])
                for key, one in partitions.items()
            )

        wait_for(caught_up, _PATIENCE_S, about=job.tail)
        for folder, typed in ((lake, True), (lines, False)):
            assert read(folder) == [(0, at, value) for at, value in expected(typed).items()]
        assert {one.dropped for key, one in job.partitions().items() if key.partition == 1} == {GERMANS}
        assert job.stop() == JobExit.STOPPED, job.tail()
