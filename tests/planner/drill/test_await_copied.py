"""PURE: which flows `the flows have copied everything` waits for."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from planner.drill.replica import Replica
from planner.drill.scenario_run import ScenarioRun
from planner.model.topology.flows import FlowState


def flow(source: str, state: FlowState = FlowState.ACTIVE) -> Any:
    return SimpleNamespace(source_cluster=source, state=state)


class LaggingRun(ScenarioRun):
    """A run of two flows, whose status shows the next lags with each look."""

    def __init__(self, files: Any, looks: list[Mapping[str, int | None]], lost: str) -> None:
        replica = SimpleNamespace(
            client=None,
            routes=[],
            flows=lambda: {"orders": flow("paris")},
            flows_into_files=lambda: {"backup": files},
        )
        super().__init__(cast(Replica, replica), lambda _: None)
        self._looks: Iterator[Mapping[str, int | None]] = iter(looks)
        self.looked = 0
        if lost:
            self._lost[lost] = time.monotonic()

    def status(self) -> Any:
        self.looked += 1
        lags = next(self._looks)
        return SimpleNamespace(
            flows=[
                SimpleNamespace(name=name, lag_records=lag, partitions=[], topics=[])
                for name, lag in lags.items()
            ]
        )

    def until(self, holds: Callable[[], bool], problem: str, within_s: float = 0) -> None:
        while not holds():
            pass


BEHIND: list[Mapping[str, int | None]] = [
    {"orders": 5, "backup": None},
    {"orders": 0, "backup": 5},
    {"orders": 0, "backup": 0},
]


@pytest.mark.parametrize(
    ("files", "lost", "clusters", "looks"),
    [
        (flow("tokyo"), "", (), 3),
        (flow("tokyo"), "", ("tokyo",), 3),
        (flow("tokyo"), "", ("paris",), 2),  # flows out of paris
        (flow("tokyo"), "tokyo", (), 2),  # it can't read what it is to write
        (flow("tokyo", FlowState.PAUSED), "", (), 2),
    ],
)
def test_flows_into_files_are_waited_for(
    files: Any, lost: str, clusters: tuple[str, ...], looks: int
) -> None:
    run = LaggingRun(files, BEHIND, lost)
    run.await_copied(*clusters)
    assert run.looked == looks
