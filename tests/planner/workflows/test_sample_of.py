"""`repl try --sample FILE`: the files that it reads."""

import json
from pathlib import Path

from planner.render.reports.salvage import line
from planner.workflows.samples import sample_of
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.results.records import SalvagedRecord

HEADERS = (("h", b"1"), ("h", None))
RECORD = ConsumerRecord("customers", 2, 50, 1_700_000_000_000, value=b"\xff{}", headers=HEADERS)
LEFT = SalvagedRecord(cluster="dc1", cluster_id="id-1", record=RECORD)


def test_an_export_of_salvage_is_read_with_keys_and_headers(tmp_path: Path) -> None:
    file = tmp_path / "left.jsonl"
    file.write_text(line(LEFT) + line(LEFT))
    assert list(sample_of(file)) == [RECORD, RECORD]


def test_a_line_that_is_no_record_of_an_export_makes_all_lines_values(tmp_path: Path) -> None:
    file = tmp_path / "values"
    value = json.dumps({"topic": "t", "value": None})
    file.write_text(line(LEFT) + value)
    assert [one.value for one in sample_of(file)] == [line(LEFT).strip().encode(), value.encode()]
