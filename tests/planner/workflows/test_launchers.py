"""Where this machine keeps its jobs, and launchers asked in apply's words."""

from pathlib import Path

import pytest

from planner.model.diagnostic import SourceLocation
from planner.model.plan import Plan
from planner.model.topology import Cluster
from planner.workflows.applying.apply import home_of
from runtime.contract.launching import LaunchHandle, LaunchState, LaunchStatus
from tests.fakes.states import cluster, inputs, observed, topology


def plan(file: str | None) -> Plan:
    source = SourceLocation(file, 1, 1) if file is not None else None
    shop = topology(clusters=[Cluster("dc1", bootstrap="a:1", source=source)])
    return Plan(inputs(shop, observed(cluster())))


def test_beside_the_topology_wherever_its_plan_was_saved(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("REPL_HOME", raising=False)
    (tmp_path / "shop").mkdir()
    file = tmp_path / "shop" / "shop.yaml"
    file.touch()

    assert home_of(plan(str(file)), tmp_path / "saved.plan") == tmp_path / "shop" / ".repl" / "jobs"
    assert home_of(plan("gone.yaml"), tmp_path / "saved.plan") == tmp_path / ".repl" / "jobs"
    assert home_of(plan(None), tmp_path) == tmp_path / ".repl" / "jobs"


def test_or_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPL_HOME", str(tmp_path / "home"))

    assert home_of(plan(None), tmp_path) == tmp_path / "home" / "jobs"


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        (LaunchState.RUNNING, True),
        (LaunchState.RESTARTING, True),
        (LaunchState.ENDED, False),
        (LaunchState.UNKNOWN, None),
    ],
)
def test_what_is_found_of_a_job(state: LaunchState, runs: bool | None) -> None:
    assert LaunchStatus(state).runs is runs


def test_where_it_runs_is_told_with_its_log() -> None:
    assert str(LaunchHandle("dc2", "pid 7 on host", "/log")) == "pid 7 on host, its log is /log"
    assert str(LaunchHandle("dc2", "application 7", "")) == "application 7"
