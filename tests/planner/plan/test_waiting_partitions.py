"""A plan and an apply name what waits for a decision, and the next step for it."""

import json
from typing import Any

import pytest

from planner.cli.view import TerminalView
from planner.config import LoadedTopology
from planner.kafka import run
from planner.model.diagnostic import Failure, Severity, error
from planner.model.observed import Observed
from planner.model.plan import WAITS, Plan
from planner.model.topology import Cluster
from planner.plan.make import warnings_of, with_diagnostics
from planner.render.plan.words import summary_line
from planner.workflows.interaction import ApplyResult, DiagnosticCollector, silent
from planner.workflows.observing import read_waiting_partitions, waits_of
from planner.workflows.plans import plan_with_warnings
from runtime.audit.status.facts import TopicFacts
from runtime.audit.status.join import join
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.status import PartitionWaits, ReplicationStatus
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, flow, inputs, observed, topology
from tests.planner.render.scenes import nothing
from tests.runtime.audit.given import (
    TOPIC,
    asked,
    destination,
    job,
    ledger,
    look,
    progress,
    report,
    said,
    source,
)

WHY = "orders at dc2 was deleted and made again"
NEXT = "repl resume one --accept-loss"
UNREADABLE = "__repl.status at dc2 cannot be used: no right"
SHOP = topology(flow("one"), clusters=[Cluster(name, bootstrap="127.0.0.1:9") for name in ("dc1", "dc2")])


def waits(partition: int = 0) -> PartitionWaits:
    return PartitionWaits(flow="one", topic=TOPIC, partition=partition, state="recreated", why=WHY, next=NEXT)


def seen(state: S, there: bytes | None = None, **here: Any) -> ReplicationStatus:
    made = destination(topics={TOPIC: TopicFacts(there, 1)}) if there is not None else destination()
    written = ledger(progress(), job(), report(said(state, why="so it is")))
    return join(asked(), look(source(**here), made, written))


def test_a_mirror_that_was_made_again_waits_whatever_its_job_says() -> None:
    assert list(waits_of(seen(S.CAUGHT_UP, there=b"o" * 16))) == [waits()]


@pytest.mark.parametrize("state", S)
def test_what_a_job_says_waits_where_nothing_else_decides(state: S) -> None:
    found = [one.state for one in waits_of(seen(state))]

    assert found == ([state] if state.needs_decision and state is not S.SOURCE_DELETED else [])


def test_what_is_gone_at_the_source_is_decided() -> None:
    status = seen(S.CAUGHT_UP, topics={})

    assert [one.state for one in status.flows[0].partitions] == ["source_deleted"]
    assert list(waits_of(status)) == []


def test_a_status_topic_that_cannot_be_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(endpoint: object) -> None:
        raise Failure(error(UNREADABLE))

    monkeypatch.setattr("planner.workflows.observing.read_specs", unreadable)
    plan = Plan(inputs(SHOP, observed(cluster(), cluster(name="dc2"))))

    found = DiagnosticCollector(silent)
    assert run(read_waiting_partitions(plan, 1, progress=found)) == ()
    (one,) = found.diagnostics
    assert "it is not known whether a partition at dc2 waits for a decision" in one.summary


def test_a_plan_warns_of_a_destination_whose_jobs_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def observe(*_: object) -> Observed:
        return observed(cluster(), cluster(name="dc2", unreadable={"jobs": UNREADABLE}))

    monkeypatch.setattr("planner.workflows.plans.observe", observe)
    notices = DiagnosticCollector(silent)
    run(plan_with_warnings(LoadedTopology(SHOP, (), ()), (), 1, notices))
    (notice,) = notices.diagnostics
    assert notice.summary == (
        f"it is not known whether a partition at dc2 waits for a decision: {UNREADABLE}"
    )


def test_a_plan_warns_once_for_a_flow_and_state() -> None:
    (one,) = warnings_of([waits(1), waits(0)])

    assert (one.severity, one.code, one.address) == (Severity.WARNING, WAITS, "flow.one")
    assert one.summary == f"orders-1, orders-0: recreated: {WHY}"
    assert one.hint == f"next: {NEXT}"


def test_a_plan_says_no_changes_only_where_nothing_waits() -> None:
    plan = replace(nothing(), unknown={})
    assert summary_line(plan) == "No changes. The clusters match the topology."
    assert "No changes" not in summary_line(with_diagnostics(plan, [*warnings_of([waits()])]))


def test_an_apply_that_leaves_a_partition_waiting_is_not_complete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = ApplyResult(replace(nothing(), unknown={}), waits=(waits(0), waits(1)))

    TerminalView(as_json=False)(result)
    assert [one.strip() for one in capsys.readouterr().out.strip().splitlines()] == [
        "Apply not complete.",
        "",
        "Done: Resources: 0 added, 0 changed, 0 destroyed.",
        "",
        "Partitions that wait for a decision (2):",
        f"flow.one: orders-0, orders-1 recreated: {WHY}",
        f"Next: {NEXT}",
    ]
    TerminalView(as_json=True)(result)
    told = json.loads(capsys.readouterr().out)
    assert (told["complete"], len(told["waiting"])) == (False, 2)
    assert told["waiting"][0] == {
        "flow": "one",
        "topic": TOPIC,
        "partition": 0,
        "state": "recreated",
        "why": WHY,
        "next": NEXT,
    }
