"""Limits of a drill: a figure beyond them breaks a promise, and the report says which and how far."""

import json
from pathlib import Path

import pytest

from planner.config import load
from planner.drill import promises
from planner.drill.rehearsal import DrillRequest, limits_of
from planner.drill.scenario_record import DrillLoss, ScenarioRecord
from planner.drill.standard import DrillLimits
from planner.model.drill import DrillReport


def limits(
    folder: Path, drill: dict[str, object], max_rto_ms: int | None = None, max_rpo: int | None = None
) -> DrillLimits:
    body = {
        "apiVersion": "repl/v1",
        "name": "shop",
        "clusters": {one: {"bootstrap": f"{one}:9092"} for one in ("paris", "tokyo")},
        "flows": [{"name": "orders", "from": "paris", "to": "tokyo", "topics": {"include": ["orders"]}}],
        "drill": drill,
    }
    (folder / "topology.yaml").write_text(json.dumps(body))
    return limits_of(DrillRequest(folder, max_rto_ms=max_rto_ms, max_rpo=max_rpo), load(folder))


def test_the_topology_limits_a_drill_and_options_go_before_it(tmp_path: Path) -> None:
    declared = {"max_rto": "30s", "max_rpo": 10}
    assert limits(tmp_path, declared) == DrillLimits(30.0, 10)
    assert limits(tmp_path, declared, max_rto_ms=500, max_rpo=0) == DrillLimits(0.5, 0)
    assert limits(tmp_path, {}) == DrillLimits(None, None)


RPO = "paris is lost: records that were acknowledged and did not arrive (RPO)"
RTO = "paris is lost: time from the loss until a consumer of each group read on (RTO)"


@pytest.mark.parametrize(
    ("rto_s", "records", "faults"),
    [
        (30.0, 10, ()),
        (30.4, 10, (f"{RTO}: 30.4 s (wanted: at most 30 s)",)),
        (1.0, 11, (f"{RPO}: 11 (wanted: at most 10)",)),
        (None, None, (f"{RPO}: unknown (wanted: at most 10)", f"{RTO}: unknown (wanted: at most 30 s)")),
    ],
)
def test_a_figure_beyond_a_limit_fails_the_drill(
    rto_s: float | None, records: int | None, faults: tuple[str, ...]
) -> None:
    run = ScenarioRecord(print)
    run.rto_s, run.loss = rto_s, None if records is None else DrillLoss(records, 1.0)
    promises.rpo(run, 10)
    promises.rto(run, 30.0)
    scenario = run.result("paris is lost", "paris")
    report = DrillReport("shop", "digest", "2026-11-23T10:00:00Z", "1", (), (scenario,))
    assert report.faults == faults
    assert report.passed is not bool(faults)
