"""ACLs and quotas: there or not there; whose they are decides what happens when they leave the topology."""

from planner.diff.record import acl_entry, announced, quota_entry
from planner.model.change import Action, Change
from planner.model.desired import Declared, DesiredAcl, DesiredQuota, MirroredBy
from planner.model.observed import REPLACED
from planner.model.topology import AclRule, QuotaEntity
from planner.render.plan.words import value_text
from tests.fakes.replacing import replace
from tests.fakes.states import SHOP, acl, cluster, desired, flow, selecting
from tests.fakes.tables import cases
from tests.planner.diff.said import brief, drifted, planned

READ = acl("READ")
ENTRY = acl_entry(DesiredAcl(READ, Declared()), SHOP, created=True)
CUT_SHORT = "made by an apply that was cut short; only what is remembered of it changes"
THEIRS = replace(ENTRY, topology="billing")
SILENT = {"acls": "not authorized to describe ACLs at dc1"}
LATER = {"shape": "of a later version"}
STAYS = "forget: leaves the topology; it was there before and stays"
GONE = "forget: already gone from the cluster"


@cases(
    "origin have says",
    {
        "new": (Declared(), cluster(acls=[]), "create: declared"),
        "mirrored": (MirroredBy("f", "dc2", "orders"), cluster(acls=[]), "create: mirrored by flow.f"),
        "protecting": ("protect: acl of flow.f", cluster(acls=[]), "create: protect: acl of flow.f"),
        "adopted": (Declared(), cluster(acls=[READ]), "no-op (adopted): exists, will be managed"),
        "there": (Declared(), cluster(acls=[READ], owned=[ENTRY]), "no-op: declared"),
        "deleted": (
            Declared(),
            cluster(acls=[], owned=[ENTRY]),
            "create: declared; it was deleted outside the topology",
        ),
        "announced": (Declared(), cluster(acls=[], owned=[announced(ENTRY)]), "create: declared"),
        "cut short": (Declared(), cluster(acls=[READ], owned=[announced(ENTRY)]), f"update: {CUT_SHORT}"),
        "another's": (Declared(), cluster(acls=[READ], owned=[THEIRS]), "no-op: owned by topology 'billing'"),
        "no authorizer": (Declared(), cluster(), "no-op: dc1 has no authorizer"),
        "unreadable": (Declared(), cluster(unreadable=SILENT), f"unknown: (unknown: {SILENT['acls']})"),
    },
)
def test_a_desired_acl(origin, have, says) -> None:
    (change,) = planned(desired(acls=(DesiredAcl(READ, origin),)), have)
    assert brief(change).split("; spec:")[0] == says.replace("no-op", Action.NO_OP.value)


def test_rules_that_differ_have_addresses_that_differ() -> None:
    group = replace(READ, resource_type="GROUP")
    pairs = [
        (replace(group, resource="app-*"), replace(group, resource="app-", pattern="PREFIXED")),
        (replace(group, resource="app-*"), replace(group, resource="app-%2A")),
        (replace(group, resource="*", pattern="PREFIXED"), replace(group, resource="*")),
        (replace(READ, principal="User:a@h"), replace(READ, principal="User:a", host="h")),
    ]
    assert [one.name == other.name for one, other in pairs] == [False] * len(pairs)
    one, other = pairs[0]
    changes = planned(
        desired(acls=(DesiredAcl(one, Declared()), DesiredAcl(other, Declared()))), cluster(acls=[])
    )
    assert len({change.address for change in changes}) == 2


@cases(
    "acls entry says drift",
    {
        "there": ([READ], ENTRY, ["delete: leaves the topology"], ["no-op: as applied"]),
        "announced": ([READ], announced(ENTRY), ["delete: leaves the topology"], None),
        "never made": (
            [],
            announced(ENTRY),
            ["forget: never made: an apply was cut short"],
            ["no-op: as applied"],
        ),
        "mirrored": (
            [READ],
            replace(ENTRY, origin="flow.gone"),
            ["delete: no longer mirrored by flow.gone"],
            None,
        ),
        "not made here": ([READ], replace(ENTRY, created=False), [STAYS], None),
        "gone": ([], ENTRY, [GONE], ["delete: deleted outside the topology"]),
        "unknown shape": ([READ], replace(ENTRY, spec=LATER), [GONE], None),
        "no authorizer": (None, ENTRY, [], []),
    },
)
def test_an_owned_acl_that_left_the_topology_or_drifted(acls, entry, says, drift) -> None:
    have = cluster(acls=acls, owned=[entry])
    assert [brief(one) for one in planned(desired(), have)] == says
    found = [brief(one).replace(Action.NO_OP.value, "no-op") for one in drifted(desired(), have)]
    assert drift is None or found == drift


def test_a_rule_that_protection_replaced_has_drifted_once_it_is_there_again() -> None:
    rule = acl("WRITE", principal="User:*")
    entry = acl_entry(DesiredAcl(rule, "protect: acl of flow.f"), SHOP, created=True)
    entry = replace(entry, spec={**entry.spec, REPLACED: "true"})
    (gone,), (again,) = (drifted(desired(), cluster(acls=acls, owned=[entry])) for acls in ([], [rule]))
    assert gone.action is Action.NO_OP
    assert brief(again) == "create: made again outside the topology"


def test_an_acl_that_cannot_be_read_or_whose_source_is_silent_is_unknown() -> None:
    hidden = cluster(owned=[ENTRY], unreadable={"acls": "why"})
    for changes in (planned(desired(), hidden), drifted(desired(), hidden)):
        assert [brief(one) for one in changes] == ["unknown: (unknown: why)"]
    have = cluster(acls=[READ], owned=[replace(ENTRY, origin="flow.dc1-to-dc2")])
    changes = planned(desired(flows=[selecting(flow(), known=False)]), have)
    assert [brief(one) for one in changes] == ["unknown: (unknown: dc1 unreachable)"] * 2  # and the flow


def test_taking_back_a_denial_says_what_follows_and_a_rule_is_read_as_it_was_written() -> None:
    rule = acl("READ", permission="DENY")
    entry = acl_entry(DesiredAcl(rule, Declared()), SHOP, created=True)
    (change,) = planned(desired(), cluster(acls=[rule], owned=[entry]))
    assert change.notes == ("what it denied is allowed again, if another rule allows it",)
    assert AclRule.recorded("dc1", READ.spec) == READ


APP = QuotaEntity("app")
MIRRORED = MirroredBy("dc1-to-dc2", "dc2")
RATES = {"producer_byte_rate": 10_000_000, "request_percentage": 12.5}
MORE = {**RATES, "consumer_byte_rate": 1}


def quota(values=RATES, origin=None) -> DesiredQuota:
    return DesiredQuota("dc1", APP, values, origin or Declared())


LIMITS = quota_entry(quota(), SHOP, created=True)
OF_FLOW = quota_entry(quota(origin=MIRRORED), SHOP, created=True)


OF_BILLING = replace(LIMITS, topology="billing")
HALF, ONE_LIMIT = {**RATES, "request_percentage": 50}, {"producer_byte_rate": 10_000_000}


def at(values=None, entry=None):
    return cluster(quotas={APP.name: values} if values else {}, owned=[entry] if entry else [])


def change(seen, *quotas: DesiredQuota, known: bool = True) -> Change:
    want = desired(quotas=quotas, flows=(selecting(flow(), known=known),))
    (found,) = (one for one in planned(want, seen, cluster(name="dc2")) if one.address.kind.value == "quota")
    return found


def moved(one: Change) -> str:
    return ", ".join(
        f"{field.key} {value_text(field, field.old)} -> {value_text(field, field.new)}"
        for field in one.fields
    )


def summary(one: Change) -> str:
    adopted = " (adopted)" if one.adopted else ""
    return f"{one.action.value.replace(Action.NO_OP.value, 'no-op')}{adopted}: {one.reason}"


OUTSIDE = "update: changed outside the topology"
BOTH_NEW = "producer_byte_rate no limit -> 10MB/s, request_percentage no limit -> 12.5"
BOTH_GONE = "producer_byte_rate 10MB/s -> no limit, request_percentage 12.5 -> no limit"


REMEMBERED = "update: only what is remembered of it changes"
DELETED = "create: declared; it was deleted outside the topology"
FIVE = {**RATES, "producer_byte_rate": 5}
MEBIBYTE = {**RATES, "producer_byte_rate": 1_048_576}


@cases(
    "have want says",
    {
        "new": (at(), RATES, f"create: declared; {BOTH_NEW}"),
        "deleted": (at(None, LIMITS), RATES, f"{DELETED}; {BOTH_NEW}"),
        "adopted as it is": (at(RATES), RATES, "no-op (adopted): exists, will be managed"),
        "as declared": (at(RATES, LIMITS), RATES, "no-op: declared"),
        "more than declared": (at(MORE, LIMITS), RATES, "no-op: declared"),
        "adopted": (
            at(MEBIBYTE),
            RATES,
            "update (adopted): exists, will be managed; producer_byte_rate 1MiB/s -> 10MB/s",
        ),
        "changed": (at(HALF, LIMITS), RATES, f"{OUTSIDE}; request_percentage 50 -> 12.5"),
        "removed": (at(ONE_LIMIT, LIMITS), RATES, f"{OUTSIDE}; request_percentage no limit -> 12.5"),
        "cut short": (
            at(RATES, announced(LIMITS)),
            RATES,
            f"update: {CUT_SHORT}; recorded.spec announced -> as it is",
        ),
        "another's": (at(RATES, OF_BILLING), RATES, "no-op: owned by topology 'billing'"),
        "no longer declared": (
            at(MORE, LIMITS),
            {"producer_byte_rate": 5_000_000},
            (
                "update: the topology changed; "
                "producer_byte_rate 10MB/s -> 5MB/s, request_percentage 12.5 -> no limit"
            ),
        ),
        "set by hand to what is declared now": (
            at(FIVE, LIMITS),
            FIVE,
            f"{REMEMBERED}; recorded.producer_byte_rate 10MB/s -> 5 B/s",
        ),
        "a flow's, which is declared now": (
            at(RATES, OF_FLOW),
            RATES,
            f"{REMEMBERED}; recorded.origin flow.dc1-to-dc2 -> declared",
        ),
    },
)
def test_a_desired_quota(have, want, says) -> None:
    found = change(have, quota(want))
    recorded = "recorded." if found.fields and found.fields[0].path[0] == "recorded" else ""
    moves = f"; {recorded}{moved(found)}" if found.fields else ""
    assert summary(found) + moves == says


@cases(
    "have says",
    {
        "there": (at(RATES, LIMITS), "delete: leaves the topology"),
        "gone": (at(None, LIMITS), GONE),
        "others' limits": (at({"consumer_byte_rate": 1}, LIMITS), GONE),
        "unknown shape": (at(RATES, replace(LIMITS, spec=LATER)), GONE),
        "beside others' limits": (at(MORE, LIMITS), "delete: leaves the topology"),
    },
)
def test_a_quota_that_leaves_the_topology(have, says) -> None:
    found = change(have)
    assert summary(found) == says
    assert found.action is not Action.DELETE or moved(found) == BOTH_GONE
    others = "limits that others set stay: consumer_byte_rate"
    assert (others in found.notes) is (have.quotas.get(APP.name) == MORE)


@cases(
    "have says moves",
    {
        "as applied": (at(RATES, LIMITS), "no-op", ""),
        "others' limits": (at(MORE, LIMITS), "no-op", ""),
        "never made": (at(None, announced(LIMITS)), "no-op", ""),
        "deleted": (at(None, LIMITS), "delete", ""),
        "changed": (
            at({"producer_byte_rate": 1_000}, LIMITS),
            "update",
            "producer_byte_rate 10MB/s -> 1KB/s, request_percentage 12.5 -> no limit",
        ),
    },
)
def test_drift_of_a_quota(have, says, moves) -> None:
    (found,) = drifted(desired(), have)
    assert (summary(found).split(":")[0], moved(found)) == (says, moves)


def test_a_quota_that_cannot_be_read_or_whose_source_is_silent_is_unknown() -> None:
    unreadable = cluster(unreadable={"quotas": "too old"}, owned=[LIMITS])
    for quotas in ((quota(),), ()):
        assert summary(change(unreadable, *quotas)) == "unknown: (unknown: too old)"
    assert change(at(RATES, OF_FLOW), known=False).action is Action.UNKNOWN


def test_a_limit_that_is_recorded_as_no_number_is_none() -> None:
    assert replace(LIMITS, spec={"user": "app", "producer_byte_rate": "much"}).limits == {}
