"""Pieces of a drill: which flows it fails back, tries and waits for, and which figures break a promise."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.config import load
from planner.drill import live, promises, scenario_record
from planner.drill.load import DRILL_HEADER
from planner.drill.rehearsal import rehearse
from planner.drill.routes import DrillRoute, clusters_to_lose, flows_out_of, not_failed_back, routes_of
from planner.drill.scenario_record import DrillAborted, ScenarioRecord
from planner.drill.scenario_run import ScenarioRun, Stopped, stopped_partitions
from planner.drill.traffic import record_id
from planner.model.drill import DrillReport, RecoveryTime
from planner.model.topology import Topology
from planner.workflows.requests import DrillRequest
from runtime.contract.results.status import FlowHealth, ReplicationStatus
from runtime.contract.spec.flow import FlowState
from tests.fakes.health import flow_health, partition_health, status_of, topic_health
from tests.fakes.tables import cases
from tests.topologies import without_answer


def topology(folder: Path, *flows: dict[str, Any], **more: Any) -> Topology:
    named = [{"name": f"{one['from']}-{at}", **one} for at, one in enumerate(flows)]
    return load(without_answer(folder, "topology", "paris", "tokyo", flows=named, **more))


def copies(topic: str, source: str = "paris", to: str = "tokyo", **more: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "topics": {"include": [topic]}, **more}


def route(flow: str, topic: str, destination: str, source: str = "paris") -> DrillRoute:
    return DrillRoute(flow, source, destination, topic, topic, transformed=False)


def test_a_cluster_that_a_running_flow_leaves_can_be_lost(tmp_path: Path) -> None:
    made = topology(tmp_path, copies("orders"), copies("back", "tokyo", "paris", state="promoted"))
    assert clusters_to_lose(made) == ["paris"]
    assert [flow.name for flow in flows_out_of(made, "paris")] == ["paris-0"]


B, C = route("b", "orders", "tokyo"), route("c", "payments", "rome")
A = (route("a", "orders", "lima"), route("a", "payments", "lima"))


@cases(
    "routes left_out",
    {
        "one flow copies a topic back": ([B, *A, C, route("d", "refunds", "tokyo")], {"b": "a", "c": "a"}),
        "one that is left out leaves its topics to others": (
            [A[0], B, route("b", "refunds", "tokyo"), route("c", "refunds", "rome")],
            {"b": "a"},
        ),
        "other topics": ([route("a", "orders", "tokyo"), route("b", "orders", "paris", "tokyo")], {}),
    },
)
def test_which_flows_are_not_failed_back(routes, left_out) -> None:
    assert not_failed_back(routes) == left_out


ACL = {"protect": "acl"}


@cases(
    "flows protected synced",
    {
        "only what flows protect or sync": (
            [
                copies("orders", rename="copy.{topic}", **ACL),
                copies("people", acls={"sync": True}),
                copies("payments"),
            ],
            [("tokyo", "copy.orders")],
            [("tokyo", "people")],
        ),
        "not what clients write at both sides": (
            [
                copies("orders", **ACL),
                copies("orders", "tokyo", "paris", **ACL),
                copies("payments", "tokyo", "paris", **ACL),
            ],
            [("paris", "payments")],
            [],
        ),
    },
)
def test_which_mirrors_are_tried(flows, protected, synced, tmp_path: Path) -> None:
    routes = routes_of(topology(tmp_path, *flows))
    assert [(route.destination, route.mirror) for route in routes if route.protected] == protected
    assert [(route.destination, route.mirror) for route in routes if route.rules_synced] == synced


DECLARED = {"max_rto": "30s", "max_rpo": 10}


@cases(
    "declared options limits",
    {
        "of the topology": (DECLARED, {}, (30_000, 10, 10_000)),
        "options go before it": (DECLARED, {"max_rto_ms": 500, "max_rpo": 0, "load_ms": 0}, (500, 0, 0)),
        "none": ({}, {}, (None, None, 10_000)),
    },
)
def test_the_limits_of_a_drill(declared, options, limits, tmp_path, monkeypatch) -> None:
    seen: list[DrillRequest] = []

    def rehearse_live(request: DrillRequest, *_: Any) -> Any:
        seen.append(request)
        return (), ()

    monkeypatch.setattr(live, "rehearse_live", rehearse_live)
    topology(tmp_path, copies("orders"), drill=declared)
    rehearse(DrillRequest(tmp_path, against="live", **options), print)
    assert [(one.max_rto_ms, one.max_rpo, one.load_ms) for one in seen] == [limits]


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
def test_a_figure_beyond_a_limit_fails_the_drill(rto_s, records, faults) -> None:
    run = ScenarioRecord(print, "paris is lost", "paris")
    run.scenario.rto = None if rto_s is None else RecoveryTime(rto_s, 0.0, 0.0)
    run.scenario.rpo_records = records
    promises.rpo(run, 10)
    promises.rto(run, 30.0)
    report = DrillReport("shop", "digest", "2026-11-23T10:00:00Z", "1", (), (run.scenario,))
    assert report.faults == faults
    assert report.passed is not bool(faults)


def test_records_are_told_apart_also_where_they_are_tombstones_without_headers() -> None:
    """So are those that a flow copies in the place of filtered records."""
    records: list[tuple[int, bytes | None, list[tuple[str, bytes | None]]]] = [
        (4, b"v", [(DRILL_HEADER, b"7")]),
        (5, b"v", []),
        (6, None, []),
        (7, None, []),
    ]
    ids = [record_id("orders", 1, offset, value, headers) for offset, value, headers in records]
    assert ids == [b"7", b"v", b"orders-1 @ 6", b"orders-1 @ 7"]


# Which flows `the flows have copied everything` waits for.


def flow(source: str, state: FlowState = "active") -> Any:
    return SimpleNamespace(source_cluster=source, state=state, from_files=False)


class LaggingRun(ScenarioRun):
    """A run of two flows, whose status shows the next lags with each look."""

    def __init__(self, files: Any, looks: list[Mapping[str, int | None]], lost: str) -> None:
        declared = SimpleNamespace(flows={"orders": flow("paris")}, file_flows={"backup": files})
        topology = SimpleNamespace(clusters={"paris": None, "tokyo": None})
        replica: Any = SimpleNamespace(endpoint=None, load=None, topology=topology, routes=[])
        replica.declared = lambda: declared
        super().__init__(replica, lambda _: None)
        self._looks: Iterator[Mapping[str, int | None]] = iter(looks)
        self.looked = 0
        if lost:
            self._lost[lost] = time.monotonic()

    def status(self) -> ReplicationStatus:
        self.looked += 1
        return status_of(
            *(flow_health(name=name, lag_records=lag) for name, lag in next(self._looks).items())
        )

    def wait_while(self, missing: Callable[[], object], *_: Any, **__: Any) -> bool:
        while missing():
            pass
        return True


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
        (flow("tokyo", "paused"), "", (), 2),
    ],
)
def test_flows_into_files_are_waited_for(files, lost, clusters, looks) -> None:
    run = LaggingRun(files, BEHIND, lost)
    run.await_copied(*clusters)
    assert run.looked == looks


# The timeline.


def test_each_second_of_a_scenario_belongs_to_a_step() -> None:
    run = ScenarioRecord(lambda _: None)
    time.sleep(0.01)
    with run.step("first"):
        time.sleep(0.01)
    time.sleep(0.01)  # what is measured between steps is part of the next one
    with pytest.raises(ValueError, match="wrong"), run.step("second"):
        raise ValueError("wrong")
    run.end_step("third", failed=False)
    steps = run.scenario.steps
    assert [step.failed for step in steps] == [False, True, False]
    assert steps[0].at_s == 0.0
    assert steps[0].took_s >= 0.02
    for step, following in pairwise(steps):
        assert following.at_s == pytest.approx(step.at_s + step.took_s)


# What is waited for.


def test_a_wait_says_what_is_missing_and_names_it_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_record, "_LOOK_S", 0.0)
    monkeypatch.setattr(scenario_record, "_REPORT_S", 0.0)
    said: list[str] = []
    run = ScenarioRecord(said.append)
    with pytest.raises(DrillAborted, match=r"it did not come within 0\.01 s: 5 records"):
        run.wait_while(lambda: "5 records", "it did not come", 0.01)
    assert "waiting for 0 s: 5 records" in said
    assert not run.wait_while(lambda: 1, within_s=0.0)
    assert run.wait_while(iter(("5 records", "")).__next__)


def flows(state: str) -> list[FlowHealth]:
    return [flow_health(topic_health(partition_health(state=state)), name="orders")]


def test_a_partition_that_needs_a_decision_is_not_waited_for() -> None:
    stopped: Stopped = {}
    for at, state in ((0.0, "copying"), (1.0, "data_loss"), (2.0, "copying"), (3.0, "data_loss")):
        stopped = stopped_partitions(flows(state), stopped, at)
    assert stopped == {("orders", "orders", 0): 3.0}
    assert stopped_partitions(flows("data_loss"), stopped, 22.0) == stopped
    with pytest.raises(DrillAborted, match="orders stops at orders-0: data_loss; only a command"):
        stopped_partitions(flows("data_loss"), stopped, 23.5)
    with pytest.raises(DrillAborted, match="declare the schema of its records"):
        stopped_partitions(flows("record_invalid"), {}, 0.0)
