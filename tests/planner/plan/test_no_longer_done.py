"""Which changes since an apply of a plan make its finished steps stale, and in which words."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import acl_entry, announced
from planner.model.address import Address, Kind
from planner.model.desired import Declared, DesiredAcl
from planner.model.observed import Observed, ObservedTopic
from planner.model.plan import Plan
from planner.model.step import CreateAcl, Own
from planner.model.topology import AclRule, FlowState, OnRemove
from planner.plan import make_plan
from planner.plan.fingerprint import no_longer_done
from tests.fakes.simulated import simulate
from tests.fakes.states import SHOP, acl, cluster, desired, flow, live, observed, owned, topology, wanted
from tests.planner.plan.jobs import applied, dead, plan

WEEK, DAY = "604800000", "86400000"
MADE = wanted("made", 2, retention_ms=WEEK)
GROWN = wanted("grown", 4, segment_ms=DAY)
BEFORE = observed(
    cluster(
        live("grown", 2, topic_id="g"),
        live("old", topic_id="o"),
        owned=[
            owned(wanted("grown", 2), topic_id="g"),
            owned(wanted("old"), topic_id="o", on_remove=OnRemove.DELETE),
        ],
    )
)


def made() -> Plan:
    asked, shop = desired(MADE, GROWN), topology()
    return make_plan(asked, BEFORE, diff(asked, BEFORE, shop), shop)


AFTER = simulate(made().steps, BEFORE)


def said(now: Observed, done: frozenset[str] | None = None) -> list[str]:
    steps = made().steps
    ids = frozenset(step.id for step in steps) if done is None else done
    return [f"{one.address} {one.summary}" for one in no_longer_done(steps, ids, now)]


def with_topics(*changed: ObservedTopic, without: str = "") -> Observed:
    (there,) = (AFTER.reachable("dc1"),)
    assert there is not None
    topics = {**there.topics, **{one.name: one for one in changed}}
    topics.pop(without, None)
    return observed(replace(there, topics=topics))


def test_nothing_changed_since() -> None:
    assert said(AFTER) == []


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (with_topics(without="made"), "topic.dc1.made was deleted since"),
        (
            with_topics(live("made", 3, retention_ms=WEEK)),
            "topic.dc1.made has 3 partitions now, the plan gave it 2",
        ),
        (
            with_topics(live("made", 2, retention_ms=DAY)),
            "topic.dc1.made retention.ms is 1d now, the plan made it 7d",
        ),
        (
            with_topics(live("made", 2, inherited={"retention.ms": WEEK})),
            "topic.dc1.made retention.ms is not set now, the plan made it 7d",
        ),
        (
            with_topics(live("grown", 5, segment_ms=DAY)),
            "topic.dc1.grown has 5 partitions now, the plan gave it 4",
        ),
        (
            with_topics(live("grown", 4, segment_ms=WEEK)),
            "topic.dc1.grown segment.ms is 7d now, the plan made it 1d",
        ),
        (with_topics(live("old")), "topic.dc1.old was created again since"),
    ],
)
def test_what_changed_since_is_said_in_the_units_of_a_plan(now: Observed, difference: str) -> None:
    assert said(now) == [difference]


def test_another_setting_is_none_of_its_business() -> None:
    assert said(with_topics(live("made", 2, retention_ms=WEEK, segment_ms="1"))) == []


def test_what_was_not_done_is_not_looked_at() -> None:
    assert said(with_topics(without="made"), frozenset({"grow:topic.dc1.grown"})) == []


def test_an_entry_that_changed_since() -> None:
    there = AFTER.reachable("dc1")
    assert there is not None
    protected = tuple(replace(one, protect=True) for one in there.owned if one.address.name == "made")
    others = tuple(one for one in there.owned if one.address.name != "made")

    assert said(observed(replace(there, owned=others))) == ["topic.dc1.made is not managed any more"]
    assert said(observed(replace(there, owned=(*others, *protected)))) == [
        "topic.dc1.made was applied differently since"
    ]


RULE = acl()
RULE_MADE = CreateAcl("create", Address(Kind.ACL, "dc1", RULE.name), "dc1", RULE)


@pytest.mark.parametrize(("acls", "differences"), [([RULE], []), ([], ["was deleted since"]), (None, [])])
def test_a_rule_that_was_made(acls: list[AclRule] | None, differences: list[str]) -> None:
    found = no_longer_done([RULE_MADE], {"create"}, observed(cluster(acls=acls)))

    assert [one.summary for one in found] == differences


def test_what_a_rule_was_announced_as_tells_nothing_of_how_it_ended() -> None:
    """The last entry of an object counts, and only once it was written."""
    entry = acl_entry(DesiredAcl(RULE, Declared()), SHOP, created=True)
    address = entry.address
    steps = (
        Own("announce", address, "dc1", announced(entry)),
        RULE_MADE,
        Own("own", address, "dc1", entry, ("create",)),
    )
    now = observed(cluster(acls=[RULE], owned=[entry]))

    assert no_longer_done(steps, {"announce", "create"}, now) == ()
    assert no_longer_done(steps, {"announce", "create", "own"}, now) == ()


X = flow("x")


@pytest.mark.parametrize(
    ("now", "differences"),
    [
        (applied(topology(X)), []),
        (dead(applied(topology(X))), ["does not run any more"]),
        (
            applied(topology(replace(X, rate_limit=5)), applied(topology(X))),
            ["was applied differently since"],
        ),
    ],
)
def test_a_job_that_changed_since(now: Observed, differences: list[str]) -> None:
    steps = plan(topology(X)).steps

    found = {one.summary for one in no_longer_done(steps, {step.id for step in steps}, now)}

    assert set(differences) <= found
    assert bool(found) is bool(differences)


def test_a_job_that_ended_its_flow_and_was_stopped() -> None:
    before = applied(topology(X))
    ended = plan(topology(replace(X, state=FlowState.FAILED_OVER)), before)
    after = simulate(ended.steps, before)
    there = after.reachable("dc2")
    assert there is not None
    again = tuple(replace(job, live=True) for job in there.jobs)

    ids = {step.id for step in ended.steps}
    assert no_longer_done(ended.steps, ids, after) == ()
    found = no_longer_done(ended.steps, ids, Observed({**after.clusters, "dc2": replace(there, jobs=again)}))
    assert [one.summary for one in found] == ["runs again"]
