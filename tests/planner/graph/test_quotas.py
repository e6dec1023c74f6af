"""Quotas: declared, and mirrored with `quotas: {sync: true}`; whose they are decides what stays."""

from collections.abc import Mapping
from typing import Any

import pytest

from planner.diff.record import quota_entry
from planner.graph.expansion import expand
from planner.model.desired import Desired, DesiredQuota, MirroredBy
from planner.model.observed import (
    FEATURE_QUOTAS,
    BrokerFeature,
    ObservedCluster,
    RegistryEntry,
)
from planner.model.topology import Quota, QuotaEntity, Topology
from runtime.contract.spec.flow import FlowState
from tests.fakes.replacing import replace
from tests.fakes.tables import cases
from tests.planner.graph.build import cluster, codes, flow, observed, said, topology

Limits = Mapping[str, float]
APP, LOADER = QuotaEntity("app"), QuotaEntity("<default>", "loader")
ONE, TWO = {"producer_byte_rate": 1}, {"producer_byte_rate": 2}


def mirrors(ends: str, **more: Any) -> Topology:
    """One flow for each pair of clusters, as in `dc1>dc2 dc2>dc1`."""
    flows = (flow(one, quotas_sync=True, heartbeats_every_ms=None, **more) for one in ends.split())
    return topology(*flows)


def at(
    name: str, quotas: Mapping[QuotaEntity, Limits], *owned: RegistryEntry, **more: Any
) -> ObservedCluster:
    return cluster(
        name, "orders", quotas={entity.name: limits for entity, limits in quotas.items()}, owned=owned, **more
    )


def made(by: str, where: str, entity: QuotaEntity = APP, values: Limits = ONE) -> RegistryEntry:
    return quota_entry(DesiredQuota(where, entity, values, MirroredBy(by, "dc1")), "t", created=True)


def wanted(desired: Desired) -> dict[str, tuple[Limits, str]]:
    return {
        f"{one.cluster}/{one.entity.name}": (
            dict(one.values),
            one.origin.flow if isinstance(one.origin, MirroredBy) else "declared",
        )
        for one in desired.quotas
    }


VENDOR = {"vendor_rate": 1}
BESIDE = {"producer_byte_rate": 1, "request_percentage": 50}
SEVEN = {"producer_byte_rate": 7}
OF_FLOW = made("dc1-dc2", "dc2")


@cases(
    "ends declared clusters found",
    {
        "those of the source as they are, but what the language does not have": (
            "dc1>dc2",
            [],
            [at("dc1", {APP: ONE, LOADER: {**TWO, **VENDOR}, QuotaEntity(ip="10.0.0.7"): VENDOR})],
            {"dc2/user/app": (ONE, "dc1-dc2"), "dc2/user/<default>/client-id/loader": (TWO, "dc1-dc2")},
        ),
        # The limit that nobody of the topology set stays: the plan after this one must not find it anew.
        "one that is declared now is mirrored with what stays beside it": (
            "dc1>dc2 dc2>dc1",
            [Quota("dc2", user="app", producer_byte_rate=1)],
            [at("dc1", {}), at("dc2", {APP: BESIDE}, OF_FLOW)],
            {"dc1/user/app": (BESIDE, "dc2-dc1"), "dc2/user/app": (ONE, "declared")},
        ),
        "a declared one wins and is mirrored onward": (
            "dc1>dc2",
            [Quota("dc1", "app", producer_byte_rate=7), Quota("dc2", "b", request_percentage=5)],
            [at("dc1", {APP: ONE, QuotaEntity("b"): ONE})],
            {
                "dc1/user/app": (SEVEN, "declared"),
                "dc2/user/app": (SEVEN, "dc1-dc2"),
                "dc2/user/b": ({"request_percentage": 5}, "declared"),
            },
        ),
        "a declared one needs no flow": (
            "",
            [Quota("dc1", "app", producer_byte_rate=7)],
            [],
            {"dc1/user/app": (SEVEN, "declared")},
        ),
        "along a chain, and never back": (
            "dc1>dc2 dc2>dc3 dc2>dc1",
            [],
            [at("dc1", {APP: ONE})],
            {"dc2/user/app": (ONE, "dc1-dc2"), "dc3/user/app": (ONE, "dc2-dc3")},
        ),
        # Otherwise two clusters would give a removed quota back to each other for ever.
        "what a flow made goes with its source": (
            "dc1>dc2 dc2>dc1",
            [],
            [at("dc1", {}), at("dc2", {APP: ONE}, OF_FLOW)],
            {},
        ),
        "and is mirrored nowhere": (
            "dc1>dc2 dc2>dc1",
            [],
            [at("dc1", {LOADER: ONE}), at("dc2", {APP: ONE}, OF_FLOW)],
            {"dc2/user/<default>/client-id/loader": (ONE, "dc1-dc2")},
        ),
    },
)
def test_which_quotas_are_where(ends, declared, clusters, found) -> None:
    there = {name: at(name, {}) for name in ("dc1", "dc2", "dc3")} | {one.name: one for one in clusters}
    shop = replace(mirrors(ends), quotas=tuple(declared))
    assert wanted(expand(shop, observed(*there.values()))) == found


def test_a_quota_of_the_destination_is_never_touched() -> None:
    desired = expand(
        mirrors("dc1>dc2"), observed(at("dc1", {APP: ONE, LOADER: ONE}), at("dc2", {APP: TWO, LOADER: ONE}))
    )
    assert wanted(desired) == {}
    assert said(desired, "quota-not-mirrored") == [
        (
            "not mirrored: the quota user/app of dc1, because dc2 has other limits for the same"
            " — to mirror it, delete the quota at the destination, or take it out of quotas"
        )
    ]


@pytest.mark.parametrize(
    ("state", "kept"),
    [("active", False), ("promoted", True), ("failed_over", True)],
)
def test_the_quotas_of_a_flow_that_ended_stay_as_they_are(state: FlowState, kept: bool) -> None:
    there = at("dc2", {APP: TWO}, OF_FLOW)
    desired = expand(mirrors("dc1>dc2", state=state), observed(at("dc1", {}), there))
    assert wanted(desired) == ({"dc2/user/app": (TWO, "dc1-dc2")} if kept else {})


def test_while_the_quotas_of_the_source_cannot_be_read_nothing_goes() -> None:
    unread = at("dc1", {}, unreadable={"quotas": "no right"})
    desired = expand(mirrors("dc1>dc2"), observed(unread, at("dc2", {APP: TWO}, OF_FLOW)))
    assert wanted(desired) == {"dc2/user/app": (TWO, "dc1-dc2")}
    assert desired.unknown == {"flow.dc1-dc2": "the client quotas of dc1 could not be read: no right"}


OLD = BrokerFeature(FEATURE_QUOTAS, "2.6", broker="1 (a:9092)", why="DescribeClientQuotas is not offered")


def test_a_version_without_quotas_is_named_with_what_follows() -> None:
    old = at("dc1", {}, lacking=(OLD,), unreadable={"quotas": "too old"})
    shop = replace(mirrors("dc1>dc2"), quotas=(Quota("dc1", "app", producer_byte_rate=7),))
    desired = expand(shop, observed(old, at("dc2", {})))
    assert codes(desired) == ["version-required", "version-required"]
    assert wanted(desired) == {}
    declared, flow_s = sorted(said(desired, "version-required"), key=len, reverse=True)
    assert declared.startswith(
        "broker 1 (a:9092) of dc1 lacks client quotas (Kafka 2.6): the quotas of user app can't be set"
    )
    assert "quotas to mirror can't be read there (DescribeClientQuotas is not offered)" in flow_s
    assert "set quotas: {sync: false}" in flow_s


def test_users_without_a_secret_at_the_destination_are_named() -> None:
    users = dict.fromkeys(("app", "repl"), ("SCRAM-SHA-512",))
    here, there = at("dc1", {}, scram_users=users), at("dc2", {}, scram_users={"repl": users["repl"]})
    desired = expand(mirrors("dc1>dc2"), observed(here, there))
    assert said(desired, "scram-users-missing") == [
        (
            "no SCRAM secret at dc2: the SCRAM user app of dc1"
            " — each needs a new secret there: Kafka never returns secrets"
        )
    ]
    hidden = replace(there, unreadable={"scram": "no right"})
    assert codes(expand(mirrors("dc1>dc2"), observed(here, hidden))) == []
