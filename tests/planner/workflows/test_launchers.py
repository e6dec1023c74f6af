"""Where this machine keeps its jobs, and launchers asked in apply's words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from planner.apply.context import LaunchFailed
from planner.model.diagnostic import SourceLocation
from planner.model.plan import Plan
from planner.model.topology import Cluster
from planner.workflows.applying.apply import LauncherAdapter, home_of
from runtime.contract.spec.jobspec import JobSpec
from runtime.launch.launcher import LaunchError, LaunchHandle, LaunchState, LaunchStatus
from tests.fakes.states import cluster, inputs, observed, topology

SPEC = JobSpec(job="dc2", topology="shop", destination="dc2", clusters={}, flows=[])


def plan(file: str | None) -> Plan:
    source = SourceLocation(file, 1, 1) if file is not None else None
    shop = topology(clusters=[Cluster("dc1", "a:1", source=source)])
    return Plan(inputs(shop, observed(cluster())))


def test_beside_the_topology_wherever_its_plan_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@dataclass
class Stage:
    """A launcher that is in one state, or refuses everything."""

    state: LaunchState = LaunchState.RUNNING
    refuses: bool = False

    def launch(self, _spec: JobSpec) -> LaunchHandle:
        self._refuse()
        return LaunchHandle("dc2", "pid 7 on host", "/log")

    def update(self, _spec: JobSpec) -> None:
        self._refuse()

    def find(self, _job: str) -> LaunchStatus:
        self._refuse()
        return LaunchStatus(self.state)

    def stop(self, _job: str, _grace_s: float) -> None:
        self._refuse()

    def tail(self, _job: str, lines: int = 20) -> list[str]:
        self._refuse()
        return ["a line"] * lines

    def _refuse(self) -> None:
        if self.refuses:
            raise LaunchError("no Java", "install it", ["its log"])


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
    assert LauncherAdapter(Stage(state)).runs("dc2") is runs


def test_where_it_runs_and_what_it_said_last() -> None:
    adapted = LauncherAdapter(Stage())

    assert adapted.launch(SPEC) == "pid 7 on host, its log is /log"
    assert list(adapted.tail("dc2"))[:1] == ["a line"]


def test_a_refusal_keeps_its_words() -> None:
    adapted = LauncherAdapter(Stage(refuses=True))
    asked: Sequence[object] = (
        lambda: adapted.launch(SPEC),
        lambda: adapted.update(SPEC),
        lambda: adapted.runs("dc2"),
        lambda: adapted.stop("dc2", 1),
        lambda: adapted.tail("dc2"),
    )
    for ask in asked:
        with pytest.raises(LaunchFailed) as refused:
            ask()  # type: ignore[operator]
        assert (refused.value.what, refused.value.hint, refused.value.log) == (
            "no Java",
            "install it",
            ("its log",),
        )
