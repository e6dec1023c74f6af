"""Declared topics against live ones: what is compared, what is said about it."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.values import displayed
from planner.model.observed import ConfigValue, ObservedCluster
from planner.model.plan import SENSITIVE, Action, Change
from planner.model.topology import OnRemove
from tests.fakes.states import cluster, desired, live, mirror, observed, owned, topology, uneven, wanted

WEEK, DAY = "604800000", "86400000"


def only(want, *clusters: ObservedCluster) -> Change:
    (change,) = diff(desired(want), observed(*clusters), topology())
    return change


def moves(change: Change) -> list[tuple[str, object, object, str]]:
    return [(one.key, one.old, one.new, one.note) for one in change.fields]


def test_a_topic_that_is_not_there_is_created_with_what_is_declared() -> None:
    change = only(wanted("orders", 12, retention_ms=WEEK), cluster())

    assert (change.action, change.reason) == (Action.CREATE, "declared")
    assert moves(change) == [
        ("partitions", None, 12, ""),
        ("replication", None, None, ""),
        ("retention.ms", None, WEEK, ""),
    ]
    assert change.fields[1].inherited == "3"
    assert change.after == {"partitions": 12, "replication": None, "config": {"retention.ms": WEEK}}


def test_a_mirror_topic_names_its_flow() -> None:
    change = only(mirror("orders", 12), cluster(name="dc2"))

    assert change.reason == "mirrored by flow.dc1-to-dc2"


def test_an_owned_topic_that_somebody_deleted_is_created_again() -> None:
    want = wanted("orders")

    change = only(want, cluster(owned=[owned(want)]))

    assert (change.action, change.reason) == (Action.CREATE, "declared; it was deleted outside the topology")


@pytest.mark.parametrize(
    ("want", "have"),
    [
        (wanted("orders"), live("orders", 3, 1, retention_ms=DAY)),  # what is not declared is not compared
        (wanted("orders", 6, 3), live("orders", 6, 3)),
        (wanted("orders", retention_ms=WEEK), live("orders", retention_ms=WEEK, segment_ms=DAY)),
        (wanted("orders", cleanup_policy="compact,delete"), live("orders", cleanup_policy="delete,compact")),
        (wanted("orders", confluent_key="x"), live("orders", confluent_key="x")),
    ],
)
def test_no_change(want, have) -> None:
    change = only(want, cluster(have, owned=[owned(want)]))

    assert (change.action, change.fields, change.adopted) == (Action.NO_OP, (), False)


def test_only_the_settings_that_differ_move_and_the_rest_is_counted() -> None:
    want = wanted("orders", 6, retention_ms=WEEK, segment_ms=DAY)
    before = wanted("orders", 6, retention_ms=DAY, segment_ms=DAY)

    change = only(want, cluster(live("orders", 6, retention_ms=DAY, segment_ms=DAY), owned=[owned(before)]))

    assert (change.action, change.reason, change.unchanged) == (Action.UPDATE, "the topology changed", 2)
    assert moves(change) == [("retention.ms", DAY, WEEK, "")]
    assert change.before == {"partitions": 6, "config": {"retention.ms": DAY, "segment.ms": DAY}}
    assert change.after == {"partitions": 6, "config": {"retention.ms": WEEK, "segment.ms": DAY}}


def test_a_value_that_is_only_the_default_becomes_explicit_once() -> None:
    want = wanted("orders", retention_ms=WEEK)
    have = live("orders", inherited={"retention.ms": WEEK})

    change = only(want, cluster(have, owned=[owned(want)]))

    assert moves(change) == [("retention.ms", None, WEEK, "changed outside the topology")]
    assert change.fields[0].inherited == WEEK


def test_the_default_is_taken_from_the_cluster_where_the_topic_does_not_tell() -> None:
    change = only(
        wanted("orders", retention_ms=WEEK), cluster(live("orders"), defaults={"retention.ms": DAY})
    )

    assert change.fields[0].inherited == DAY


def test_changed_by_hand() -> None:
    want = wanted("orders", 6, retention_ms=WEEK)

    change = only(want, cluster(live("orders", retention_ms=DAY), owned=[owned(want)]))

    assert change.reason == "changed outside the topology"
    assert moves(change) == [("retention.ms", DAY, WEEK, "changed outside the topology")]


def test_replication_changed_by_hand() -> None:
    want = wanted("orders", None, 3)

    change = only(want, cluster(live("orders", 6, 2), owned=[owned(want)]))

    assert moves(change) == [("replication", 2, 3, "changed outside the topology")]


def test_a_key_that_left_the_yaml_goes_back_to_the_clusters_own() -> None:
    applied = wanted("orders", 6, retention_ms=WEEK)
    want = wanted("orders", 6)

    change = only(want, cluster(live("orders", retention_ms=WEEK), owned=[owned(applied)]))

    assert moves(change) == [("retention.ms", WEEK, None, "no longer declared")]
    assert change.after == {"partitions": 6, "config": {}}


def test_a_key_that_left_the_yaml_and_the_cluster_is_only_forgotten() -> None:
    change = only(
        wanted("orders", 6), cluster(live("orders"), owned=[owned(wanted("orders", 6, retention_ms=WEEK))])
    )

    assert change.reason == "only what is remembered of it changes"
    assert moves(change) == [("config.retention.ms", WEEK, None, "no longer managed")]


def test_a_key_that_is_declared_as_it_is_already_is_remembered() -> None:
    want = wanted("orders", 6, retention_ms=WEEK)

    change = only(want, cluster(live("orders", retention_ms=WEEK), owned=[owned(wanted("orders", 6))]))

    assert moves(change) == [("config.retention.ms", None, WEEK, "already so, will be managed")]
    assert change.before == change.after


def test_the_guards_are_remembered_at_the_cluster() -> None:
    applied = wanted("orders")
    want = replace(applied, protect=True, on_remove=OnRemove.DELETE)

    change = only(want, cluster(live("orders"), owned=[owned(applied)]))

    assert moves(change) == [
        ("on_remove", "keep", "delete", "remembered at the cluster"),
        ("protect", "false", "true", "remembered at the cluster"),
    ]


def test_growth_says_that_keys_move_but_a_mirror_only_follows() -> None:
    grown = only(wanted("orders", 12), cluster(live("orders", 6)))
    followed = only(mirror("orders", 12), cluster(live("orders", 6), name="dc2"))

    assert moves(grown) == [("partitions", 6, 12, "")]
    assert grown.notes == ("records with a key will go to other partitions than those before them",)
    assert followed.notes == ()


def test_a_mirror_may_have_more_partitions_than_its_source() -> None:
    assert only(mirror("orders", 6), cluster(live("orders", 8), name="dc2")).action is Action.NO_OP


def test_a_mirror_takes_back_what_its_source_no_longer_sets() -> None:
    want = replace(mirror("orders"), unset=frozenset({"retention.ms", "segment.ms"}))

    change = only(want, cluster(live("orders", retention_ms=DAY), name="dc2", owned=[owned(want)]))

    assert moves(change) == [("retention.ms", DAY, None, "no longer set at dc1/orders")]
    assert change.reason == "mirrored by flow.dc1-to-dc2"


def test_what_a_running_job_made_of_a_mirror_is_not_compared_with_what_was_applied() -> None:
    applied = mirror("orders", 6, retention_ms=DAY)
    want = mirror("orders", 8, retention_ms=WEEK)

    change = only(want, cluster(live("orders", 8, retention_ms=WEEK), name="dc2", owned=[owned(applied)]))

    assert change.action is Action.NO_OP


def test_a_topic_that_exists_and_is_nobodys_is_adopted() -> None:
    change = only(wanted("orders", 6, retention_ms=WEEK), cluster(live("orders", 6, retention_ms=DAY)))
    as_it_is = only(wanted("orders", 6), cluster(live("orders", 6)))

    assert (change.adopted, change.reason) == (True, "exists, will be managed")
    assert moves(change) == [("retention.ms", DAY, WEEK, "")]
    assert (as_it_is.action, as_it_is.adopted) == (Action.NO_OP, True)


def test_a_topic_of_another_topology_is_left_alone() -> None:
    want = wanted("orders", 12)

    change = only(want, cluster(live("orders", 6), owned=[owned(want, topology="billing")]))

    assert (change.action, change.reason) == (Action.NO_OP, "owned by topology 'billing'")


def test_a_topic_that_may_not_be_described_is_not_created() -> None:
    change = only(wanted("orders"), cluster(hidden=frozenset({"orders"})))

    assert (change.action, change.reason) == (
        Action.UNKNOWN,
        "(unknown: not authorized to describe dc1/orders)",
    )


def test_another_topic_under_the_same_name_is_said_and_remembered() -> None:
    want = wanted("orders", 6)

    change = only(want, cluster(live("orders", topic_id="new"), owned=[owned(want, topic_id="old")]))

    assert change.notes == ("was deleted and made again outside the topology since it was applied",)
    assert moves(change) == [("id", "old", "new", "another topic under the same name")]


def test_an_entry_that_knows_no_id_tells_nothing_about_it() -> None:
    want = wanted("orders", 6)
    entry = owned(want, spec={"partitions": "6"})

    assert only(want, cluster(live("orders"), owned=[entry])).action is Action.NO_OP


def test_a_sensitive_value_is_never_shown() -> None:
    secret = {"vendor.password": ConfigValue(None, sensitive=True)}
    have = replace(live("orders"), config=secret)
    want, applied = wanted("orders", vendor_password="canary"), wanted("orders", vendor_password="old")

    change = only(want, cluster(have, owned=[owned(applied)]))
    same = only(want, cluster(have, owned=[owned(want)]))
    adopted = only(want, cluster(have))

    assert moves(change) == [("vendor.password", SENSITIVE, SENSITIVE, "")]
    assert "canary" not in repr(change)
    assert same.action is Action.NO_OP
    assert adopted.action is Action.UPDATE


@pytest.mark.parametrize(
    ("factors", "shown"),
    [
        ((3, 3, 1), "3, and 1 for partition 2"),
        ((1, 3, 3), "3, and 1 for partition 0"),
        ((3, 3, 3, 2, 2), "3, and 2 for 2 partitions (3, 4)"),
        ((2, 1, 3, 3), "3, and 1 for partition 1, and 2 for partition 0"),
    ],
)
def test_a_topic_whose_partitions_differ_is_shown_as_it_is(factors: tuple[int, ...], shown: str) -> None:
    want = wanted("orders", len(factors), 3)
    change = only(want, cluster(uneven("orders", *factors), owned=[owned(want)]))

    assert moves(change) == [("replication", factors, 3, "changed outside the topology")]
    assert change.before is not None
    assert change.before["replication"] == factors
    assert displayed(("replication",), factors) == shown


def test_a_replication_that_is_not_declared_is_not_compared() -> None:
    assert moves(only(wanted("orders"), cluster(uneven("orders", 3, 1)))) == []
