"""What a drill against live clusters promises of heartbeats."""

from pathlib import Path

import pytest

from planner.drill import live
from planner.drill.scenario_record import ScenarioRecord
from planner.workflows.requests import DrillRequest
from tests.planner.drill.test_scratch import TOPOLOGY, topology


def test_a_flow_without_heartbeats_is_a_note_and_no_broken_promise(tmp_path: Path) -> None:
    known = topology(tmp_path, TOPOLOGY.replace("rpo: 5s", "rpo: 5s\n    heartbeats: off"))
    flows = {"orders": known.flows["orders"]}
    run = ScenarioRecord(print, "paris would be lost now", "paris")

    live._promise_heartbeats(run, DrillRequest(tmp_path / "topology.yaml"), flows, {})

    assert run.scenario.promises == []
    assert live._without_heartbeats(known) == [
        "without heartbeats, whether they copy now is not known: orders"
    ]


@pytest.mark.parametrize(("every", "within_s"), [("1s", 60), ("5m", 600)])
def test_a_heartbeat_is_waited_for_twice_as_long_as_it_takes(
    every: str, within_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = topology(tmp_path, TOPOLOGY.replace("rpo: 5s", f"rpo: 5s\n    heartbeats: {{every: {every}}}"))
    flows = {"orders": known.flows["orders"]}
    run = ScenarioRecord(print)
    waits: list[float] = []
    monkeypatch.setattr(run, "wait_while", lambda _missing, within_s: waits.append(within_s))

    live._promise_heartbeats(run, DrillRequest(tmp_path / "topology.yaml"), flows, {})

    assert waits == [within_s]
    assert [promise.wanted for promise in run.scenario.promises] == [f"within {within_s} s"]
