"""Quotas: what changes, what is only remembered, and what happens when they leave the topology."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.diff import diff, drift
from planner.diff.record import announced, quota_entry
from planner.model.desired import Declared, DesiredQuota, MirroredBy
from planner.model.observed import ObservedCluster, RegistryEntry, quota_spec, recorded_quota
from planner.model.plan import Action, Change
from planner.model.topology import QuotaEntity
from planner.render.plan.words import value_text
from tests.fakes.states import SHOP, cluster, desired, flow, observed, selecting, topology

APP = QuotaEntity("app")
MIRRORED = MirroredBy("dc1-to-dc2", "dc2")
RATES = {"producer_byte_rate": 10_000_000, "request_percentage": 12.5}


def quota(values: Mapping[str, float] = RATES, origin: Declared | MirroredBy | None = None) -> DesiredQuota:
    return DesiredQuota("dc1", APP, values, origin or Declared())


ENTRY = quota_entry(quota(), SHOP, created=True)


def at(values: Mapping[str, float] | None = None, entry: RegistryEntry | None = None) -> ObservedCluster:
    return cluster(quotas={APP: values} if values else {}, owned=[entry] if entry else [])


def change(seen: ObservedCluster, *quotas: DesiredQuota, known: bool = True) -> Change:
    flows = (selecting(flow(), known=known),)
    found = diff(desired(quotas=quotas, flows=flows), observed(seen, cluster(name="dc2")), topology())
    (only,) = (one for one in found if one.address.kind.value == "quota")
    return only


def moved(one: Change) -> dict[str, str]:
    return {
        field.key: f"{value_text(field, field.old)} -> {value_text(field, field.new)}" for field in one.fields
    }


@pytest.mark.parametrize(
    ("seen", "action", "reason", "fields"),
    [
        (
            at(),
            Action.CREATE,
            "declared",
            {"producer_byte_rate": "no limit -> 10MB/s", "request_percentage": "no limit -> 12.5"},
        ),
        (
            at(None, ENTRY),
            Action.CREATE,
            "declared; it was deleted outside the topology",
            {"producer_byte_rate": "no limit -> 10MB/s", "request_percentage": "no limit -> 12.5"},
        ),
        (at(RATES), Action.NO_OP, "exists, will be managed", {}),
        (at(RATES, ENTRY), Action.NO_OP, "declared", {}),
        (
            at({**RATES, "consumer_byte_rate": 1}, ENTRY),
            Action.NO_OP,
            "declared",
            {},
        ),
        (
            at({**RATES, "producer_byte_rate": 1_048_576}),
            Action.UPDATE,
            "exists, will be managed",
            {"producer_byte_rate": "1MiB/s -> 10MB/s"},
        ),
        (
            at({**RATES, "request_percentage": 50}, ENTRY),
            Action.UPDATE,
            "changed outside the topology",
            {"request_percentage": "50 -> 12.5"},
        ),
        (
            at({"producer_byte_rate": 10_000_000}, ENTRY),
            Action.UPDATE,
            "changed outside the topology",
            {"request_percentage": "no limit -> 12.5"},
        ),
        (
            at(RATES, announced(ENTRY)),
            Action.UPDATE,
            "made by an apply that was cut short; only what is remembered of it changes",
            {"spec": "announced -> as it is"},
        ),
        (at(RATES, replace(ENTRY, topology="billing")), Action.NO_OP, "owned by topology 'billing'", {}),
    ],
)
def test_a_desired_quota(seen: ObservedCluster, action: Action, reason: str, fields: dict[str, str]) -> None:
    found = change(seen, quota())
    assert (found.action, found.reason, moved(found)) == (action, reason, fields)
    assert found.adopted is (not seen.owned and action is not Action.CREATE)


def test_a_limit_that_is_no_longer_declared_is_given_back_and_others_are_left_alone() -> None:
    seen = at({**RATES, "consumer_byte_rate": 1}, ENTRY)
    found = change(seen, quota({"producer_byte_rate": 5_000_000}))
    assert moved(found) == {"producer_byte_rate": "10MB/s -> 5MB/s", "request_percentage": "12.5 -> no limit"}
    assert [one.note for one in found.fields] == ["", "no longer declared"]


def test_a_limit_that_an_operator_set_to_what_is_declared_now_is_only_remembered() -> None:
    found = change(at({**RATES, "producer_byte_rate": 5}, ENTRY), quota({**RATES, "producer_byte_rate": 5}))
    (field,) = found.fields
    assert (field.path, value_text(field, field.old), field.new) == (
        ("recorded", "producer_byte_rate"),
        "10MB/s",
        5,
    )


def test_a_quota_that_a_flow_made_and_that_is_declared_now_is_remembered_as_declared() -> None:
    entry = quota_entry(quota(origin=MIRRORED), SHOP, created=True)
    (field,) = change(at(RATES, entry), quota()).fields
    assert (field.path, field.old, field.new) == (("recorded", "origin"), "flow.dc1-to-dc2", "declared")


def test_a_quota_that_cannot_be_read_is_unknown() -> None:
    unreadable = cluster(unreadable={"quotas": "too old"}, owned=[ENTRY])
    for quotas in ((quota(),), ()):
        found = change(unreadable, *quotas)
        assert (found.action, found.reason) == (Action.UNKNOWN, "(unknown: too old)")


OTHERS = "limits that others set stay: consumer_byte_rate"


@pytest.mark.parametrize(
    ("seen", "action", "reason"),
    [
        (at(RATES, ENTRY), Action.DELETE, "leaves the topology"),
        (at(RATES, announced(ENTRY)), Action.DELETE, "leaves the topology"),
        (at(None, announced(ENTRY)), Action.FORGET, "never made: an apply was cut short"),
        (at(None, ENTRY), Action.FORGET, "already gone from the cluster"),
        (at({"consumer_byte_rate": 1}, ENTRY), Action.FORGET, "already gone from the cluster"),
        (
            at(RATES, replace(ENTRY, created=False)),
            Action.FORGET,
            "leaves the topology; it was there before and stays",
        ),
        (at(RATES, replace(ENTRY, origin="flow.gone")), Action.DELETE, "no longer mirrored by flow.gone"),
        (
            at(RATES, replace(ENTRY, spec={"shape": "of a later version"})),
            Action.FORGET,
            "already gone from the cluster",
        ),
    ],
)
def test_a_quota_that_leaves_the_topology(seen: ObservedCluster, action: Action, reason: str) -> None:
    found = change(seen)
    assert (found.action, found.reason) == (action, reason)
    if action is Action.DELETE:
        assert moved(found) == {
            "producer_byte_rate": "10MB/s -> no limit",
            "request_percentage": "12.5 -> no limit",
        }


def test_what_others_set_on_the_same_user_stays() -> None:
    found = change(at({**RATES, "consumer_byte_rate": 1}, ENTRY))
    assert OTHERS in found.notes
    assert "consumer_byte_rate" not in moved(found)


def test_while_the_source_is_silent_a_mirrored_quota_is_unknown() -> None:
    found = change(at(RATES, replace(ENTRY, origin="flow.dc1-to-dc2")), known=False)
    assert found.action is Action.UNKNOWN


@pytest.mark.parametrize(
    ("seen", "action", "fields"),
    [
        (at(RATES, ENTRY), Action.NO_OP, {}),
        (at({**RATES, "consumer_byte_rate": 1}, ENTRY), Action.NO_OP, {}),
        (at(None, announced(ENTRY)), Action.NO_OP, {}),
        (at(None, ENTRY), Action.DELETE, {}),
        (
            at({"producer_byte_rate": 1_000}, ENTRY),
            Action.UPDATE,
            {"producer_byte_rate": "10MB/s -> 1KB/s", "request_percentage": "12.5 -> no limit"},
        ),
    ],
)
def test_drift(seen: ObservedCluster, action: Action, fields: dict[str, str]) -> None:
    (found,) = drift(desired(), observed(seen))
    assert (found.action, moved(found)) == (action, fields)


def test_what_is_recorded_is_read_again() -> None:
    assert recorded_quota(quota_spec(APP, RATES)) == (APP, RATES)
    assert recorded_quota({"user": "app", "producer_byte_rate": "much"}) is None
    assert recorded_quota({"producer_byte_rate": "1"}) is None
