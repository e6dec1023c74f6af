"""`repl try --sample FILE`: the files that it reads."""

import json
from pathlib import Path

import pytest

from planner.model.diagnostic import Failure
from planner.render.reports.comparison import line
from planner.workflows.audit.comparison import ReplaySalvageRequest, replay_salvage
from planner.workflows.samples import sample_of
from runtime.contract.views.records_view import SalvagedRecord
from runtime.contract.views.transform_view import SampleRecord

LEFT = SalvagedRecord(
    cluster="dc1",
    cluster_id="id-1",
    topic="customers",
    partition=2,
    offset=50,
    timestamp_ms=1_700_000_000_000,
    key=None,
    value=b"\xff{}",
    headers=[("h", b"1"), ("h", None)],
    came_from=[],
    flow=None,
)
TOPOLOGY = """
apiVersion: repl/v1
name: tests
clusters: {dc1: {bootstrap: "127.0.0.1:1"}, dc2: {bootstrap: "127.0.0.1:2"}}
flows:
  - name: f
    from: dc1
    to: dc2
    topics: {include: [customers]}
    state: failed_over
    transform: {where: "true"}
"""


def test_an_export_of_salvage_is_read_with_keys_and_headers(tmp_path: Path) -> None:
    file = tmp_path / "left.jsonl"
    file.write_text(line(LEFT) + line(LEFT))
    read = SampleRecord(
        topic="customers",
        partition=2,
        offset=50,
        timestamp_ms=1_700_000_000_000,
        value=b"\xff{}",
        headers=[("h", b"1"), ("h", None)],
    )
    assert list(sample_of(file)) == [read, read]


def test_a_line_that_is_no_record_of_an_export_makes_all_lines_values(tmp_path: Path) -> None:
    file = tmp_path / "values"
    value = json.dumps({"topic": "t", "value": None})
    file.write_text(line(LEFT) + value)
    assert [one.value for one in sample_of(file)] == [line(LEFT).strip().encode(), value.encode()]


def test_a_replay_of_a_flow_with_a_transform_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "repl.yaml").write_text(TOPOLOGY)
    with pytest.raises(Failure) as refused:
        replay_salvage(ReplaySalvageRequest(tmp_path, flow="f"))
    (one,) = refused.value.diagnostics
    assert "repl try f --sample FILE --json" in one.way_out
