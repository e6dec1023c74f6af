"""A forged entry of `__repl.registry` has a plan restore no right and no setting that repl did not change."""

from __future__ import annotations

import pytest

from planner.model.address import Address, Kind
from planner.model.change import Action
from planner.model.observed import BEFORE, REPLACED, RegistryEntry
from planner.model.plan import Plan
from planner.model.topology import AclRule
from planner.plan.make import plan_from
from tests.fakes.replacing import replace
from tests.fakes.states import SHOP, cluster, inputs, live, observed, owned, topology, wanted

EVERYONE = AclRule("dc1", "TOPIC", "orders", "LITERAL", "User:*", "*", "WRITE", "ALLOW")


def planned(entry: RegistryEntry) -> Plan:
    seen = observed(cluster(live("orders", retention_ms="9"), owned=[entry], acls=[]), cluster(name="dc2"))
    return plan_from(inputs(topology(), seen))


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        (EVERYONE, Action.CREATE),
        (replace(EVERYONE, principal="User:attacker", operation="ALL"), Action.FORGET),
        (
            replace(EVERYONE, resource_type="CLUSTER", resource="kafka-cluster", operation="ALTER"),
            Action.FORGET,
        ),
        (replace(EVERYONE, operation="READ"), Action.FORGET),
    ],
)
def test_only_what_protection_takes_away_is_restored(rule: AclRule, action: Action) -> None:
    spec = {**rule.spec, REPLACED: "true"}
    entry = RegistryEntry(
        Address(Kind.ACL, "dc1", rule.name), SHOP, spec, origin="protection of flow.dc1-to-dc2", created=True
    )
    (change,) = [change for change in planned(entry).changes if change.address.kind is Kind.ACL]
    assert change.action is action


def test_only_what_a_failback_lifts_is_restored() -> None:
    entry = owned(wanted("orders"))
    forged = {
        BEFORE + "retention.ms": "1",
        BEFORE + "cleanup.policy": "delete",
        BEFORE + "max.message.bytes": "7",
    }
    assert replace(entry, spec={**entry.spec, **forged}).before == {"max.message.bytes": "7"}
