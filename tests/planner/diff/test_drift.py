"""Drift: what was applied, against what is there."""

from dataclasses import replace

import pytest

from planner.diff import drift
from planner.diff.record import acl_entry, announced
from planner.graph import expand
from planner.model.address import group_address
from planner.model.desired import Declared, DesiredAcl
from planner.model.observed import ConfigValue, RegistryEntry, Unreachable
from planner.model.plan import SENSITIVE, Action
from planner.model.topology import Topic
from tests.fakes.states import (
    SHOP,
    acl,
    cluster,
    desired,
    flow,
    live,
    mirror,
    observed,
    owned,
    topology,
    wanted,
)

DAY, WEEK = "86400000", "604800000"
APPLIED = owned(wanted("orders", 6, 3, retention_ms=DAY))
READ = acl()
ACL = acl_entry(DesiredAcl(READ, Declared()), SHOP, created=True)


def drifted(at, *topics):
    return [
        (change.action, change.reason, [(one.key, one.old, one.new) for one in change.fields])
        for change in drift(desired(*topics), observed(at))
    ]


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        (live("orders", 6, retention_ms=DAY, segment_ms=DAY), (Action.NO_OP, "as applied", [])),
        (
            live("orders", 6, retention_ms=WEEK),
            (Action.UPDATE, "changed outside the topology", [("retention.ms", DAY, WEEK)]),
        ),
        (
            live("orders", 8, 2, inherited={"retention.ms": WEEK}),
            (
                Action.UPDATE,
                "changed outside the topology",
                [("partitions", "6", "8"), ("replication", "3", "2"), ("retention.ms", DAY, None)],
            ),
        ),
        (
            live("orders", 6, topic_id="another", retention_ms=DAY),
            (Action.REPLACE, "deleted and made again outside the topology", []),
        ),
    ],
)
def test_a_topic(have, expected) -> None:
    assert drifted(cluster(have, owned=[APPLIED])) == [expected]


def test_a_topic_that_is_gone_or_hidden() -> None:
    assert drifted(cluster(owned=[APPLIED])) == [(Action.DELETE, "deleted outside the topology", [])]
    assert drifted(cluster(owned=[APPLIED], hidden=frozenset({"orders"}))) == [
        (Action.UNKNOWN, "(unknown: not authorized to describe dc1/orders)", [])
    ]


def test_what_cannot_be_read_is_not_drift() -> None:
    entry = owned(wanted("orders", vendor_password="x"))
    have = replace(live("orders"), config={"vendor.password": ConfigValue(None, sensitive=True)})

    (change,) = drift(desired(), observed(cluster(have, owned=[entry])))

    assert change.action is Action.NO_OP
    assert change.after == {"config.vendor.password": SENSITIVE}


def test_nothing_of_others_and_nothing_at_silent_clusters() -> None:
    others = [replace(APPLIED, topology="billing"), RegistryEntry(group_address("dc1", "app"), SHOP)]

    assert drifted(cluster(live("orders"), owned=others)) == []
    assert drift(desired(), observed(Unreachable("dc1", "no"))) == ()


@pytest.mark.parametrize(
    ("have", "source_now", "keys"),
    [
        (
            live("orders", 6, retention_ms=WEEK),
            mirror("orders", 6, retention_ms=WEEK),
            [],
        ),  # the job followed
        (live("orders", 6, retention_ms=DAY), mirror("orders", 6, retention_ms=WEEK), []),  # it will
        (live("orders", 6, retention_ms="1"), mirror("orders", 6, retention_ms=WEEK), ["retention.ms"]),
        (live("orders", 8, retention_ms=DAY), mirror("orders", 8, retention_ms=DAY), []),
        (live("orders", 9, retention_ms=DAY), mirror("orders", 8, retention_ms=DAY), ["partitions"]),
        (live("orders", 6), replace(mirror("orders", 6), unset=frozenset({"retention.ms"})), []),
        (live("orders", 6), mirror("orders", 6), ["retention.ms"]),
    ],
)
def test_a_mirror_that_is_as_its_source_wants_it_has_not_drifted(have, source_now, keys) -> None:
    applied = owned(mirror("orders", 6, retention_ms=DAY))

    ((_, _, fields),) = drifted(cluster(have, name="dc2", owned=[applied]), source_now)

    assert [key for key, *_ in fields] == keys


HOUR = "3600000"


@pytest.mark.parametrize(
    ("mirror_has", "source_has", "keys"),
    [
        (live("orders", 6, retention_ms=HOUR), live("orders", 6, retention_ms=HOUR), []),
        (live("orders", 6), live("orders", 6), []),
        (live("orders", 8, retention_ms=DAY), live("orders", 8, retention_ms=DAY), []),
        (live("orders", 6, retention_ms=WEEK), live("orders", 6, retention_ms=HOUR), ["retention.ms"]),
    ],
)
def test_a_mirror_that_followed_a_change_of_its_source_has_not_drifted(mirror_has, source_has, keys) -> None:
    """The source has: it is declared with a day, and somebody changed it. Its mirror did what it should."""
    declared = Topic("orders", "dc1", 6, config={"retention.ms": DAY})
    shop = replace(topology(flow("there")), topics=(declared,))
    source, copy = wanted("orders", 6, retention_ms=DAY), mirror("orders", 6, flow="there", retention_ms=DAY)
    seen = observed(
        cluster(source_has, owned=[owned(source)]), cluster(mirror_has, name="dc2", owned=[owned(copy)])
    )

    changes = {str(one.address): one for one in drift(expand(shop, seen), seen)}

    assert [one.key for one in changes["topic.dc2.orders"].fields] == keys
    assert changes["topic.dc1.orders"].action is Action.UPDATE


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (cluster(acls=[READ], owned=[ACL]), [(Action.NO_OP, "as applied", [])]),
        (cluster(acls=[], owned=[ACL]), [(Action.DELETE, "deleted outside the topology", [])]),
        (cluster(acls=[], owned=[announced(ACL)]), [(Action.NO_OP, "as applied", [])]),
        (cluster(owned=[ACL]), []),
        (cluster(owned=[ACL], unreadable={"acls": "why"}), [(Action.UNKNOWN, "(unknown: why)", [])]),
    ],
)
def test_an_acl(at, expected) -> None:
    assert drifted(at) == expected
