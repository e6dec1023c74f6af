"""What the overview and the history page tell of the stored drills, and of what an apply did to flows."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from planner.model.address import flow_address, topic_address
from planner.model.drill import LAB, LIVE, DrillReport, Promise, RecoveryTime, Scenario
from planner.model.observed import RegistryEntry
from planner.model.step import ApplyRecord
from planner.plan.steps.registry import Own
from planner.render.reports.drill import document
from planner.render.reports.history import flow_states
from planner.workflows.audit.drills import drill_history, reports_folder
from planner.workflows.requests import TopologyRequest
from tests.fakes.replacing import replace
from tests.fakes.tables import cases
from tests.planner.render import test_status as scenes
from tests.planner.ui.serving import Parsed, fresh, serving
from tests.topologies import without_answer

KEPT = Promise("both sides hold the same records", "0 different", "0 different", True)
BROKEN = Promise("RTO <b>", "at most 5 s", "7.0 s", False, "too long")


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topology that wants a drill every 7 days."""
    monkeypatch.delenv("REPL_HOME", raising=False)
    return without_answer(tmp_path, "shop", drill={"every": "7d"})


def store(topology: Path, days_ago: int, *promises: Promise, name: str = "shop", against: str = LAB) -> None:
    """Stores the report of a drill, as `repl drill` does."""
    folder = reports_folder(topology)
    folder.mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC) - timedelta(days=days_ago)
    lost = Scenario("dc1 is lost", "dc1", [], list(promises), RecoveryTime(7.0, 0.0, 0.0), 0)
    report = DrillReport(name, "sha256:0a1b", began.strftime("%Y-%m-%dT%H:%M:%SZ"), "0.1", (), (lost,))
    report = replace(report, against=against)
    (folder / f"{began:%Y%m%dT%H%M%SZ}-{name}.json").write_text(json.dumps(document(report)))


def shown(topology: Path, path: str) -> Parsed:
    with serving(fresh(scenes.caught_up()), path=topology) as visited:
        while True:
            before = visited.site.feed.changes
            page = visited.page(path)
            if "drill" in page.text and "Being read" not in page.text.partition("Drills rehearsals")[2]:
                return page
            visited.until(before + 1)


LAST = "with RTO 7.0 s and RPO 0 records."
LATE = "The topology declares one every 7 d ( drill.every ): run repl drill"


@cases(
    "stored says",
    {
        "one that passed in time": (
            [(3, KEPT)],
            [f"The last drill passed 3 d ago {LAST}", "The topology was changed since."],
        ),
        "older than declared": ([(9, KEPT)], ["The last drill passed 9 d ago", LATE]),
        "one that failed after one that passed": (
            [(8, KEPT), (2, BROKEN)],
            [LATE, f"The last drill failed 2 d ago {LAST} One passed 8 d ago."],
        ),
        "one of live clusters is no failover": ([(3, KEPT), (1, LIVE)], ["The last drill passed 3 d ago"]),
        "none": (
            [(1, "another")],
            ["No drill of this topology is stored on this machine. The topology declares one"],
        ),
    },
)
def test_the_overview_tells_of_the_last_drill(stored, says, topology: Path) -> None:
    for days_ago, what in stored:
        promises = (KEPT, BROKEN) if what is BROKEN else (KEPT,)
        name = "another" if what == "another" else "shop"
        store(topology, days_ago, *promises, name=name, against=LIVE if what == LIVE else LAB)
    text = shown(topology, "/").text
    assert [one for one in says if one not in text] == []
    late = LATE in says or "another" in (what for _, what in stored)
    assert ("The topology declares one every" in text) is late


def test_reports_are_read_from_another_folder(topology: Path, tmp_path: Path) -> None:
    store(topology, 3, KEPT)
    reports = reports_folder(topology).rename(tmp_path / "elsewhere")

    asked = TopologyRequest(topology)
    assert not drill_history(asked).drills
    (found,) = drill_history(asked, reports).drills
    assert found.report.passed


def test_history_lists_the_drills_and_why_one_failed(topology: Path) -> None:
    store(topology, 8, KEPT)
    store(topology, 2, KEPT, BROKEN)
    (reports_folder(topology) / "cut.json").write_text('{"scenarios": [')
    (reports_folder(topology) / "odd.json").write_text('{"scenarios": "<i>"}')
    page = shown(topology, "/history")

    chips = [one for one in page.named("td") if one.get("data-label") == "Result"]
    assert len(chips) == 2
    assert "dc1 is lost: RTO <b>: 7.0 s (wanted: at most 5 s)" in page.text
    assert "Not readable as reports: odd.json, cut.json." in page.text
    assert str(reports_folder(topology)) in page.text
    assert not page.named("b")


def test_an_apply_tells_what_became_of_flows() -> None:
    flow, topic = flow_address("one"), topic_address("dc1", "orders")
    entries = [RegistryEntry(flow, "shop", {"state": "failed_over"}), RegistryEntry(topic, "shop", {})]
    steps = tuple(Own(f"own:{one.address}", one.address, "dc2", one) for one in entries)
    applied = ApplyRecord(
        "a", "shop", "apply", "sha256:0", "me", "here", 1, None, {"dc2": "id"}, 2, 0, steps=steps
    )

    assert flow_states(applied) == {"one": "failed_over"}
