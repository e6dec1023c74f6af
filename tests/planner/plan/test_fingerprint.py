"""Related changes make a plan stale, unrelated ones do not."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import acl_entry
from planner.model.address import group_address, job_address
from planner.model.desired import Declared, DesiredAcl
from planner.model.diagnostic import ExitCode
from planner.model.observed import Unreachable
from planner.model.step import StopJob
from planner.model.topology import OnRemove
from planner.plan import make_plan, stale
from planner.plan.fingerprint import fingerprints
from tests.fakes.states import SHOP, acl, cluster, desired, live, observed, owned, topology, wanted

WANT = wanted("orders", 12, retention_ms="2")
THEN = cluster(live("orders", 6, retention_ms="1", segment_ms="1"), live("other"), acls=[])


def after(now, want=None, then=THEN):
    shop = topology()
    asked = want or desired(WANT)
    plan = make_plan(asked, observed(then), diff(asked, observed(then), shop), shop)
    found = stale(plan, observed(now))
    assert {one.exit for one in found} <= {ExitCode.STALE}
    return [(one.address, one.summary) for one in found]


def with_topic(**more):
    return replace(THEN, topics={**THEN.topics, "orders": live("orders", **more)})


@pytest.mark.parametrize(
    "now",
    [
        THEN,
        with_topic(partitions=6, retention_ms="1", segment_ms="999"),  # a key that the plan never looked at
        with_topic(
            partitions=6, replication=2, retention_ms="1"
        ),  # moved, and the plan does not touch replicas
        replace(THEN, topics={"orders": THEN.topics["orders"]}),  # another topic went
        Unreachable("dc1", "no"),  # whoever applies meets that by itself
    ],
)
def test_still_as_the_plan_saw_it(now) -> None:
    assert after(now) == []


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (replace(THEN, topics={}), "was deleted since the plan was made"),
        (
            with_topic(topic_id="new", retention_ms="1"),
            "was deleted and created again since the plan was made",
        ),
        (
            with_topic(partitions=8, retention_ms="1"),
            "has 8 partitions now, 6 when the plan was made",
        ),
        (with_topic(retention_ms="3"), "retention.ms is 3 now, 1 when the plan was made"),
        (with_topic(retention_ms="604800000"), "retention.ms is 7d now, 1 when the plan was made"),
        (with_topic(), "retention.ms is not set now, 1 when the plan was made"),
        (
            replace(THEN, owned=(owned(WANT, topology="billing"),)),
            "owned by topology 'billing' now, by no topology when the plan was made",
        ),
    ],
)
def test_a_related_change_is_named(now, difference) -> None:
    assert after(now) == [("topic.dc1.orders", difference)]


@pytest.mark.parametrize(
    ("more", "now"),
    [({"protect": True}, "protected"), ({"on_remove": OnRemove.DELETE}, "delete"), ({}, None)],
)
def test_what_was_asked_for_its_end(more, now) -> None:
    then, later = (replace(THEN, owned=(entry,)) for entry in (owned(WANT), owned(WANT, **more)))
    said = [("topic.dc1.orders", f"removing it means {now} now, keep when the plan was made")]

    assert after(later, then=then) == (said if now else [])


def test_another_cluster_under_the_same_name() -> None:
    (found,) = after(replace(THEN, id="another"))

    assert found == ("dc1", "the cluster is another now, the plan was made for cluster-dc1")


def test_a_topic_to_be_created_that_somebody_made() -> None:
    assert after(THEN, then=cluster()) == [("topic.dc1.orders", "was created since the plan was made")]


def test_replicas_count_where_they_are_moved() -> None:
    then = cluster(live("orders", 2, 1))
    moved = replace(live("orders", 2, 1), replicas=((2,), (1,)))

    assert after(cluster(moved), desired(wanted("orders", None, 3)), then) == [
        ("topic.dc1.orders", "its replicas moved since the plan was made")
    ]


def test_an_acl_that_came_or_went() -> None:
    rule = acl()
    create = desired(acls=(DesiredAcl(rule, Declared()),))
    entry = acl_entry(DesiredAcl(rule, Declared()), SHOP, created=True)

    assert after(replace(THEN, acls=(rule,)), create) == [
        (f"acl.dc1.{rule.name}", "was created since the plan was made")
    ]
    assert after(cluster(acls=[], owned=[entry]), desired(), cluster(acls=[rule], owned=[entry])) == [
        (f"acl.dc1.{rule.name}", "was deleted since the plan was made")
    ]


def test_what_is_no_object_of_a_cluster_has_no_fingerprint() -> None:
    steps = [
        StopJob("stop", job_address("dc2"), "dc2", "dc2"),
        StopJob("stop", group_address("dc1", "g"), "dc1", "g"),
    ]

    assert fingerprints(steps, observed(THEN), {}) == ()
