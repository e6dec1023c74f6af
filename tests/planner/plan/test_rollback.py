"""Undoing an apply: the inverse of each kind of step, and what is said where there is none."""

from typing import Any

import pytest

from planner.model.address import Address, Kind, topic_address
from planner.model.change import SENSITIVE, Action
from planner.model.observed import Observed, RegistryEntry, Unreachable, quota_spec
from planner.model.plan import Plan
from planner.model.topology import AclRule, QuotaEntity
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Disown, Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.plan.jobs import NOTHING, applied, plan, steps_of, there, undo

A = topic_address("dc1", "a")
RULE = AclRule("dc1", "TOPIC", "a", "LITERAL", "User:app", "*", "READ", "ALLOW")
ACL = Address(Kind.ACL, "dc1", RULE.name)
create = CreateTopic("create", A, "dc1", "a", 3, 1, {"retention.ms": "1"})
own_created = Own("own", A, "dc1", RegistryEntry(A, "shop", {"partitions": "3"}), needs=("create",))
adopted = Own("own", A, "dc1", RegistryEntry(A, "shop", {"partitions": "3"}))
WAS = {"retention.ms": "1", "segment.ms": "9"}
alter = AlterConfigs("alter", A, "dc1", "a", {"retention.ms": "2"}, ("segment.ms",), WAS)
unset = AlterConfigs("alter", A, "dc1", "a", {"retention.ms": "2"}, (), {"retention.ms": None})
secret = AlterConfigs("alter", A, "dc1", "a", {"x.password": "new"}, (), {"x.password": SENSITIVE})
reassign = Reassign("reassign", A, "dc1", "a", ((1, 2),), ((1,),))
raised = Reassign("reassign", A, "dc1", "a", ((1, 2), (1, 2)), ((1, 2), (1,)))
grow = GrowPartitions("grow", A, "dc1", "a", 1, 3)
delete = DeleteTopic("delete", A, "dc1", "a", "ID")
disown = Disown("disown", A, "dc1", "shop")


def topic(topic_id: str = "ID", replicas: tuple[tuple[int, ...], ...] = ((1,),), **config: Any):
    return replace(live("a", topic_id=topic_id, **config), replicas=replicas)


def world(*topics, owned: RegistryEntry | None = None, acls=()) -> Observed:
    return observed(cluster(*topics, owned=[owned] if owned else [], acls=acls))


def entry(topic_id: str = "ID", **spec: str) -> RegistryEntry:
    return RegistryEntry(A, "shop", {"id": topic_id, **spec}, created=True)


def said(result: Plan) -> list[str]:
    return [one.summary for one in result.diagnostics]


GONE, MOVED = world(), world(topic(replicas=((2, 3),)))
DOWN = Observed({"dc1": Unreachable("dc1", "refused")})
SECRET_KEPT = "configure: x.password: the old value was never read"
MOVED_SINCE = "reassign: its replicas moved since"


@cases(
    "seen step why",
    {
        "another topic has its name": (
            world(topic("OTHER"), owned=entry("ID")),
            create,
            "create: another topic has its name now",
        ),
        "a topic that is gone": (GONE, create, "create: it is gone already"),
        "configs of a topic that is gone": (GONE, alter, "configure: the topic is gone"),
        "a secret": (world(topic(x_password="new")), secret, SECRET_KEPT),
        "growth": (world(topic()), grow, "grow: partitions only grow"),
        "a deletion": (world(topic()), delete, "delete: its records are gone"),
        "an entry": (world(topic()), disown, "forget: its former registry entry is not kept"),
        "replicas that moved on": (MOVED, reassign, MOVED_SINCE),
        "a silent cluster": (DOWN, alter, "configure: dc1 does not answer"),
        "a rule that is gone": (GONE, CreateAcl("c", ACL, "dc1", RULE), ""),
        "an entry that was written again": (world(topic(), owned=entry(partitions="6")), adopted, ""),
    },
)
def test_what_has_no_inverse_is_said(seen: Observed, step, why: str) -> None:
    result = undo(seen, step)
    assert result.steps == ()
    verb, _, reason = why.partition(": ")
    assert not why or said(result) == [f"{verb} topic.dc1.a is not undone: {reason}"]


@cases(
    "seen step changed unset old",
    {
        "values go back": (
            world(topic(retention_ms="2")),
            alter,
            WAS,
            (),
            {"retention.ms": "2", "segment.ms": None},
        ),
        "one that was not set is unset": (
            world(topic(retention_ms="2")),
            unset,
            {},
            ("retention.ms",),
            {"retention.ms": "2"},
        ),
        "one that was changed since stays": (
            world(topic(retention_ms="77")),
            alter,
            {"segment.ms": "9"},
            (),
            {"segment.ms": None},
        ),
    },
)
def test_configs_go_back_to_what_they_were(seen, step, changed, unset, old) -> None:
    result = undo(seen, step)
    [back] = steps_of(result, AlterConfigs)
    assert (back.set, back.unset, back.old) == (changed, unset, old)
    moved = {one.key: (one.old, one.new) for one in result.changes[0].fields}
    assert moved == {key: (old[key], changed.get(key)) for key in old}
    stays = "retention.ms" not in old
    assert said(result) == ["configure topic.dc1.a is not undone: retention.ms: changed since"] * stays
    nothing = undo(seen, step, failed=[step.id])
    assert (nothing.changes, nothing.steps, nothing.diagnostics) == (
        (),
        (),
        (),
    )  # only what was done is undone


def test_the_registry_goes_back_with_the_configs() -> None:
    spec = {"id": "ID", "config.retention.ms": "2"}
    result = undo(world(topic(retention_ms="2"), owned=RegistryEntry(A, "shop", spec)), alter)
    (own,) = steps_of(result, Own)
    assert own.entry.spec == {"id": "ID", "config.retention.ms": "1", "config.segment.ms": "9"}


def test_a_created_topic_is_deleted_and_an_adopted_one_forgotten() -> None:
    result = undo(world(topic(), owned=entry()), create, own_created)
    assert [(one.action, one.address) for one in result.changes] == [(Action.DELETE, A)]
    deletion, forgetting = result.steps
    assert isinstance(deletion, DeleteTopic)
    assert isinstance(forgetting, Disown)
    assert (deletion.topic_id, forgetting.needs) == ("ID", (deletion.id,))
    assert said(result) == []
    altered = undo(world(topic(retention_ms="2"), owned=entry()), create, own_created, alter)
    assert [type(one) for one in altered.steps] == [DeleteTopic, Disown]  # its settings go with it

    result = undo(world(topic(), owned=adopted.entry), adopted)
    assert [one.action for one in result.changes] == [Action.FORGET]
    assert [type(one) for one in result.steps] == [Disown]


def test_replicas_move_back_each_partition_to_its_own() -> None:
    result = undo(world(topic(replicas=((1, 2), (1, 2)))), raised)
    [back], [change] = steps_of(result, Reassign), result.changes
    assert (back.replicas, back.old) == (raised.old, raised.replicas)
    assert [(one.path, one.old, one.new) for one in change.fields] == [(("replication",), 2, (2, 1))]


def test_several_changes_of_one_object_are_one() -> None:
    [change] = undo(world(topic(replicas=((1, 2),), retention_ms="2")), alter, reassign).changes
    assert [one.path[0] for one in change.fields] == ["replication", "config", "config"]


def test_acls_both_ways() -> None:
    created = undo(world(acls=[RULE]), CreateAcl("c", ACL, "dc1", RULE))
    deleted = undo(world(), DeleteAcl("d", ACL, "dc1", RULE))
    assert [type(one) for one in created.steps] == [DeleteAcl, Disown]
    assert [type(one) for one in deleted.steps] == [CreateAcl]


def test_a_job_that_came_is_stopped_before_what_it_filled_goes() -> None:
    steps = plan(topology(flow("x"))).steps
    after = simulate(steps, NOTHING)
    back = undo(after, *steps)
    assert [(str(one.address), one.action) for one in back.changes if one.address.cluster is None] == [
        ("flow.x", Action.DELETE),
        ("job.dc2", Action.DELETE),
    ]
    (deleted,) = steps_of(back, DeleteTopic)
    assert "stop:job.dc2" in deleted.needs
    assert back.diagnostics == ()
    left = there(simulate(back.steps, after))
    assert (left.owned, [job.live for job in left.jobs]) == ((), [False])


def test_what_a_job_was_told_is_not_taken_back() -> None:
    runs = applied(topology(flow("x")))
    steps = plan(topology(flow("x", rate_limit=5)), runs).steps
    back = undo(simulate(steps, runs), *steps)
    assert back.changes == ()
    assert "reconfigure job.dc2 is not undone" in back.diagnostics[0].summary


def test_a_flow_that_was_changed_since_keeps_its_entry() -> None:
    steps = plan(topology(flow("x"))).steps
    changed = applied(topology(flow("x", rate_limit=5)), simulate(steps, NOTHING))
    assert "register flow.x is not undone: it was changed since" in said(undo(changed, *steps))


LOADER = QuotaEntity("loader")
QUOTA = Address(Kind.QUOTA, "dc1", LOADER.name)
BEFORE, AFTER = {"producer_byte_rate": 5}, {"producer_byte_rate": 7, "request_percentage": 12.5}
limit = AlterQuota(
    "alter", QUOTA, "dc1", LOADER, AFTER, (), {"producer_byte_rate": 5, "request_percentage": None}
)
made = replace(limit, old=dict.fromkeys(AFTER))
removed = AlterQuota("delete", QUOTA, "dc1", LOADER, {}, tuple(AFTER), AFTER)


def quotas(values, entry=None) -> Observed:
    remembered = [RegistryEntry(QUOTA, "shop", quota_spec(LOADER, entry), created=True)] if entry else []
    return observed(cluster(owned=remembered, quotas={LOADER.name: values} if values else {}))


@cases(
    "seen step action after",
    {
        "limits go back": (quotas(AFTER, AFTER), limit, Action.UPDATE, BEFORE),
        "a quota that was made is removed": (quotas(AFTER, AFTER), made, Action.DELETE, None),
        "a quota that was removed is made": (quotas({}), removed, Action.CREATE, AFTER),
        "a limit that changed since is left alone": (
            quotas({**AFTER, "producer_byte_rate": 9}, AFTER),
            limit,
            Action.UPDATE,
            {"producer_byte_rate": 9},
        ),
    },
)
def test_quotas_go_back_and_are_remembered_so(seen, step, action, after) -> None:
    result = undo(seen, step)
    assert [one.action for one in result.changes] == [action]
    at = there(simulate(result.steps, seen), "dc1")
    assert at.quotas == ({LOADER.name: after} if after else {})
    if action is Action.DELETE:
        assert at.owned == ()
    if after is BEFORE:
        assert result.changes[0].after == {"user": "loader", **BEFORE}
        assert (at.owned[0].spec["user"], at.owned[0].limits) == (LOADER.user, BEFORE)
    stays = after == {"producer_byte_rate": 9}
    assert said(result) == [f"configure {QUOTA} is not undone: producer_byte_rate: changed since"] * stays


@pytest.mark.parametrize("step", [limit, made])
def test_a_quota_whose_limits_all_changed_since_is_left_alone(step) -> None:
    assert undo(quotas({"producer_byte_rate": 9}), step).changes == ()
