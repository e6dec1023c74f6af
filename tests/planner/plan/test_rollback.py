"""Undoing an apply: the clusters are as before it, and what stays as it is is said."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.model.address import Address, Kind, topic_address
from planner.model.change import SENSITIVE, Action
from planner.model.diagnostic import Severity
from planner.model.observed import ConfigSource, ConfigValue, Observed, RegistryEntry, Unreachable
from planner.model.plan import Plan
from planner.model.step import Step
from planner.model.topology import Acl, AclRule, OnRemove, Quota, Topic, Topology
from planner.plan.rollback import read_request_of
from planner.plan.steps.jobs import LaunchJob
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.fakes.worlds import states, topologies
from tests.planner.plan.jobs import NOTHING, applied, at, plan, record_of, steps_of, there, undo

A = topic_address("dc1", "a")
RULE = AclRule("dc1", "TOPIC", "a", "LITERAL", "User:app", "*", "READ", "ALLOW")


def shop(*topics: Topic, acls: tuple[AclRule, ...] = (), quota: dict[str, Any] | None = None) -> Topology:
    quotas = (Quota("dc1", user="loader", **quota),) if quota else ()
    return replace(topology(), topics=topics, acls=tuple(Acl(rule) for rule in acls), quotas=quotas)


def topic(name: str = "a", **more: Any) -> Topic:
    return Topic(**{"cluster": "dc1", "name": name, "partitions": 6, **more})


def at_cluster(seen: Observed, name: str = "dc1") -> object:
    """What a cluster holds, without the ids of topics and what is remembered of them."""
    at = there(seen, name)
    topics = {
        one.name: (dict(one.config), [len(replicas) for replicas in one.replicas])
        for one in at.topics.values()
    }
    return topics, set(at.acls or ()), {name: dict(limits) for name, limits in at.quotas.items()}


def remembered(seen: Observed) -> dict[Address, tuple[object, ...]]:
    return {
        one.address: (one.config, one.limits, one.protect, one.on_remove) for one in there(seen, "dc1").owned
    }


def said(result: Plan) -> list[str]:
    return [one.summary for one in result.diagnostics if one.code == "not-undone"]


def done(after: Topology, was: Observed) -> tuple[tuple[Step, ...], Observed]:
    """The steps of an apply of this topology, and the clusters after it."""
    steps = plan(after, was).steps
    return steps, simulate(steps, was)


RETENTION = topic(config={"retention.ms": "1"})
LIMIT, HIGHER = {"producer_byte_rate": 5.0}, {"producer_byte_rate": 7.0}
EMPTY = observed(cluster(live("a"), acls=(), owned=()), cluster(name="dc2"))


@cases(
    "before after",
    {
        "a setting that changed": (shop(RETENTION), shop(topic(config={"retention.ms": "2"}))),
        "a setting that came": (shop(topic()), shop(RETENTION)),
        "a setting that went": (shop(RETENTION), shop(topic())),
        "replicas that moved": (shop(topic(replication=3)), shop(topic(replication=1))),
        "a topic that came": (shop(topic()), shop(topic(), topic("b", config={"retention.ms": "1"}))),
        "a topic that was adopted": (shop(topic("b")), shop(topic("b"), topic())),
        "protection": (shop(topic()), shop(topic(protect=True))),
        "what removal means": (shop(topic()), shop(topic(on_remove=OnRemove.DELETE))),
        "a rule that came": (shop(topic()), shop(topic(), acls=(RULE,))),
        "a rule that went": (shop(topic(), acls=(RULE,)), shop(topic())),
        "a quota that came": (shop(topic()), shop(topic(), quota=LIMIT)),
        "a quota that changed": (
            shop(topic(), quota=LIMIT),
            shop(topic(), quota=HIGHER),
        ),
        "a limit that came": (shop(quota=LIMIT), shop(quota={**LIMIT, "request_percentage": 12.5})),
        "a quota that went": (shop(topic(), quota=LIMIT), shop(topic())),
    },
)
def test_the_clusters_are_as_before(before: Topology, after: Topology) -> None:
    was = applied(before, EMPTY)
    steps, now = done(after, was)
    assert steps
    back = undo(now, *steps, before=was)
    assert said(back) == []
    end = simulate(back.steps, now)
    assert at_cluster(end) == at_cluster(was)
    assert remembered(end) == remembered(was)
    assert {change.reason for change in back.changes} == {"undoes apply X1"}
    nothing = undo(now, *steps, before=was, failed=[step.id for step in steps])
    assert (nothing.changes, nothing.steps) == ((), ())  # only what was done is undone


@pytest.mark.slow
@given(topologies() | st.just(topology()), topologies(), states())
def test_any_apply_is_undone_or_says_what_stays(first: Topology, second: Topology, seen: Observed) -> None:
    seen = Observed({name: replace(one, owned=(), jobs=()) for name, one in seen.clusters.items()})
    earlier = plan(first, seen)
    assume(not earlier.errored)
    was = simulate(earlier.steps, seen)
    made = plan(second, was)
    assume(not made.errored)
    now = simulate(made.steps, was)
    back = undo(now, *made.steps, before=was)
    end = simulate(back.steps, now)
    if not said(back):
        for name in ("dc1", "dc2"):
            assert at_cluster(end, name) == at_cluster(was, name)
            assert running(end, name) == running(was, name)


def running(seen: Observed, name: str) -> list[str]:
    return [job.name for job in there(seen, name).jobs if job.live]


create = CreateTopic("create", A, "dc1", "a", 6, 3, {"retention.ms": "1"})
alter = AlterConfigs("alter", A, "dc1", "a", {"retention.ms": "2"}, (), {"retention.ms": "1"})
secret = AlterConfigs("alter", A, "dc1", "a", {"x.password": "new"}, (), {"x.password": SENSITIVE})
reassign = Reassign("reassign", A, "dc1", "a", ((1, 2),), ((1,),))
uneven = Reassign("reassign", A, "dc1", "a", ((1, 2), (1, 2)), ((1, 2), (1,)))
grow = GrowPartitions("grow", A, "dc1", "a", 1, 6)
delete = DeleteTopic("delete", A, "dc1", "a", "ID")


def world(**config: Any) -> Observed:
    return observed(cluster(live("a", topic_id="ID", **config), owned=[entry()]))


def entry(topic_id: str = "ID") -> RegistryEntry:
    return RegistryEntry(A, "shop", {"id": topic_id, "partitions": "6"}, created=True)


GONE = observed(cluster(owned=[entry()]))
DOWN = Observed({"dc1": Unreachable("dc1", "refused")})
MOVED = at(world(), "dc1", topics={"a": replace(live("a"), replicas=((2, 3),))})


@cases(
    "seen step why",
    {
        "another topic has its name": (
            at(world(retention_ms="1"), "dc1", owned=[entry("OTHER")]),
            create,
            "create: another topic has its name now",
        ),
        "a topic that is gone": (GONE, create, "create: was deleted since"),
        "configs of a topic that is gone": (GONE, alter, "configure: was deleted since"),
        "a setting that changed since": (
            world(retention_ms="77"),
            alter,
            "configure: retention.ms is 77 now, the plan has 2",
        ),
        "a secret": (
            world(x_password="new"),
            secret,
            "configure: x.password: the old value was never read",
        ),
        "growth": (world(), grow, "grow: partitions only grow"),
        "a deletion": (GONE, replace(delete), "delete: its records are gone"),
        "replicas that moved on": (MOVED, reassign, "reassign: its replicas moved since"),
        "replicas that were uneven": (
            at(world(), "dc1", topics={"a": replace(live("a", topic_id="ID"), replicas=((1, 2), (1, 2)))}),
            uneven,
            "reassign: its partitions had different numbers of replicas",
        ),
        "a silent cluster": (DOWN, alter, "configure: dc1 does not answer"),
    },
)
def test_what_stays_is_said(seen: Observed, step: Any, why: str) -> None:
    result = undo(seen, step)
    verb, _, reason = why.partition(": ")
    assert (said(result), result.steps) == ([f"{verb} topic.dc1.a is not undone: {reason}"], ())


DELETED: dict[str, Any] = {"topics": {}}
MADE_AGAIN = {"topics": {"a": live("a", topic_id="HAND", retention_ms="2")}}
AS_OTHERS = {"owned": (RegistryEntry(A, "other", {"id": "id:a"}),)}
SHORTER = topic(config={"retention.ms": "2"})


@cases(
    "after since why",
    {
        "it was forgotten": (topic("b"), {}, "forget: it is not managed any more"),
        "deleted": (topic(protect=True), DELETED, "register: was deleted since"),
        "made again": (topic(protect=True), MADE_AGAIN, "register: another topic has its name now"),
        "a setting of one that was made again": (
            SHORTER,
            MADE_AGAIN,
            "configure: another topic has its name now",
        ),
        "another topology has it": (SHORTER, AS_OTHERS, "configure: owned by topology 'other' now"),
    },
)
def test_a_topic_that_is_not_as_the_apply_left_it_stays(
    after: Topic, since: dict[str, Any], why: str
) -> None:
    was = applied(shop(topic()), EMPTY)
    steps, now = done(shop(after), was)
    result = undo(at(now, "dc1", **since), *steps, before=was)
    verb, _, reason = why.partition(": ")
    assert said(result) == [f"{verb} topic.dc1.a is not undone: {reason}"]
    assert A not in {change.address for change in result.changes} | {step.address for step in result.steps}


def test_of_the_changed_settings_and_limits_those_that_changed_since_stay() -> None:
    before = shop(
        topic(config={"retention.ms": "1", "segment.ms": "9"}), quota={**LIMIT, "request_percentage": 5.0}
    )
    after = shop(topic(config={"retention.ms": "2"}), quota={**HIGHER, "request_percentage": 6.0})
    was = applied(before, EMPTY)
    steps, now = done(after, was)
    (name,) = there(now, "dc1").quotas
    by_hand = replace(there(now, "dc1").topics["a"], config=live("a", retention_ms="77").config)
    limits = {"producer_byte_rate": 99.0, "request_percentage": 6.0}
    back = undo(at(now, "dc1", topics={"a": by_hand}, quotas={name: limits}), *steps, before=was)
    (altered,), (quota,) = steps_of(back, AlterConfigs), steps_of(back, AlterQuota)
    assert (altered.set, altered.unset) == ({"segment.ms": "9"}, ())
    assert (quota.set, quota.unset) == ({"request_percentage": 5.0}, ())
    assert said(back) == [
        "configure topic.dc1.a is not undone: retention.ms is 77 now, the plan has 2",
        f"configure quota.dc1.{name} is not undone: producer_byte_rate is 99.0 now, the plan has 7.0",
    ]


def test_an_adopted_topic_that_was_configured_since_is_not_forgotten() -> None:
    steps, adopted = done(shop(topic()), EMPTY)
    for later in (topic(config={"retention.ms": "2"}), topic(protect=True)):
        back = undo(applied(shop(later), adopted), *steps)
        assert (back.steps, said(back)) == ((), ["register topic.dc1.a is not undone: it was changed since"])


def test_a_history_that_says_an_adopted_topic_was_created_deletes_nothing() -> None:
    """Who may write the history may say so; the registry knows that the topic was there before."""
    without = observed(cluster(acls=(), owned=()), cluster(name="dc2"))
    (forged,) = (step for step in plan(shop(topic()), without).steps if isinstance(step, CreateTopic))
    for kept in (topic(), topic(on_remove=OnRemove.DELETE), topic(protect=True)):
        back = undo(applied(shop(kept), EMPTY), forged)
        assert (back.changes, back.steps) == ((), ())
        (sentence,) = said(back)
        assert sentence == "create topic.dc1.a is not undone: the registry says that it was adopted"


def test_a_history_that_says_another_apply_made_a_protected_topic_is_refused() -> None:
    without = observed(cluster(acls=(), owned=()), cluster(name="dc2"))
    steps, now = done(shop(topic(protect=True)), without)
    back = undo(now, *(step for step in steps if isinstance(step, CreateTopic)))
    assert [one.code for one in back.diagnostics if one.severity is Severity.ERROR] == ["protect"]


def test_what_an_apply_did_and_could_not_register_is_said() -> None:
    steps = plan(shop(topic(config={"retention.ms": "2"})), EMPTY).steps
    (alter,) = (step for step in steps if isinstance(step, AlterConfigs))
    failed = [step.id for step in steps if step is not alter]
    back = undo(simulate([alter], EMPTY), *steps, failed=failed)
    assert (back.steps, said(back)) == ((), ["configure topic.dc1.a is not undone: it was not registered"])


def test_each_partition_gets_the_brokers_back_that_it_had() -> None:
    brokers = there(EMPTY, "dc1").brokers
    uncommon = ((3, 1), (2, 3), (1, 2), (3, 2), (2, 1), (1, 3))
    placed = at(EMPTY, "dc1", topics={"a": replace(live("a"), replicas=uncommon)}, brokers=brokers)
    was = applied(shop(topic(replication=2)), placed)
    steps, now = done(shop(topic(replication=1)), was)
    assert there(simulate(undo(now, *steps, before=was).steps, now), "dc1").topics["a"].replicas == uncommon


def test_a_secret_is_not_unset() -> None:
    hidden = ConfigValue(None, ConfigSource.TOPIC, sensitive=True)
    held = replace(live("a"), config={"x.password": hidden})
    was = applied(shop(topic()), at(EMPTY, "dc1", topics={"a": held}))
    steps, now = done(shop(topic(config={"x.password": "new", "retention.ms": "2"})), was)
    back = undo(now, *steps, before=was)
    (altered,) = steps_of(back, AlterConfigs)
    assert (altered.set, altered.unset) == ({}, ("retention.ms",))
    assert said(back) == ["configure topic.dc1.a is not undone: x.password: the old value was never read"]


def test_a_mirror_that_its_flow_has_grown_since_goes_with_it() -> None:
    steps, after = done(topology(flow("x")), NOTHING)
    ((name, mirror),) = there(after).topics.items()
    grown = replace(mirror, replicas=(*mirror.replicas, (1,)), config=live("a", retention_ms="5").config)
    back = undo(at(after, topics={name: grown}), *steps)
    assert [step.topic for step in steps_of(back, DeleteTopic)] == [name]


def test_a_launch_that_failed_leaves_no_entry() -> None:
    steps = plan(topology(flow("x"))).steps
    failed = [step.id for step in steps if isinstance(step, LaunchJob) or step.address.kind is Kind.FLOW]
    done = [step for step in steps if step.id not in failed]
    back = undo(simulate(done, NOTHING), *steps, failed=failed)
    assert there(simulate(back.steps, simulate(done, NOTHING))).owned == ()


def test_the_same_job_at_another_cluster_runs_on() -> None:
    steps, after = done(topology(flow("x")), NOTHING)
    here = there(after)
    owned = tuple(entry for entry in here.owned if entry.address.cluster is None)
    twice = at(after, "dc1", owned=owned, jobs=here.jobs)
    assert {step.cluster for step in undo(twice, *steps).steps} == {"dc2"}


def test_rules_that_cannot_be_read_are_not_known() -> None:
    was = applied(shop(topic(), acls=(RULE,)), EMPTY)
    steps, now = done(shop(topic()), was)
    unread = at(now, "dc1", acls=None, unreadable={"acls": "not authorized"})
    back = undo(unread, *steps, before=was)
    assert (back.steps, list(back.unknown.values())) == ((), ["not authorized"])


def test_a_job_that_came_is_stopped_before_what_it_filled_goes() -> None:
    steps, after = done(topology(flow("x")), NOTHING)
    back = undo(after, *steps)
    assert [(str(one.address), one.action) for one in back.changes if one.address.cluster is None] == [
        ("flow.x", Action.DELETE),
        ("job.dc2", Action.DELETE),
    ]
    (deleted,) = steps_of(back, DeleteTopic)
    assert "stop:job.dc2" in deleted.needs
    assert said(back) == []
    left = there(simulate(back.steps, after))
    assert (left.owned, [job.live for job in left.jobs]) == ((), [False])


def test_what_is_read_for_it_needs_no_job_spec_which_a_journal_does_not_hold() -> None:
    request = read_request_of(record_of(plan(topology(flow("x"))).steps), frozenset({"segment.ms"}))
    assert {name: wanted.configs.keys() for name, wanted in request.items()} == {"dc2": {"a"}}
    assert request["dc2"].explicit


def test_what_a_job_was_given_is_not_taken_back() -> None:
    runs = applied(topology(flow("x")))
    steps, now = done(topology(flow("x", rate_limit=5)), runs)
    back = undo(now, *steps, before=runs)
    assert (back.changes, said(back)) == (
        (),
        ["reconfigure job.dc2 is not undone: a job's spec comes from the topology alone"],
    )


def test_a_job_stays_with_a_flow_that_was_changed_since() -> None:
    steps, now = done(topology(flow("x")), NOTHING)
    changed = applied(topology(flow("x", rate_limit=5)), now)
    back = undo(changed, *steps)
    assert sorted(said(back)) == [
        "launch job.dc2 is not undone: its flows were changed since",
        "register flow.x is not undone: was applied differently since",
    ]
    assert [change.address.kind for change in back.changes] == [Kind.TOPIC]
