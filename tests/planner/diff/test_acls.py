"""ACLs: there or not there; whose they are decides what happens when they leave the topology."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import acl_entry, acl_rule, acl_spec, announced
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.plan import Action
from tests.fakes.states import SHOP, acl, cluster, desired, flow, observed, selecting, topology

READ = acl("READ")
ENTRY = acl_entry(DesiredAcl(READ, Declared()), SHOP, created=True)
CUT_SHORT = "made by an apply that was cut short; only what is remembered of it changes"


def changed(*acls: DesiredAcl, at, flows=()):
    found = diff(desired(acls=acls, flows=flows), observed(at), topology())
    return [(change.action, change.reason, change.adopted) for change in found]


@pytest.mark.parametrize(
    ("origin", "at", "expected"),
    [
        (Declared(), cluster(acls=[]), (Action.CREATE, "declared", False)),
        (MirroredBy("f", "dc2", "orders"), cluster(acls=[]), (Action.CREATE, "mirrored by flow.f", False)),
        ("protect: acl of flow.f", cluster(acls=[]), (Action.CREATE, "protect: acl of flow.f", False)),
        (Declared(), cluster(acls=[READ]), (Action.NO_OP, "exists, will be managed", True)),
        (Declared(), cluster(acls=[READ], owned=[ENTRY]), (Action.NO_OP, "declared", False)),
        (
            Declared(),
            cluster(acls=[], owned=[ENTRY]),
            (Action.CREATE, "declared; it was deleted outside the topology", False),
        ),
        (Declared(), cluster(acls=[], owned=[announced(ENTRY)]), (Action.CREATE, "declared", False)),
        (Declared(), cluster(acls=[READ], owned=[announced(ENTRY)]), (Action.UPDATE, CUT_SHORT, False)),
        (
            Declared(),
            cluster(acls=[READ], owned=[replace(ENTRY, topology="billing")]),
            (Action.NO_OP, "owned by topology 'billing'", False),
        ),
        (Declared(), cluster(), (Action.NO_OP, "dc1 has no authorizer", False)),
        (
            Declared(),
            cluster(unreadable={"acls": "not authorized to describe ACLs at dc1"}),
            (Action.UNKNOWN, "(unknown: not authorized to describe ACLs at dc1)", False),
        ),
    ],
)
def test_a_desired_acl(origin, at, expected) -> None:
    assert changed(DesiredAcl(READ, origin), at=at) == [expected]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (cluster(acls=[READ], owned=[ENTRY]), [(Action.DELETE, "leaves the topology", False)]),
        (cluster(acls=[READ], owned=[announced(ENTRY)]), [(Action.DELETE, "leaves the topology", False)]),
        (
            cluster(acls=[], owned=[announced(ENTRY)]),
            [(Action.FORGET, "never made: an apply was cut short", False)],
        ),
        (
            cluster(acls=[READ], owned=[replace(ENTRY, origin="flow.gone")]),
            [(Action.DELETE, "no longer mirrored by flow.gone", False)],
        ),
        (
            cluster(acls=[READ], owned=[replace(ENTRY, created=False)]),
            [(Action.FORGET, "leaves the topology; it was there before and stays", False)],
        ),
        (cluster(acls=[], owned=[ENTRY]), [(Action.FORGET, "already gone from the cluster", False)]),
        (
            cluster(acls=[READ], owned=[replace(ENTRY, spec={"shape": "of a later version"})]),
            [(Action.FORGET, "already gone from the cluster", False)],
        ),
        (cluster(owned=[ENTRY]), []),
        (cluster(owned=[ENTRY], unreadable={"acls": "why"}), [(Action.UNKNOWN, "(unknown: why)", False)]),
    ],
)
def test_an_owned_acl_that_left_the_topology(at, expected) -> None:
    assert changed(at=at) == expected


def test_a_mirrored_acl_whose_source_is_silent_stays_as_it_is() -> None:
    at = cluster(acls=[READ], owned=[replace(ENTRY, origin="flow.dc1-to-dc2")])

    found = changed(at=at, flows=[selecting(flow(), known=False)])

    assert found == [(Action.UNKNOWN, "(unknown: dc1 unreachable)", False)] * 2  # the ACL and the flow


def test_taking_back_a_denial_says_what_follows() -> None:
    rule = acl("READ", permission="DENY")
    entry = acl_entry(DesiredAcl(rule, Declared()), SHOP, created=True)

    (change,) = diff(desired(), observed(cluster(acls=[rule], owned=[entry])), topology())

    assert change.notes == ("what it denied is allowed again, if another rule allows it",)


def test_a_rule_goes_into_the_registry_and_back() -> None:
    assert acl_rule("dc1", acl_spec(READ)) == READ
