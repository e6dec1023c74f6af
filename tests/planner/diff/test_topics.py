"""Topics: what is compared, what leaves the topology, what drifted, and what is said about it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from planner.diff.fields import displayed
from planner.model.address import group_address
from planner.model.change import SENSITIVE, Action
from planner.model.observed import ConfigSource, ConfigValue, RegistryEntry, Unreachable
from planner.model.topology import OnRemove
from tests.fakes.replacing import replace
from tests.fakes.states import SHOP, cluster, desired, flow, live, mirror, owned, selecting, uneven, wanted
from tests.fakes.tables import cases
from tests.planner.diff.said import brief, drifted, moves, planned

HOUR, DAY, WEEK = "3600000", "86400000", "604800000"
PLAIN, SIX, TWELVE = wanted("orders"), wanted("orders", 6), wanted("orders", 12)
A_WEEK, A_DAY = wanted("orders", 6, retention_ms=WEEK), wanted("orders", 6, retention_ms=DAY)
HAS_WEEK, HAS_DAY, HAS = live("orders", retention_ms=WEEK), live("orders", retention_ms=DAY), live("orders")
UNSET = replace(mirror("orders"), unset=frozenset({"retention.ms", "segment.ms"}))
GUARDED = replace(PLAIN, protect=True, on_remove=OnRemove.DELETE)
BOTH = wanted("orders", 6, retention_ms=WEEK, segment_ms=DAY)
OUTSIDE = "changed outside the topology"
EXISTS = "exists, will be managed"
MIRRORED = "mirrored by flow.dc1-to-dc2"
NO_OP, SAME = "no-op", "no-op: declared"
HIDDEN = {"hidden": frozenset({"orders"})}
NOT_TOLD = "unknown: (unknown: not authorized to describe dc1/orders)"


def at(have=None, applied=None, name="dc1", **more):
    """A cluster with this topic, which was applied so."""
    return cluster(*([have] if have else []), owned=[applied] if applied else [], name=name, **more)


def there(have=None, applied=None, **more):
    return at(have, applied, "dc2", **more)


AT = "(remembered at the cluster)"
NEITHER = "partitions: None -> None; replication: None -> None"
REMEMBERED = "update: only what is remembered of it changes"
CREATED_WEEK = f"partitions: None -> 12; replication: None -> None; retention.ms: None -> {WEEK}"


@cases(
    "want have says",
    {
        "not there": (wanted("orders", 12, retention_ms=WEEK), at(), f"create: declared; {CREATED_WEEK}"),
        "a mirror": (
            mirror("orders", 12),
            there(),
            f"create: {MIRRORED}; partitions: None -> 12; replication: None -> None",
        ),
        "deleted": (
            PLAIN,
            at(None, owned(PLAIN)),
            f"create: declared; it was deleted outside the topology; {NEITHER}",
        ),
        "what is not declared": (PLAIN, at(live("orders", 3, 1, retention_ms=DAY), owned(PLAIN)), SAME),
        "as declared": (
            wanted("orders", 6, 3),
            at(live("orders", 6, 3), owned(wanted("orders", 6, 3))),
            SAME,
        ),
        "a replication that is not declared": (PLAIN, at(uneven("orders", 3, 1), owned(PLAIN)), SAME),
        "the topology changed": (
            A_WEEK,
            at(HAS_DAY, owned(A_DAY)),
            f"update: the topology changed; retention.ms: {DAY} -> {WEEK}",
        ),
        "a default becomes explicit": (
            A_WEEK,
            at(live("orders", inherited={"retention.ms": WEEK}), owned(A_WEEK)),
            f"update: {OUTSIDE}; retention.ms: None -> {WEEK} ({OUTSIDE})",
        ),
        "changed by hand": (
            A_WEEK,
            at(HAS_DAY, owned(A_WEEK)),
            f"update: {OUTSIDE}; retention.ms: {DAY} -> {WEEK} ({OUTSIDE})",
        ),
        "moved by hand": (
            wanted("orders", None, 3),
            at(live("orders", 6, 2), owned(wanted("orders", None, 3))),
            f"update: {OUTSIDE}; replication: 2 -> 3 ({OUTSIDE})",
        ),
        "a key that left goes back to the cluster's own": (
            SIX,
            at(HAS_WEEK, owned(A_WEEK)),
            f"update: the topology changed; retention.ms: {WEEK} -> None (no longer declared)",
        ),
        "a key that left both is only forgotten": (
            SIX,
            at(HAS, owned(A_WEEK)),
            f"{REMEMBERED}; config.retention.ms: {WEEK} -> None (no longer managed)",
        ),
        "a key that is declared as it is already": (
            A_WEEK,
            at(HAS_WEEK, owned(SIX)),
            f"{REMEMBERED}; config.retention.ms: None -> {WEEK} (already so, will be managed)",
        ),
        "the guards are remembered": (
            GUARDED,
            at(HAS, owned(PLAIN)),
            f"{REMEMBERED}; on_remove: keep -> delete {AT}; protect: false -> true {AT}",
        ),
        "a mirror may have more partitions": (
            mirror("orders", 6),
            there(live("orders", 8), owned(mirror("orders", 6))),
            f"{NO_OP}: {MIRRORED}",
        ),
        "a mirror takes back what its source unsets": (
            UNSET,
            there(HAS_DAY, owned(UNSET)),
            f"update: {MIRRORED}; retention.ms: {DAY} -> None (no longer set at dc1/orders)",
        ),
        "what a job made of a mirror": (
            mirror("orders", 8, retention_ms=WEEK),
            there(live("orders", 8, retention_ms=WEEK), owned(mirror("orders", 6, retention_ms=DAY))),
            f"{NO_OP}: {MIRRORED}",
        ),
        "adopted": (A_WEEK, at(HAS_DAY), f"update (adopted): {EXISTS}; retention.ms: {DAY} -> {WEEK}"),
        "adopted as it is": (SIX, at(HAS), f"no-op (adopted): {EXISTS}"),
        "another topology's": (
            TWELVE,
            at(HAS, owned(TWELVE, topology="billing")),
            "no-op: owned by topology 'billing'",
        ),
        "hidden": (PLAIN, at(**HIDDEN), NOT_TOLD),
        "settings that can't be read": (
            PLAIN,
            at(HAS, unreadable={"topic.orders": "no leader"}, **HIDDEN),
            "unknown: (unknown: the settings of dc1/orders could not be read: no leader)",
        ),
        "an entry without an id": (SIX, at(HAS, owned(SIX, spec={"partitions": "6"})), SAME),
        "a silent cluster": (PLAIN, Unreachable("dc1", "refused"), "unknown: (unknown: dc1 unreachable)"),
        "a cluster that refuses the login": (
            PLAIN,
            Unreachable("dc1", "wrong password", silent=False),
            "unknown: (unknown: dc1 could not be read)",
        ),
    },
)
def test_a_topic_that_is_wanted(want, have, says) -> None:
    (change,) = planned(want, have)
    assert brief(change) == says.replace("no-op", Action.NO_OP.value)


def test_what_a_change_knows_beside_its_fields() -> None:
    (created,) = planned(wanted("orders", 12, retention_ms=WEEK), at())
    assert created.fields[1].inherited == "3"
    assert created.after == {"partitions": 12, "replication": None, "config": {"retention.ms": WEEK}}
    before = wanted("orders", 6, retention_ms=DAY, segment_ms=DAY)
    (changed,) = planned(BOTH, at(live("orders", 6, retention_ms=DAY, segment_ms=DAY), owned(before)))
    assert changed.unchanged == 2
    assert changed.before == {"partitions": 6, "config": {"retention.ms": DAY, "segment.ms": DAY}}
    assert changed.after == {"partitions": 6, "config": {"retention.ms": WEEK, "segment.ms": DAY}}
    (taken_back,) = planned(SIX, at(HAS_WEEK, owned(A_WEEK)))
    assert taken_back.after == {"partitions": 6, "config": {}}
    for have, inherited in (
        (at(live("orders", inherited={"retention.ms": WEEK})), WEEK),
        (at(HAS, defaults={"retention.ms": DAY}), DAY),
    ):
        assert planned(A_WEEK, have)[0].fields[0].inherited == inherited
    (remembered,) = planned(A_WEEK, at(HAS_WEEK, owned(SIX)))
    assert remembered.before == remembered.after


def test_growth_says_that_keys_move_but_a_mirror_only_follows() -> None:
    (grown,), (followed,) = planned(TWELVE, at(HAS)), planned(mirror("orders", 12), there(HAS))
    assert moves(grown) == moves(followed) == ["partitions: 6 -> 12"]
    assert grown.notes == ("records with a key will go to other partitions than those before them",)
    assert followed.notes == ()


def test_another_topic_under_the_same_name_is_said_and_remembered() -> None:
    (change,) = planned(SIX, at(live("orders", topic_id="new"), owned(SIX, topic_id="old")))
    assert change.notes == ("was deleted and made again outside the topology since it was applied",)
    assert moves(change) == ["id: old -> new (another topic under the same name)"]


@cases(
    "factors shown",
    {
        "the last": ((3, 3, 1), "3, and 1 for partition 2"),
        "the first": ((1, 3, 3), "3, and 1 for partition 0"),
        "two": ((3, 3, 3, 2, 2), "3, and 2 for 2 partitions (3, 4)"),
        "three factors": ((2, 1, 3, 3), "3, and 1 for partition 1, and 2 for partition 0"),
    },
)
def test_a_topic_whose_partitions_differ_is_shown_as_it_is(factors: tuple[int, ...], shown: str) -> None:
    want = wanted("orders", len(factors), 3)
    (change,) = planned(want, at(uneven("orders", *factors), owned(want)))
    assert moves(change) == [f"replication: {factors} -> 3 ({OUTSIDE})"]
    assert change.before is not None
    assert change.before["replication"] == factors
    assert displayed(("replication",), factors) == shown


# What leaves the topology: forgotten or deleted, as it was last applied, never by accident.

KEPT = owned(A_DAY)
DOOMED = replace(KEPT, on_remove=OnRemove.DELETE)
MIRROR = owned(mirror("orders", 6))
SOURCELESS = replace(MIRROR, spec={})
SILENT = Unreachable("dc1", "connection refused")
DELETING = flow(on_source_delete="delete")
UNSELECTED = "forget: flow.dc1-to-dc2 no longer selects dc1/orders; it stays"
SOURCE_GONE = "forget: dc1/orders was deleted; the mirror stays"
UNKNOWN = "unknown: (unknown: dc1 unreachable)"


@cases(
    "clusters flows says",
    {
        "on_remove: keep": (
            [at(HAS, KEPT)],
            [],
            ["forget: leaves the topology; on_remove: keep, it stays as it is"],
        ),
        "on_remove: delete": (
            [at(HAS, DOOMED)],
            [],
            ["delete: leaves the topology; on_remove: delete, as last applied"],
        ),
        "gone": ([at(None, DOOMED)], [], ["forget: already gone from the cluster"]),
        "another has its name": (
            [at(live("orders", topic_id="another"), DOOMED)],
            [],
            ["forget: another topic has its name now, which is left alone"],
        ),
        "hidden": ([at(None, DOOMED, **HIDDEN)], [], [NOT_TOLD]),
        "another topology's": ([at(HAS, replace(DOOMED, topology="billing"))], [], []),
        "nobody's": ([at(HAS)], [], []),
        "an entry of another kind": ([at(None, RegistryEntry(group_address("dc1", "app"), SHOP))], [], []),
        "a mirror whose flow left": (
            [at(), there(HAS, MIRROR)],
            [],
            ["forget: flow.dc1-to-dc2 leaves the topology; its mirror stays"],
        ),
        "a mirror that is not selected": ([at(HAS), there(HAS, MIRROR)], [selecting(flow())], [UNSELECTED]),
        "a mirror without its source": ([at(), there(HAS, MIRROR)], [selecting(flow())], [SOURCE_GONE]),
        "on_source_delete: delete": (
            [at(), there(HAS, MIRROR)],
            [selecting(DELETING)],
            ["delete: dc1/orders was deleted; on_source_delete: delete of flow.dc1-to-dc2"],
        ),
        "of a promoted flow": (
            [at(), there(HAS, MIRROR)],
            [selecting(structs.replace(DELETING, state="promoted"))],
            [SOURCE_GONE],
        ),
        "a hidden source": ([at(**HIDDEN), there(HAS, MIRROR)], [selecting(DELETING)], [UNSELECTED]),
        "an unknown source": (
            [at(), there(HAS, SOURCELESS)],
            [selecting(DELETING)],
            ["forget: flow.dc1-to-dc2 no longer selects dc1/; it stays"],
        ),
        "a silent source": (
            [SILENT, there(HAS, MIRROR)],
            [selecting(flow(), known=False)],
            [UNKNOWN, UNKNOWN],
        ),
        "a failover waits for no source": (
            [SILENT, there(HAS, MIRROR)],
            [selecting(flow(state="failed_over"), known=False)],
            [],
        ),
        "a source that this plan deletes": (
            [at(HAS, DOOMED), there(HAS, MIRROR)],
            [selecting(DELETING)],
            [
                "delete: leaves the topology; on_remove: delete, as last applied",
                "delete: dc1/orders was deleted; on_source_delete: delete of flow.dc1-to-dc2",
            ],
        ),
    },
)
def test_a_topic_that_leaves_the_topology(clusters, flows, says) -> None:
    assert [brief(change) for change in planned(desired(flows=flows), *clusters)] == says


def test_a_delete_says_what_is_inside_and_which_groups_read_it() -> None:
    groups = {f"g{number}": frozenset({"orders"}) for number in range(7)} | {"other": frozenset({"visits"})}
    have = at(live("orders", 6, 3), DOOMED, sizes={"orders": 1_200_000_000}, group_topics=groups)
    (change,) = planned(desired(), have)
    assert change.notes == (
        "the topic holds 1.2 GB of records, which are lost with it",
        "consumer groups that commit to it: g0, g1, g2, g3, g4 and 2 more",
    )
    assert change.before == {"partitions": 6, "replication": 3, "config": {"retention.ms": DAY}}


# Drift: what was applied, against what is there.

APPLIED = owned(wanted("orders", 6, 3, retention_ms=DAY))
GROWN = live("orders", 8, 2, inherited={"retention.ms": WEEK})


@cases(
    "have says",
    {
        "as applied": (at(live("orders", retention_ms=DAY, segment_ms=DAY), APPLIED), ["no-op: as applied"]),
        "a value": (at(HAS_WEEK, APPLIED), [f"update: {OUTSIDE}; retention.ms: {DAY} -> {WEEK}"]),
        "several": (
            at(GROWN, APPLIED),
            [f"update: {OUTSIDE}; partitions: 6 -> 8; replication: 3 -> 2; retention.ms: {DAY} -> None"],
        ),
        "made again": (
            at(live("orders", topic_id="another", retention_ms=DAY), APPLIED),
            ["replace: deleted and made again outside the topology"],
        ),
        "deleted": (at(None, APPLIED), ["delete: deleted outside the topology"]),
        "hidden": (at(None, APPLIED, **HIDDEN), [NOT_TOLD]),
        "another topology's": (at(HAS, replace(APPLIED, topology="billing")), []),
        "no topic": (at(HAS, RegistryEntry(group_address("dc1", "app"), SHOP)), []),
        "a silent cluster": (Unreachable("dc1", "no"), []),
    },
)
def test_a_topic_that_was_applied(have, says) -> None:
    assert [brief(one) for one in drifted(desired(), have)] == [
        line.replace("no-op", Action.NO_OP.value) for line in says
    ]


def test_drift_has_values_of_the_kind_and_in_the_form_of_a_plan() -> None:
    want = replace(wanted("orders", 6, retention_ms=DAY), replication=3)
    (drift,), (plan,) = drifted(desired(), at(GROWN, owned(want))), planned(want, at(GROWN))

    assert drift.after == {"partitions": 8, "replication": 2, "config": {}}
    assert drift.before == {
        "partitions": 6,
        "replication": 3,
        "config": {"retention.ms": DAY},
        "id": "id:orders",
    }
    assert plan.before is not None
    assert {key: type(value) for key, value in drift.after.items()} == {
        key: type(value) for key, value in plan.before.items()
    }
    (partitions, *_) = drift.fields
    assert (partitions.old, partitions.new) == (6, 8)


FOLLOWED = owned(mirror("orders", 6, retention_ms=DAY))


@cases(
    "have source_now keys",
    {
        "the job followed": (HAS_WEEK, mirror("orders", 6, retention_ms=WEEK), []),
        "it will": (HAS_DAY, mirror("orders", 6, retention_ms=WEEK), []),
        "neither": (
            live("orders", retention_ms="1"),
            mirror("orders", 6, retention_ms=WEEK),
            ["retention.ms"],
        ),
        "it grew": (live("orders", 8, retention_ms=DAY), mirror("orders", 8, retention_ms=DAY), []),
        "it grew by hand": (
            live("orders", 9, retention_ms=DAY),
            mirror("orders", 8, retention_ms=DAY),
            ["partitions"],
        ),
        "unset": (HAS, replace(mirror("orders", 6), unset=frozenset({"retention.ms"})), []),
        "unset by hand": (HAS, mirror("orders", 6), ["retention.ms"]),
    },
)
def test_a_mirror_that_is_as_its_source_wants_it_has_not_drifted(have, source_now, keys) -> None:
    (change,) = drifted(desired(source_now), there(have, FOLLOWED))
    assert [one.key for one in change.fields] == keys


# A value that the broker keeps to itself stands in no change, whatever happens to its topic.

secrets = st.none() | st.sampled_from(["canary-1", "canary-2"])


@given(secrets, secrets, secrets, st.booleans(), st.sampled_from(ConfigSource), st.sampled_from(OnRemove))
def test_no_change_holds_the_secret_of_a_topic(want, have, applied, is_owned, source, on_remove) -> None:
    def declared(value):
        return wanted("orders", 6, **({} if value is None else {"vendor_credential": value}))

    live_one = replace(
        live("orders"), config={"vendor.credential": ConfigValue(have, source, sensitive=True)}
    )
    seen = at(live_one, replace(owned(declared(applied)), on_remove=on_remove) if is_owned else None)
    changes = planned(declared(want), seen)
    assert len(changes) == 1
    assert "canary" not in repr((changes, planned(desired(), seen), drifted(desired(), seen)))


def test_a_secret_that_changes_is_only_named() -> None:
    have = replace(live("orders"), config={"vendor.password": ConfigValue(None, sensitive=True)})
    want, before = wanted("orders", vendor_password="x"), wanted("orders", vendor_password="old")
    (change,), (same,), (adopted,) = (
        planned(want, at(have, entry)) for entry in (owned(before), owned(want), None)
    )
    assert moves(change) == [f"vendor.password: {SENSITIVE} -> {SENSITIVE}"]
    assert (same.action, adopted.action) == (Action.NO_OP, Action.UPDATE)
    (kept,), (gone,) = drifted(desired(), at(have, owned(want))), drifted(desired(), at(None, owned(want)))
    assert (kept.action, kept.after) == (Action.NO_OP, {"config": {"vendor.password": SENSITIVE}})
    assert gone.before is not None
    assert gone.before["config"] == {"vendor.password": SENSITIVE}
