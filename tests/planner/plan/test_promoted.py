"""Topics that a flow promotes on their own: what the plan says, what it refuses, what it leaves alone."""

from dataclasses import replace

import pytest

from planner.model.address import flow_address
from planner.model.diagnostic import ExitCode
from planner.model.observed import Observed, Unreachable
from planner.model.plan import Action, Change, Plan
from planner.model.step import AlterConfigs, DeleteAcl, ReconfigureJob
from planner.model.topology import (
    AclRule,
    Cluster,
    Flow,
    FlowState,
    Policies,
    Protect,
    StartAt,
    Topic,
    Topology,
)
from tests.fakes.states import acl, cluster, flow, live, observed, topology
from tests.planner.plan.jobs import applied, plan

PAY = r"pay\..*"
X = flow("x")
WORLD = observed(cluster(live("orders"), live("pay.eu"), live("pay.us")), cluster(name="dc2"))


def planned(after: Flow, before: Flow = X, seen: Observed = WORLD) -> Plan:
    return plan(topology(after), applied(topology(before), seen))


def promoting(*patterns: str, **more: object) -> Flow:
    return replace(X, promoted=patterns, **more)  # type: ignore[arg-type]


def change_of(made: Plan) -> Change:
    return next(one for one in made.changes if one.address == flow_address("x"))


def refused(made: Plan) -> list[tuple[str, int | None]]:
    return [(one.code, one.exit) for one in made.diagnostics if one.severity.value == "error"]


def test_the_plan_names_the_topics_and_what_follows() -> None:
    made = planned(promoting(PAY))

    change = change_of(made)
    assert change.reason == "promoted topics: pay.eu, pay.us"
    assert [(one.key, one.old, one.new) for one in change.fields] == [("promoted", (), (PAY,))]
    assert any("then their groups are moved a last time" in note for note in change.notes)
    assert [step.job for step in made.steps if isinstance(step, ReconfigureJob)] == ["dc2"]
    assert made.applyable


def test_their_mirrors_are_left_as_they_are() -> None:
    made = planned(promoting(PAY))

    touched = {str(one.address) for one in made.changes if one.action is not Action.NO_OP}
    assert touched == {"flow.x", "job.dc2"}
    after = applied(topology(promoting(PAY)), applied(topology(X), WORLD))
    here = after.reachable("dc1")
    assert here is not None
    grown = replace(here, topics={"orders": live("orders"), "pay.eu": live("pay.eu", 12)})
    again = plan(topology(promoting(PAY)), Observed({**after.clusters, "dc1": grown}))
    assert all(one.action is Action.NO_OP for one in again.changes)


@pytest.mark.parametrize("after", [promoting(r"pay\.eu"), replace(X, state=FlowState.PROMOTED)])
def test_a_declared_topic_keeps_what_the_flow_gave_it(after: Flow) -> None:
    """Its retention would fall back to the broker's, and its bounds before the last record is there."""
    declared = (Topic("pay.eu", "dc2", config={"max.message.bytes": "2000000"}),)
    here = cluster(live("orders"), live("pay.eu", retention_ms="100"))
    seen = applied(replace(topology(X), topics=declared), observed(here, cluster(name="dc2")))

    made = plan(replace(topology(after), topics=declared), seen)

    assert not [step for step in made.steps if isinstance(step, AlterConfigs)]
    assert made.applyable


@pytest.mark.parametrize(
    ("after", "legal"),
    [
        (promoting(PAY), True),
        (promoting(PAY, "orders2"), True),
        (promoting("orders"), False),
        (X, False),
        (replace(X, state=FlowState.PAUSED), False),
        (replace(X, restart_from=StartAt("latest")), True),
        (replace(X, restart_from=StartAt("earliest")), False),
        (replace(X, state=FlowState.PROMOTED), True),
    ],
)
def test_what_was_promoted_stays_so(after: Flow, legal: bool) -> None:
    found = refused(planned(after, before=promoting(PAY, restart_from=StartAt("earliest"))))

    assert (("transition", ExitCode.REFUSED) in found) is not legal


def test_a_file_that_is_out_of_date_is_told_so() -> None:
    made = planned(X, before=promoting(PAY))

    (one,) = [one for one in made.diagnostics if one.code == "transition"]
    assert str(one).startswith(
        rf"flow.x: its topics {PAY} were promoted, and can't become active — write {PAY} under promoted"
    )
    assert "over a promoted reverse flow (repl failback) or with a new restart_from" in one.way_out
    assert not made.applyable


def test_what_stays_promoted_when_the_flow_comes_back_is_said() -> None:
    gone = promoting(PAY, state=FlowState.FAILED_OVER)

    (stays, mend) = change_of(planned(promoting(PAY), before=gone)).notes
    assert stays == "stays promoted, and is not copied to dc2 again: pay.eu, pay.us"
    assert "take it out of promoted with this very change" in mend
    assert change_of(planned(X, before=gone)).notes == ()


@pytest.mark.parametrize(
    ("after", "code", "says"),
    [
        (promoting("pay.e"), "promotes-nothing", "did you mean pay.eu?"),
        (promoting("zzz"), "promotes-nothing", "it copies orders, pay.eu, pay.us"),
        (promoting(".*"), "promotes-all", "promote the flow: repl promote x"),
        (promoting(PAY, state=FlowState.PAUSED), "transition", "repl resume x"),
    ],
)
def test_what_can_not_be_promoted(after: Flow, code: str, says: str) -> None:
    made = planned(after)

    (one,) = [one for one in made.diagnostics if one.code == code]
    assert says in one.way_out
    assert not made.applyable


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (promoting(PAY), X),
        (X, promoting(PAY)),
        (X, replace(X, state=FlowState.FAILED_OVER)),
    ],
)
def test_while_the_source_does_not_answer(after: Flow, before: Flow) -> None:
    """Its job would be told all the same."""
    seen = applied(topology(before), WORLD)
    silent = Observed({**seen.clusters, "dc1": Unreachable("dc1", "no answer")})

    assert ("transition", ExitCode.REFUSED) in refused(plan(topology(after), silent))


def secured(one: Flow) -> Topology:
    job = {"security.protocol": "SASL_SSL", "sasl.username": "job"}
    clusters = (Cluster("dc1", "dc1:9092"), Cluster("dc2", "dc2:9092", client=job))
    return topology(replace(one, protect=Protect.ACL, acls_sync=True), clusters=clusters)


def test_writers_are_let_in_once_the_flow_has_let_go_and_readers_stay() -> None:
    readers = [acl("READ", resource="orders"), acl("READ", resource="pay.eu")]
    writer = AclRule("dc2", "TOPIC", "pay.eu", "LITERAL", "User:shop", "*", "WRITE", "ALLOW")
    there = cluster(name="dc2", acls=[writer], owned=())
    seen = applied(secured(X), observed(cluster(live("orders"), live("pay.eu"), acls=readers), there))
    before = seen.reachable("dc2")
    assert before is not None
    assert len(before.acls or ()) == 4

    made = plan(secured(promoting(r"pay\.eu")), seen)

    (lifted,) = [step for step in made.steps if isinstance(step, DeleteAcl)]
    assert (lifted.rule.permission, lifted.rule.operation, lifted.rule.resource) == (
        "DENY",
        "WRITE",
        "pay.eu",
    )
    assert "own:flow.x" in lifted.needs
    ended = plan(secured(replace(X, state=FlowState.PROMOTED)), seen)
    assert [step.rule for step in ended.steps if isinstance(step, DeleteAcl)] == [lifted.rule]


@pytest.mark.parametrize("after", [promoting(r"pay\.eu"), replace(X, state=FlowState.FAILED_OVER)])
def test_readers_stay_when_the_topology_declares_what_was_a_mirror(after: Flow) -> None:
    """The team of the topic moved; who reads it did not."""
    here = cluster(live("orders"), live("pay.eu"), acls=[acl("READ", resource="pay.eu")])
    seen = applied(secured(X), observed(here, cluster(name="dc2", acls=(), owned=())))
    seen = applied(secured(after), seen)
    declared = replace(secured(after), topics=(Topic("pay.eu", "dc2"),))

    for _ in range(2):  # as it is declared, and ever after
        assert not [step for step in plan(declared, seen).steps if isinstance(step, DeleteAcl)]
        seen = applied(declared, seen)


@pytest.mark.parametrize(
    ("after", "refused_"),
    [
        (replace(X, state=FlowState.FAILED_OVER), False),
        (promoting(PAY), False),
        (replace(X, protect=Protect.OFF), True),
    ],
)
def test_protection_that_ends_with_its_flow_counts_for_no_limit(after: Flow, refused_: bool) -> None:
    writers = [acl("WRITE", cluster="dc2", resource=one) for one in ("pay.eu", "pay.us")]
    there = cluster(name="dc2", acls=writers, owned=())
    seen = applied(secured(X), observed(cluster(live("orders"), live("pay.eu"), live("pay.us")), there))
    strict = replace(secured(after), policies=Policies(max_deletes=1))

    made = plan(replace(strict, flows={"x": after}) if refused_ else strict, seen)

    assert len([step for step in made.steps if isinstance(step, DeleteAcl)]) == 2
    assert ("max-deletes" in [one.code for one in made.diagnostics]) is refused_


def test_a_rule_on_a_prefix_stays_one_when_a_topic_under_it_is_promoted() -> None:
    readers = [acl("READ", pattern="PREFIXED", resource="pay.")]
    here = cluster(live("orders"), live("pay.eu"), live("pay.us"), acls=readers)
    seen = applied(secured(X), observed(here, cluster(name="dc2", acls=(), owned=())))

    made = plan(secured(promoting(r"pay\.eu")), seen)

    assert {str(one.address) for one in made.changes if one.action is not Action.NO_OP} == {
        "flow.x",
        "job.dc2",
    }
    assert "acl-prefix" not in [one.code for one in made.diagnostics]
