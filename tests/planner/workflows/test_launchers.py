"""Where this machine keeps its jobs, and launchers asked in apply's words."""

from pathlib import Path

import pytest

from planner.model.diagnostic import SourceLocation
from planner.model.plan import Plan
from planner.model.topology import Cluster
from planner.workflows.applying.apply import home_of
from runtime.contract.launching import LaunchState, LaunchStatus
from tests.fakes.states import cluster, inputs, observed, topology


def plan(file: str | None) -> Plan:
    source = SourceLocation(file, 1, 1) if file is not None else None
    shop = topology(clusters=[Cluster("dc1", bootstrap="a:1", source=source)])
    return Plan(inputs(shop, observed(cluster())))


@pytest.mark.parametrize(
    ("file", "told", "home"),
    [
        ("shop/shop.yaml", None, "shop/.repl/jobs"),
        ("gone.yaml", None, ".repl/jobs"),
        (None, None, ".repl/jobs"),
        ("shop/shop.yaml", "home", "home/jobs"),
    ],
)
def test_jobs_are_kept_beside_the_topology_wherever_its_plan_was_saved_or_where_it_is_told(
    file: str | None, told: str | None, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_HOME", str(tmp_path / told) if told else "")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shop.yaml").touch()
    assert home_of(plan(file and str(tmp_path / file)), tmp_path / "saved.plan") == tmp_path / home


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
