"""Undoing an apply: the inverse of each kind of step, and what is said where there is none."""

from collections.abc import Mapping
from dataclasses import replace

from planner.model.address import Address, Kind, topic_address
from planner.model.observed import (
    ConfigSource,
    ConfigValue,
    Observed,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    Unreachable,
    quota_spec,
    recorded_quota,
)
from planner.model.plan import SENSITIVE, Action
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    ApplyRecord,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    Own,
    Reassign,
    Step,
    StepResult,
)
from planner.model.topology import AclRule, QuotaEntity
from planner.plan.rollback import Rollback, roll_back
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import plan

A = topic_address("dc1", "a")
RULE = AclRule("dc1", "TOPIC", "a", "LITERAL", "User:app", "*", "READ", "ALLOW")
ACL = Address(Kind.ACL, "dc1", RULE.name)

create = CreateTopic("create", A, "dc1", "a", 3, 1, {"retention.ms": "1"})
own_created = Own("own", A, "dc1", RegistryEntry(A, "shop", {"partitions": "3"}), ("create",))
alter = AlterConfigs(
    "alter", A, "dc1", "a", {"retention.ms": "2"}, ("segment.ms",), {"retention.ms": "1", "segment.ms": "9"}
)
reassign = Reassign("reassign", A, "dc1", "a", ((1, 2),), ((1,),))


def topic(
    topic_id: str = "ID", replicas: tuple[tuple[int, ...], ...] = ((1,),), **config: str
) -> ObservedTopic:
    values = {key.replace("_", "."): ConfigValue(value, ConfigSource.TOPIC) for key, value in config.items()}
    return ObservedTopic("a", topic_id, replicas, values)


def world(*topics: ObservedTopic, owned: RegistryEntry | None = None, acls=()) -> Observed:
    cluster = ObservedCluster(
        "dc1", "C", (), {one.name: one for one in topics}, acls=tuple(acls), owned=(owned,) if owned else ()
    )
    return Observed({"dc1": cluster})


def undo(observed: Observed, *steps: Step, failed: tuple[str, ...] = ()) -> Rollback:
    told = {step.id: StepResult("failed" if step.id in failed else "done") for step in steps}
    applied = ApplyRecord(
        "X1", "shop", "apply", "p", "u", "h", 1, None, {"dc1": "C"}, len(steps), 0, steps=steps, outcomes=told
    )
    return roll_back(applied, observed)


def said(result: Rollback) -> list[str]:
    return [one.summary for one in result.diagnostics]


def entry(topic_id: str = "ID", **spec: str) -> RegistryEntry:
    return RegistryEntry(A, "shop", {"id": topic_id, **spec}, created=True)


def test_a_created_topic_is_deleted_and_forgotten():
    result = undo(world(topic(), owned=entry()), create, own_created)
    assert [(one.action, one.address) for one in result.changes] == [(Action.DELETE, A)]
    delete, disown = result.steps
    assert isinstance(delete, DeleteTopic)
    assert delete.topic_id == "ID"
    assert isinstance(disown, Disown)
    assert disown.needs == (delete.id,)
    assert said(result) == []


def test_another_topic_under_its_name_is_left_alone():
    result = undo(world(topic("OTHER"), owned=entry("ID")), create, own_created)
    assert result.steps == ()
    assert said(result) == ["create topic.dc1.a is not undone: another topic has its name now"]


def test_a_created_topic_that_is_gone_needs_nothing():
    assert said(undo(world(), create)) == ["create topic.dc1.a is not undone: it is gone already"]


def test_configs_go_back_to_what_they_were_and_the_registry_with_them():
    spec = {"config.retention.ms": "2"}
    result = undo(world(topic(retention_ms="2"), owned=RegistryEntry(A, "shop", {"id": "ID", **spec})), alter)
    back, own = result.steps
    assert isinstance(back, AlterConfigs)
    assert (back.set, back.unset) == ({"retention.ms": "1", "segment.ms": "9"}, ())
    assert back.old == {"retention.ms": "2", "segment.ms": None}
    assert isinstance(own, Own)
    assert own.entry.spec == {"id": "ID", "config.retention.ms": "1", "config.segment.ms": "9"}
    assert [(one.key, one.old, one.new) for one in result.changes[0].fields] == [
        ("retention.ms", "2", "1"),
        ("segment.ms", None, "9"),
    ]


def test_a_value_that_was_not_set_before_is_unset():
    step = AlterConfigs("alter", A, "dc1", "a", {"retention.ms": "2"}, (), {"retention.ms": None})
    [back] = undo(world(topic(retention_ms="2")), step).steps
    assert isinstance(back, AlterConfigs)
    assert (back.set, back.unset) == ({}, ("retention.ms",))


def test_what_somebody_changed_since_is_theirs():
    result = undo(world(topic(retention_ms="77")), alter)
    [back] = result.steps
    assert isinstance(back, AlterConfigs)
    assert back.set == {"segment.ms": "9"}
    assert said(result) == ["configure topic.dc1.a is not undone: retention.ms: changed since"]


def test_a_secret_that_was_never_read_cannot_come_back():
    step = AlterConfigs("alter", A, "dc1", "a", {"x.password": "new"}, (), {"x.password": SENSITIVE})
    result = undo(world(topic(x_password="new")), step)
    assert result.steps == ()
    assert said(result) == ["configure topic.dc1.a is not undone: x.password: the old value was never read"]


def test_configs_of_a_topic_that_is_gone():
    assert said(undo(world(), alter)) == ["configure topic.dc1.a is not undone: the topic is gone"]


def test_what_has_no_inverse_is_said():
    grow = GrowPartitions("grow", A, "dc1", "a", 1, 3)
    delete = DeleteTopic("delete", A, "dc1", "a", "ID")
    disown = Disown("disown", A, "dc1", "shop")
    result = undo(world(topic()), grow, delete, disown)
    assert result.steps == ()
    assert said(result) == [
        "forget topic.dc1.a is not undone: its former registry entry is not kept",
        "delete topic.dc1.a is not undone: its records are gone",
        "grow topic.dc1.a is not undone: partitions only grow",
    ]


def test_replicas_move_back_unless_they_moved_on():
    [back] = undo(world(topic(replicas=((1, 2),))), reassign).steps
    assert isinstance(back, Reassign)
    assert (back.replicas, back.old) == (((1,),), ((1, 2),))
    moved = undo(world(topic(replicas=((2, 3),))), reassign)
    assert moved.steps == ()
    assert said(moved) == ["reassign topic.dc1.a is not undone: its replicas moved since"]


def test_acls_both_ways():
    created = undo(world(acls=[RULE]), CreateAcl("c", ACL, "dc1", RULE))
    assert [type(one) for one in created.steps] == [DeleteAcl, Disown]
    deleted = undo(world(), DeleteAcl("d", ACL, "dc1", RULE))
    assert [type(one) for one in deleted.steps] == [CreateAcl]
    gone = undo(world(), CreateAcl("c", ACL, "dc1", RULE))
    assert gone.steps == ()


def test_an_adopted_object_is_forgotten_again():
    own = Own("own", A, "dc1", RegistryEntry(A, "shop", {"partitions": "3"}))
    result = undo(world(topic(), owned=own.entry), own)
    assert [one.action for one in result.changes] == [Action.FORGET]
    assert [type(one) for one in result.steps] == [Disown]


def test_an_entry_that_was_written_again_since_stays():
    own = Own("own", A, "dc1", RegistryEntry(A, "shop", {"partitions": "3"}))
    assert undo(world(topic(), owned=RegistryEntry(A, "shop", {"partitions": "6"})), own).steps == ()


def test_only_what_was_done_is_undone():
    assert undo(world(topic(retention_ms="2")), alter, failed=("alter",)) == Rollback((), (), ())


def test_a_cluster_that_does_not_answer_is_said():
    result = undo(Observed({"dc1": Unreachable("dc1", "refused")}), alter)
    assert said(result) == ["configure topic.dc1.a is not undone: dc1 does not answer"]


def test_several_changes_of_one_object_are_one():
    result = undo(world(topic(replicas=((1, 2),), retention_ms="2")), alter, reassign)
    [change] = result.changes
    assert [one.path[0] for one in change.fields] == ["replication", "config", "config"]


def test_a_job_that_came_is_stopped_before_what_it_filled_goes() -> None:
    shop, before = topology(flow("x")), observed(cluster(live("a")), cluster(name="dc2"))
    steps = plan(shop, before).steps
    after = simulate(steps, before)

    back = undo(after, *steps)

    assert [(str(one.address), one.action) for one in back.changes if one.address.cluster is None] == [
        ("flow.x", Action.DELETE),
        ("job.dc2", Action.DELETE),
    ]
    deleted = next(step for step in back.steps if isinstance(step, DeleteTopic))
    assert "stop:job.dc2" in deleted.needs
    assert back.diagnostics == ()
    left = simulate(back.steps, after)
    dc2 = left.reachable("dc2")
    assert dc2 is not None
    assert (dc2.owned, [job.live for job in dc2.jobs]) == ((), [False])


def test_what_a_job_was_told_is_not_taken_back() -> None:
    shop, before = topology(flow("x")), observed(cluster(live("a")), cluster(name="dc2"))
    there = simulate(plan(shop, before).steps, before)
    steps = plan(topology(replace(flow("x"), rate_limit=5)), there).steps

    back = undo(simulate(steps, there), *steps)

    assert back.changes == ()
    assert "reconfigure job.dc2 is not undone" in back.diagnostics[0].summary


def test_partitions_with_different_replication_go_back_each_to_its_own() -> None:
    raised = Reassign("reassign", A, "dc1", "a", ((1, 2), (1, 2)), ((1, 2), (1,)))

    result = undo(world(topic(replicas=((1, 2), (1, 2)))), raised)

    [back] = result.steps
    [change] = result.changes
    assert isinstance(back, Reassign)
    assert back.replicas == ((1, 2), (1,))
    assert [(one.path, one.old, one.new) for one in change.fields] == [(("replication",), 2, (2, 1))]


LOADER = QuotaEntity("loader")
QUOTA = Address(Kind.QUOTA, "dc1", LOADER.name)
BEFORE, AFTER = {"producer_byte_rate": 5}, {"producer_byte_rate": 7, "request_percentage": 12.5}
limit = AlterQuota(
    "alter", QUOTA, "dc1", LOADER, AFTER, (), {"producer_byte_rate": 5, "request_percentage": None}
)


def quotas(values: Mapping[str, float], *, entry: Mapping[str, float] | None = None) -> Observed:
    made = () if entry is None else (RegistryEntry(QUOTA, "shop", quota_spec(LOADER, entry), created=True),)
    return Observed({"dc1": cluster(owned=made, quotas={LOADER: values} if values else {})})


def test_limits_go_back_to_what_they_were_and_are_remembered_so() -> None:
    seen = quotas(AFTER, entry=AFTER)
    result = undo(seen, limit)
    assert [(one.action, one.after) for one in result.changes] == [
        (Action.UPDATE, {"user": "loader", "producer_byte_rate": 5})
    ]
    there = simulate(result.steps, seen).reachable("dc1")
    assert there is not None
    assert there.quotas == {LOADER: BEFORE}
    assert recorded_quota(there.owned[0].spec) == (LOADER, BEFORE)


def test_a_quota_that_the_apply_made_is_removed_and_forgotten() -> None:
    made = replace(limit, old=dict.fromkeys(AFTER))
    seen = quotas(AFTER, entry=AFTER)
    result = undo(seen, made)
    assert [one.action for one in result.changes] == [Action.DELETE]
    there = simulate(result.steps, seen).reachable("dc1")
    assert there is not None
    assert (there.quotas, there.owned) == ({}, ())


def test_a_quota_that_the_apply_removed_is_made_again() -> None:
    removed = AlterQuota("delete", QUOTA, "dc1", LOADER, {}, tuple(AFTER), AFTER)
    result = undo(quotas({}), removed)
    assert [one.action for one in result.changes] == [Action.CREATE]
    there = simulate(result.steps, quotas({})).reachable("dc1")
    assert there is not None
    assert there.quotas == {LOADER: AFTER}


def test_a_limit_that_changed_since_is_left_alone() -> None:
    seen = quotas({**AFTER, "producer_byte_rate": 9}, entry=AFTER)
    result = undo(seen, limit)
    assert [one.key for one in result.changes[0].fields] == ["request_percentage"]
    assert said(result) == [f"configure {QUOTA} is not undone: producer_byte_rate: changed since"]
    assert undo(quotas({"producer_byte_rate": 9}), limit).changes == ()
