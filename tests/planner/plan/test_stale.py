"""What makes a saved plan stale, and the finished steps of an apply that was cut short: nothing unrelated."""

import pytest

from planner.diff.record import acl_entry, announced
from planner.model.address import Address, Kind, group_address, job_address
from planner.model.desired import Declared, DesiredAcl, DesiredQuota
from planner.model.diagnostic import ExitCode
from planner.model.observed import ConfigValue, Unreachable
from planner.model.step import Result, StepResult
from planner.model.topology import OnRemove, QuotaEntity
from planner.plan.staleness import no_longer_done, outcomes_together, stale
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.jobs import StopJob
from planner.plan.steps.registry import Own
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import SHOP, acl, cluster, desired, flow, live, observed, owned, topology, wanted
from tests.fakes.tables import cases
from tests.planner.plan.jobs import applied, at, dead, destroyed, jobs_as, plan, plan_for, record_of, there

WEEK, DAY = "604800000", "86400000"
RULE = acl()
RULE_ENTRY = acl_entry(DesiredAcl(RULE, Declared()), SHOP, created=True)
WANT = wanted("orders", 12, retention_ms="2")
THEN = cluster(live("orders", 6, retention_ms="1", segment_ms="1"), live("other"), acls=[])


def orders(**more):
    return replace(THEN, topics={**THEN.topics, "orders": live("orders", **more)})


def entry(**more):
    return replace(THEN, owned=(owned(WANT, **more),))


PLAN = "when the plan was made"
BILLING = f"owned by topology 'billing' now, by no topology {PLAN}"


@cases(
    "then now difference",
    {
        "nothing changed": (THEN, THEN, None),
        "a key that it does not touch": (THEN, orders(retention_ms="1", segment_ms="999"), None),
        "replicas that it does not touch": (THEN, orders(replication=2, retention_ms="1"), None),
        "another topic": (THEN, replace(THEN, topics={"orders": THEN.topics["orders"]}), None),
        "a silent cluster, which an apply meets by itself": (THEN, Unreachable("dc1", "no"), None),
        "the same entry": (entry(), entry(), None),
        "created": (cluster(), THEN, "was created since the plan was made"),
        "deleted": (THEN, replace(THEN, topics={}), "was deleted since the plan was made"),
        "made again": (
            THEN,
            orders(topic_id="new", retention_ms="1"),
            "was deleted and created again since the plan was made",
        ),
        "grown": (THEN, orders(partitions=8, retention_ms="1"), f"has 8 partitions now, 6 {PLAN}"),
        "another value": (THEN, orders(retention_ms="3"), f"retention.ms is 3 now, 1 {PLAN}"),
        "its unit": (THEN, orders(retention_ms=WEEK), f"retention.ms is 7d now, 1 {PLAN}"),
        "no value": (THEN, orders(), f"retention.ms is not set now, 1 {PLAN}"),
        "another owner": (THEN, entry(topology="billing"), BILLING),
        "protected": (entry(), entry(protect=True), f"on_remove is protected now, keep {PLAN}"),
        "doomed": (entry(), entry(on_remove=OnRemove.DELETE), f"on_remove is delete now, keep {PLAN}"),
    },
)
def test_a_plan_for_a_topic(then, now, difference) -> None:
    found = stale(plan_for(desired(WANT), then), observed(now))
    assert [(one.address, one.summary, one.exit) for one in found] == (
        [("topic.dc1.orders", difference, ExitCode.STALE)] if difference else []
    )


@pytest.mark.parametrize(
    ("want", "then", "now", "said"),
    [
        (
            desired(WANT),
            THEN,
            replace(THEN, id="another"),
            ("dc1", "the cluster is another now, the plan was made for cluster-dc1"),
        ),
        (
            desired(wanted("orders", None, 3)),
            cluster(live("orders", 2, 1)),
            cluster(replace(live("orders", 2, 1), replicas=((2,), (1,)))),
            ("topic.dc1.orders", "its replicas moved since the plan was made"),
        ),
        (
            desired(acls=(DesiredAcl(RULE, Declared()),)),
            THEN,
            replace(THEN, acls=(RULE,)),
            (f"acl.dc1.{RULE.name}", "was created since the plan was made"),
        ),
        (
            desired(),
            cluster(acls=[RULE], owned=[RULE_ENTRY]),
            cluster(acls=[], owned=[RULE_ENTRY]),
            (f"acl.dc1.{RULE.name}", "was deleted since the plan was made"),
        ),
        (
            desired(quotas=(DesiredQuota("dc1", QuotaEntity("app"), {"producer_byte_rate": 1}, Declared()),)),
            THEN,
            replace(THEN, quotas={"user/app": {"producer_byte_rate": 2}}),
            ("quota.dc1.user/app", "was created since the plan was made"),
        ),
    ],
)
def test_a_plan_for_something_else(want, then, now, said) -> None:
    assert [(one.address, one.summary) for one in stale(plan_for(want, then), observed(now))] == [said]


def test_what_is_no_object_of_a_cluster_is_not_compared() -> None:
    addresses = job_address("dc2"), group_address("dc1", "g")
    steps = tuple(StopJob("stop", address, "dc2", "dc2") for address in addresses)
    assert stale(replace(plan_for(desired(), THEN), steps=steps), observed(cluster())) == ()


X = flow("x")
RUNS = applied(topology(X))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (RUNS, None),
        (jobs_as(RUNS, lag={"x": 9}, at_ms=5), None),
        (jobs_as(RUNS, driver="another"), "was started again since the plan was made"),
        (dead(RUNS), "does not run any more"),
        (jobs_as(RUNS, spec=None), "was reconfigured since the plan was made"),
    ],
)
def test_a_plan_for_a_running_job(now, why) -> None:
    found = [str(one) for one in stale(plan(topology(flow("x", rate_limit=5)), RUNS), now)]
    assert bool(found) is bool(why)
    assert all(why in one for one in found)


def test_a_plan_that_launches_a_job_and_one_that_ends_it() -> None:
    (found,) = stale(plan(topology(X), dead(RUNS)), RUNS)
    assert "runs now, and did not run when the plan was made" in str(found)
    for then, now in ((RUNS, dead(RUNS)), (dead(RUNS), RUNS)):
        assert stale(destroyed(then, topology(X)), now) == ()  # it holds whether the job runs or not


# The same for steps that an apply did before it was cut: what is no longer as they left it.

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
DONE = plan_for(
    desired(wanted("made", 2, 3, retention_ms=WEEK), wanted("grown", 4, segment_ms=DAY)), there(BEFORE, "dc1")
).steps
AFTER = simulate(DONE, BEFORE)


def topics(*changed, without=""):
    kept = {name: one for name, one in there(AFTER, "dc1").topics.items() if name != without}
    return at(AFTER, "dc1", topics={**kept, **{one.name: one for one in changed}})


def entries(**changed):
    """`made` is forgotten, or its entry is changed so."""
    others = [one for one in there(AFTER, "dc1").owned if one.address.name != "made"]
    own = [one for one in there(AFTER, "dc1").owned if one.address.name == "made" and changed]
    return at(AFTER, "dc1", owned=(*others, *(replace(one, **changed) for one in own)))


@cases(
    "now difference",
    {
        "nothing changed": (AFTER, None),
        "another setting": (topics(live("made", 2, retention_ms=WEEK, segment_ms="1")), None),
        "a value that the broker keeps to itself": (
            topics(replace(live("made", 2), config={"retention.ms": ConfigValue(None, sensitive=True)})),
            None,
        ),
        "deleted": (topics(without="made"), "made was deleted since"),
        "other replicas": (
            topics(live("made", 2, 1, retention_ms=WEEK)),
            "made replication is 1 now, the plan has 3",
        ),
        "grown": (
            topics(live("made", 3, retention_ms=WEEK)),
            "made has 3 partitions now, the plan has 2",
        ),
        "a value": (
            topics(live("made", 2, retention_ms=DAY)),
            "made retention.ms is 1d now, the plan has 7d",
        ),
        "inherited": (
            topics(live("made", 2, inherited={"retention.ms": WEEK})),
            "made retention.ms is not set now, the plan has 7d",
        ),
        "grown further": (
            topics(live("grown", 5, segment_ms=DAY)),
            "grown has 5 partitions now, the plan has 4",
        ),
        "altered": (
            topics(live("grown", 4, segment_ms=WEEK)),
            "grown segment.ms is 7d now, the plan has 1d",
        ),
        "made again": (topics(live("old")), "old was created again since"),
        "forgotten": (entries(), "made is not managed any more"),
        "protected": (entries(protect=True), "made on_remove is protected now, the plan has keep"),
    },
)
def test_steps_on_topics_that_were_done(now, difference) -> None:
    found = no_longer_done(DONE, {step.id for step in DONE}, now)
    assert [f"{one.address} {one.summary}" for one in found] == (
        [f"topic.dc1.{difference}"] if difference else []
    )
    assert no_longer_done(DONE, {"delete:topic.dc1.other"}, now) == ()


NOT_STARTED, SKIPPED, FAILED, SENT = (
    StepResult(result) for result in (Result.NOT_STARTED, Result.SKIPPED, Result.FAILED, Result.SENT)
)
AGAIN = StepResult(Result.FAILED, "again")


@cases(
    "oldest_first together",
    {
        "one apply": ([SKIPPED], SKIPPED),
        "sent after it was skipped": ([SKIPPED, SENT], SENT),
        "failed after it was not started": ([NOT_STARTED, FAILED], FAILED),
        "not started after it was sent": ([SENT, NOT_STARTED], SENT),
        "skipped, sent, skipped": ([SKIPPED, SENT, SKIPPED], SENT),
        "done at last": ([SKIPPED, FAILED, StepResult(Result.DONE)], StepResult(Result.DONE)),
        "done once": ([StepResult(Result.DONE), FAILED, SKIPPED], StepResult(Result.DONE)),
        "the newest of two that failed": ([FAILED, AGAIN], AGAIN),
        "the newest of two that were not sent": ([SKIPPED, NOT_STARTED], NOT_STARTED),
    },
)
def test_how_a_step_ended_in_several_applies_of_one_plan(oldest_first, together) -> None:
    applies = [replace(record_of([RULE_MADE]), outcomes={RULE_MADE.id: outcome}) for outcome in oldest_first]
    assert outcomes_together(applies) == {RULE_MADE.id: together}


RULE_MADE = CreateAcl("create", Address(Kind.ACL, "dc1", RULE.name), "dc1", RULE)


@pytest.mark.parametrize(("acls", "differences"), [([RULE], []), ([], ["was deleted since"]), (None, [])])
def test_a_rule_that_was_made(acls, differences) -> None:
    found = no_longer_done([RULE_MADE], {"create"}, observed(cluster(acls=acls)))
    assert [one.summary for one in found] == differences


@pytest.mark.parametrize("done", [{"announce", "create"}, {"announce", "create", "own"}])
def test_the_last_entry_of_an_object_counts_once_it_was_written(done: set[str]) -> None:
    address = RULE_ENTRY.address
    announce = Own("announce", address, "dc1", announced(RULE_ENTRY))
    steps = (announce, RULE_MADE, Own("own", address, "dc1", RULE_ENTRY, needs=("create",)))
    assert no_longer_done(steps, done, observed(cluster(acls=[RULE], owned=[RULE_ENTRY]))) == ()


ENDED = plan(topology(flow("x", state="failed_over")), RUNS).steps


@pytest.mark.parametrize(
    ("steps", "now", "difference"),
    [
        (plan(topology(X)).steps, RUNS, None),
        (plan(topology(X)).steps, dead(RUNS), "does not run any more"),
        (
            plan(topology(X)).steps,
            applied(topology(flow("x", rate_limit=5)), RUNS),
            "was applied differently since",
        ),
        (ENDED, simulate(ENDED, RUNS), None),
        (ENDED, jobs_as(simulate(ENDED, RUNS), live=True), "runs again"),
    ],
)
def test_a_job_that_was_launched_or_ended(steps, now, difference) -> None:
    found = {one.summary for one in no_longer_done(steps, {step.id for step in steps}, now)}
    assert (difference in found) if difference else not found
