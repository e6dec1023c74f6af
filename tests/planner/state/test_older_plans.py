"""Plan files of older releases hold values of flows and jobs as text. They are read and shown as before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.diff import diff
from planner.graph import expand
from planner.model.plan import Plan, digest_of
from planner.model.topology import FlowState, Internal, Job, Selection, StartAt, StartAtOffsets, Topology
from planner.plan import make_plan
from planner.plan.agreement import disagreements
from planner.plan.document import json_tree
from planner.plan.recheck import shown_as_running
from planner.render.plan.words import value_text
from planner.state import planfile
from runtime.contract.spec.rename import Match, Table
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology

OLDER = Path(__file__).parent / "older"  # files that the release before wrote
NOTHING = observed(cluster(live("a"), live("b")), cluster(name="dc2"))
ORDERS = flow("orders", topics=Selection(("a",)))
WITHOUT_RETENTION = Internal(retention_ms=None)  # as in the topology of these files
PAYMENTS = flow("payments", topics=Selection(("b",)))
DECLARED = Job("dc2", metrics_port=9404)  # where none was declared, the release before had this port


def edited() -> Topology:
    orders = flow(
        "orders",
        topics=Selection(("a",)),
        rate_limit=50_000_000,
        rpo_ms=1_500,
        follow_every_ms=None,
        start=StartAt("latest"),
        restart_from=StartAtOffsets({"a": {0: 42}}),
        rename=Match("(a)", "x-\\1"),
    )
    payments = flow("payments", topics=Selection(("b",)), state=FlowState.PAUSED, rename=Table((("b", "c"),)))
    job = Job("dc2", metrics_port=None, memory="2g", slots=3, conf={"a": "b"})
    return replace(topology(orders, payments), jobs={"dc2": job}, internal=WITHOUT_RETENTION)


def values(plan: Plan) -> Any:
    """What is shown of each change, as JSON and as text, without reasons and notes."""
    shown = {one["address"]: one["change"] for one in json_tree(plan)["resource_changes"]}
    states = {address: (one["actions"], one["before"], one["after"]) for address, one in shown.items()}
    fields = [
        (one.path, value_text(one, one.old), value_text(one, one.new))
        for change in plan.changes
        for one in change.fields
    ]
    told = [(one["path"], one["old"], one["new"]) for change in shown.values() for one in change["fields"]]
    return states, fields, told


@pytest.mark.parametrize("name", ["new", "restart"])
def test_a_plan_file_of_the_release_before_is_shown_as_it_was_and_agreed_to(name: str) -> None:
    shop = replace(topology(ORDERS, PAYMENTS), internal=WITHOUT_RETENTION, jobs={"dc2": DECLARED})
    desired = expand(shop, NOTHING)
    now = make_plan(desired, NOTHING, diff(desired, NOTHING, shop), shop)
    seen = NOTHING
    if name == "restart":
        seen, shop = simulate(now.steps, NOTHING), edited()
        desired = expand(shop, seen)
        now = make_plan(desired, seen, diff(desired, seen, shop), shop)

    older = planfile.load(OLDER / f"{name}.json").plan

    assert disagreements(older) == disagreements(now) == ()
    assert list(shown_as_running(older, seen)) == []
    assert values(older) == values(now)


def test_a_forged_value_is_told_in_an_older_plan_too(tmp_path: Path) -> None:
    envelope = json.loads((OLDER / "new.json").read_text())
    (change,) = (one for one in envelope["plan"]["changes"] if one["address"] == "flow.orders")
    change["after"]["rpo"] = "1s"
    envelope["digest"] = digest_of(envelope["plan"])
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(envelope))

    found = disagreements(planfile.load(forged).plan)

    assert any("rpo of flow.orders is not what is shown" in one.summary for one in found)
