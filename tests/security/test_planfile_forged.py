"""A plan file that was altered, with its digest computed anew, is refused before a cluster is asked."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from planner.cli.app import run
from planner.model.address import topic_address
from planner.model.plan import STEP_KINDS, Action, Fingerprint, Plan
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    RestoreOffsets,
    RestoreRecords,
    Step,
    StopJob,
)
from planner.model.topology import AclRule, QuotaEntity
from planner.plan.agreement import disagreements
from planner.state import planfile
from runtime.contract.spec import jobspec
from tests.fakes.states import acl, flow, topology
from tests.planner.plan.jobs import applied
from tests.planner.plan.jobs import plan as plan_of
from tests.security.plans import honest, with_step

READ = "acl.dc1.allow.User:app.READ.topic.orders"
LIMITED = "quota.dc1.user/limited"
GONE = "acl.dc1.allow.User:app.DESCRIBE.topic.orders"


def added(plan: Plan, *steps: Step) -> Plan:
    return replace(plan, steps=(*plan.steps, *steps))


def fingerprinted(plan: Plan, address: str, **changes: object) -> Plan:
    found = tuple(
        replace(one, **changes) if str(one.address) == address else one  # type: ignore[arg-type]
        for one in plan.fingerprints
    )
    assert found != plan.fingerprints
    return replace(plan, fingerprints=found)


def shown(plan: Plan, address: str, **changes: object) -> Plan:
    found = tuple(
        replace(one, **changes) if str(one.address) == address else one  # type: ignore[arg-type]
        for one in plan.changes
    )
    assert found != plan.changes
    return replace(plan, changes=found)


def delete_behind_create(plan: Plan) -> Plan:
    """What was reproduced: `changes` say "create", `steps` delete."""
    deletes = DeleteTopic("delete:topic.dc1.new", topic_address("dc1", "new"), "dc1", "new", "id:new")
    kept = [one for one in plan.steps if one.id != "create:topic.dc1.new"]
    return replace(plan, steps=(*(replace(one, needs=()) for one in kept), deletes))


def delete_of_what_is_not_shown(plan: Plan) -> Plan:
    address = topic_address("dc1", "payments")
    seen = Fingerprint(address, exists=True, topic_id="id:payments", partitions=1)
    doomed = DeleteTopic(f"delete:{address}", address, "dc1", "payments", "id:payments")
    return added(replace(plan, fingerprints=(*plan.fingerprints, seen)), doomed)


def step_of_another_address(plan: Plan) -> Plan:
    return with_step(plan, "delete:topic.dc1.doomed", topic="payments")


def other_topic_id(plan: Plan) -> Plan:
    return with_step(plan, "delete:topic.dc1.doomed", topic_id="id:payments")


def other_cluster(plan: Plan) -> Plan:
    return with_step(plan, "create:topic.dc1.new", cluster="dc2")


def unnamed_cluster(plan: Plan) -> Plan:
    return replace(plan, clusters={"dc2": plan.clusters["dc2"]})


def other_partitions(plan: Plan) -> Plan:
    return with_step(plan, "create:topic.dc1.new", partitions=1)


def other_new_config(plan: Plan) -> Plan:
    return with_step(plan, "create:topic.dc1.new", config={"retention.ms": "1", "cleanup.policy": "compact"})


def shown_otherwise_in_the_fields_alone(plan: Plan) -> Plan:
    """People read `fields`; `after` and the step agree."""
    change = next(one for one in plan.changes if str(one.address) == "topic.dc1.new")
    fields = tuple(replace(one, new="99") if one.key == "retention.ms" else one for one in change.fields)
    return shown(plan, "topic.dc1.new", fields=fields)


def other_value(plan: Plan) -> Plan:
    return with_step(plan, "alter:topic.dc1.changed", set={"retention.ms": "1000"})


def more_values(plan: Plan) -> Plan:
    values = {"retention.ms": "2", "min.insync.replicas": "1"}
    return with_step(plan, "alter:topic.dc1.changed", set=values)


def taken_back_instead_of_set(plan: Plan) -> Plan:
    return with_step(plan, "alter:topic.dc1.changed", set={}, unset=("retention.ms",))


def grown_too_far(plan: Plan) -> Plan:
    return with_step(plan, "grow:topic.dc1.grown", new=1200)


def fewer_replicas(plan: Plan) -> Plan:
    return with_step(plan, "reassign:topic.dc1.grown", replicas=((1,),) * 6)


def one_broker_twice(plan: Plan) -> Plan:
    return with_step(plan, "reassign:topic.dc1.grown", replicas=((1, 1, 1),) * 6)


def rule_for_everybody(plan: Plan) -> Plan:
    rule: AclRule = acl(principal="User:*")
    return with_step(plan, f"create:{READ}", rule=rule)


def another_rule_goes(plan: Plan) -> Plan:
    return with_step(plan, f"delete:{GONE}", rule=acl("DESCRIBE", permission="DENY"))


def other_limit(plan: Plan) -> Plan:
    return with_step(plan, f"alter:{LIMITED}", set={"producer_byte_rate": 1})


def more_limits(plan: Plan) -> Plan:
    return with_step(plan, f"alter:{LIMITED}", unset=("consumer_byte_rate",))


def limit_of_everyone(plan: Plan) -> Plan:
    return with_step(plan, f"alter:{LIMITED}", entity=QuotaEntity("<default>"))


def limits_of_others_go(plan: Plan) -> Plan:
    """The registry decides which limits a later plan removes."""
    own = next(one for one in plan.steps if one.id == f"own:{LIMITED}")
    assert isinstance(own, Own)
    return _entry(plan, own.id, spec={**own.entry.spec, "consumer_byte_rate": "1"})


def another_quota_is_remembered(plan: Plan) -> Plan:
    return _entry(plan, f"own:{LIMITED}", spec={"user": "<default>", "producer_byte_rate": "10000000"})


def quota_left_out(plan: Plan) -> Plan:
    kept = [one for one in plan.steps if one.id != f"alter:{LIMITED}"]
    return replace(plan, steps=tuple(replace(one, needs=()) for one in kept))


def fingerprint_of_other_limits(plan: Plan) -> Plan:
    return fingerprinted(plan, LIMITED, config={"producer_byte_rate": "77"})


def fingerprint_of_no_limits(plan: Plan) -> Plan:
    return fingerprinted(plan, "quota.dc1.user/gone", exists=False)


def dropped_protection(plan: Plan) -> Plan:
    """The guard of a later plan: remembered as unprotected, though declared with protect: true."""
    return _entry(plan, "own:topic.dc1.new", protect=False)


def changed_end(plan: Plan) -> Plan:
    from planner.model.topology import OnRemove

    return _entry(plan, "own:topic.dc1.changed", on_remove=OnRemove.DELETE)


def owned_by_another(plan: Plan) -> Plan:
    return _entry(plan, "own:topic.dc1.changed", topology="billing")


def another_is_remembered(plan: Plan) -> Plan:
    return _entry(plan, "own:topic.dc1.changed", address=topic_address("dc1", "payments"))


def _entry(plan: Plan, step_id: str, **changes: object) -> Plan:
    own = next(one for one in plan.steps if one.id == step_id)
    assert isinstance(own, Own)
    return with_step(plan, step_id, entry=replace(own.entry, **changes))  # type: ignore[arg-type]


def disowned(plan: Plan) -> Plan:
    return with_step(plan, "disown:topic.dc1.doomed", topology="billing")


def _spec(plan: Plan, step_id: str, edit: Callable[[jobspec.JobSpec], jobspec.JobSpec]) -> Plan:
    step = next(one for one in plan.steps if one.id == step_id)
    assert isinstance(step, LaunchJob | ReconfigureJob)
    after = edit(jobspec.decode(step.spec))
    assert after != jobspec.decode(step.spec)
    return with_step(plan, step_id, spec=jobspec.encode(after).decode())


def _launch(**changes: object) -> Callable[[jobspec.JobSpec], jobspec.JobSpec]:
    return lambda spec: msgspec.structs.replace(spec, launch=msgspec.structs.replace(spec.launch, **changes))


def job_command(plan: Plan) -> Plan:
    return _spec(plan, "launch:job.other", _launch(options={"python": "/tmp/evil"}))


def job_conf(plan: Plan) -> Plan:
    return _spec(plan, "launch:job.other", _launch(conf={"spark.driver.extraClassPath": "/tmp/evil.jar"}))


def job_conf_of_a_restart(plan: Plan) -> Plan:
    return _spec(plan, "launch:job.dc2", _launch(conf={"spark.driver.extraClassPath": "/tmp/evil.jar"}))


def job_conf_shown_but_for_people(plan: Plan) -> Plan:
    """`before` and `after` tell it, and `fields`, which people read, do not."""
    conf = {"spark.driver.extraClassPath": "/tmp/evil.jar"}
    change = next(one for one in plan.changes if str(one.address) == "job.dc2")
    after = {**(change.after or {}), "conf": ["spark.driver.extraClassPath=/tmp/evil.jar"]}
    return shown(_spec(plan, "launch:job.dc2", _launch(conf=conf)), "job.dc2", after=after)


def job_source(plan: Plan) -> Plan:
    def elsewhere(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        evil = msgspec.structs.replace(spec.clusters["dc1"], bootstrap="evil:9092")
        return msgspec.structs.replace(spec, clusters={**spec.clusters, "dc1": evil})

    return _spec(plan, "launch:job.dc2", elsewhere)


def job_credentials(plan: Plan) -> Plan:
    def other(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        client = {**spec.clusters["dc1"].client, "sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
        evil = msgspec.structs.replace(spec.clusters["dc1"], client=client)
        return msgspec.structs.replace(spec, clusters={**spec.clusters, "dc1": evil})

    return _spec(plan, "launch:job.dc2", other)


def flow_of_a_job(plan: Plan) -> Plan:
    def wider(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        flows = [
            msgspec.structs.replace(one, topics=jobspec.SelectionSpec(include=["salaries"]))
            for one in spec.flows
        ]
        return msgspec.structs.replace(spec, flows=flows)

    return _spec(plan, "launch:job.other", wider)


def route_of_a_job(plan: Plan) -> Plan:
    def fewer(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        return msgspec.structs.replace(spec, routes=[one for one in spec.routes if one.name != "x"])

    return _spec(plan, "launch:job.other", fewer)


def unreadable_spec(plan: Plan) -> Plan:
    return with_step(plan, "launch:job.other", spec='{"job": "other"}')


def stopped_otherwise(plan: Plan) -> Plan:
    evil = {"launcher": "kubernetes", "options": {"context": "prod", "namespace": "payments"}}
    return with_step(plan, "stop:job.gone", launch=json.dumps(evil))


def another_job_is_stopped(plan: Plan) -> Plan:
    return with_step(plan, "stop:job.gone", job="payments")


def waits_for_nothing(plan: Plan) -> Plan:
    return with_step(plan, "launch:job.dc2", topics={})


def reordered(plan: Plan) -> Plan:
    return replace(plan, steps=tuple(reversed(plan.steps)))


def twice(plan: Plan) -> Plan:
    return replace(plan, steps=(plan.steps[0], *plan.steps))


def twice_under_another_id(plan: Plan) -> Plan:
    grow = next(one for one in plan.steps if one.id == "grow:topic.dc1.grown")
    at = plan.steps.index(grow) + 1
    again = replace(grow, id="grow:topic.dc1.grown2")
    return replace(plan, steps=(*plan.steps[:at], again, *plan.steps[at:]))


def needs_dropped(plan: Plan) -> Plan:
    """The registry would forget a topic whose delete then fails."""
    return with_step(plan, "disown:topic.dc1.doomed", needs=())


def start_before_the_stop(plan: Plan) -> Plan:
    launch = next(one for one in plan.steps if one.id == "launch:job.dc2")
    return with_step(
        plan, "launch:job.dc2", needs=tuple(one for one in launch.needs if one != "stop:job.dc2")
    )


def step_left_out(plan: Plan) -> Plan:
    return replace(plan, steps=tuple(one for one in plan.steps if one.id != "alter:topic.dc2.changed"))


def change_left_out(plan: Plan) -> Plan:
    kept = tuple(one for one in plan.changes if str(one.address) != "topic.dc1.doomed")
    return replace(plan, changes=kept)


def change_twice(plan: Plan) -> Plan:
    """The first is shown, the second would be compared."""
    doomed = next(one for one in plan.changes if str(one.address) == "topic.dc1.doomed")
    return replace(plan, changes=(replace(doomed, action=Action.NO_OP), *plan.changes))


def fingerprint_left_out(plan: Plan) -> Plan:
    kept = tuple(one for one in plan.fingerprints if str(one.address) != "topic.dc1.changed")
    return replace(plan, fingerprints=kept)


def fingerprint_of_other_values(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.changed", config={"retention.ms": "77"})


def fingerprint_without_values(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.changed", config={})


def fingerprint_of_another_topic(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.doomed", topic_id="id:made-again")


def fingerprint_of_nothing(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.doomed", exists=False)


def fingerprint_of_another_owner(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.doomed", owner="billing")


def fingerprint_of_a_protected_topic(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.doomed", removal="protected")


def fingerprint_of_other_replicas(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.grown", replicas="1;2;3")


def fingerprint_of_other_partitions(plan: Plan) -> Plan:
    return fingerprinted(plan, "topic.dc1.grown", partitions=3)


FORGED: tuple[Callable[[Plan], Plan], ...] = (
    delete_behind_create,
    delete_of_what_is_not_shown,
    step_of_another_address,
    other_topic_id,
    other_cluster,
    unnamed_cluster,
    other_partitions,
    other_new_config,
    shown_otherwise_in_the_fields_alone,
    other_value,
    more_values,
    taken_back_instead_of_set,
    grown_too_far,
    fewer_replicas,
    one_broker_twice,
    rule_for_everybody,
    another_rule_goes,
    other_limit,
    more_limits,
    limit_of_everyone,
    limits_of_others_go,
    another_quota_is_remembered,
    quota_left_out,
    fingerprint_of_other_limits,
    fingerprint_of_no_limits,
    dropped_protection,
    changed_end,
    owned_by_another,
    another_is_remembered,
    disowned,
    job_command,
    job_conf,
    job_conf_of_a_restart,
    job_conf_shown_but_for_people,
    job_source,
    job_credentials,
    flow_of_a_job,
    route_of_a_job,
    unreadable_spec,
    stopped_otherwise,
    another_job_is_stopped,
    waits_for_nothing,
    reordered,
    twice,
    twice_under_another_id,
    needs_dropped,
    start_before_the_stop,
    step_left_out,
    change_left_out,
    change_twice,
    fingerprint_left_out,
    fingerprint_of_other_values,
    fingerprint_without_values,
    fingerprint_of_another_topic,
    fingerprint_of_nothing,
    fingerprint_of_another_owner,
    fingerprint_of_a_protected_topic,
    fingerprint_of_other_replicas,
    fingerprint_of_other_partitions,
)


def test_the_honest_plan_agrees() -> None:
    plan = honest()

    assert disagreements(plan) == ()
    restores = {RestoreOffsets, RestoreRecords}  # tests/planner/plan/test_restore.py forges these
    kinds = {type(step) for step in plan.steps} | {ReconfigureJob} | restores
    assert kinds == set(STEP_KINDS.values()) == {
        AlterConfigs, AlterQuota, CreateAcl, CreateTopic, DeleteAcl, DeleteTopic, Disown,
        GrowPartitions, LaunchJob, Own, Reassign, ReconfigureJob, RestoreOffsets, RestoreRecords, StopJob,
    }  # fmt: skip


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_plan_is_refused(
    forge: Callable[[Plan], Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan"
    planfile.write(forge(honest()), file)

    code = run(["apply", str(file)])

    told = capsys.readouterr()
    assert (code, told.out) == (3, "")
    assert "the steps of this plan are not what it shows" in told.err


def test_a_forged_plan_is_not_shown_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan"
    planfile.write(delete_behind_create(honest()), file)

    assert run(["show", str(file)]) == 3
    assert capsys.readouterr().out == ""


def test_what_a_running_job_is_told_is_what_is_shown() -> None:
    """A reconfiguration, forged in its flow and in its metrics."""
    x = flow("x")
    seen = applied(topology(x))
    plan = plan_of(topology(replace(x, rate_limit=1_000)), seen)
    assert disagreements(plan) == ()

    def slower(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        return msgspec.structs.replace(
            spec, flows=[msgspec.structs.replace(one, rate_limit=1) for one in spec.flows]
        )

    def seen_by_all(spec: jobspec.JobSpec) -> jobspec.JobSpec:
        return msgspec.structs.replace(spec, metrics_host="0.0.0.0")

    for edit in (slower, seen_by_all):
        assert disagreements(_spec(plan, "reconfigure:job.dc2", edit))
