"""Plans that show everything a renderer must show."""

from collections.abc import Mapping
from functools import cache

from msgspec import structs

from planner.diff.differ import diff, drift
from planner.diff.record import acl_entry, quota_entry
from planner.model.desired import Declared, DesiredAcl, DesiredQuota, MirroredBy
from planner.model.diagnostic import SourceLocation, error, warning
from planner.model.observed import ConfigValue, Observed, Unreachable
from planner.model.plan import Mode, Plan
from planner.model.topology import Job, OnRemove, QuotaEntity, Selection
from planner.plan.make import with_diagnostics
from tests.fakes.replacing import replace
from tests.fakes.states import (
    SHOP,
    acl,
    cluster,
    desired,
    flow,
    live,
    made_plan,
    mirror,
    observed,
    owned,
    selecting,
    topology,
    wanted,
    with_inputs,
)
from tests.planner.plan.jobs import applied, dead, plan

DAY, WEEK = "86400000", "604800000"
NOW = "2026-01-01T00:00:00Z"
FLOW = flow()
BACK = flow("dc2-to-dc1", source_cluster="dc2", destination_cluster="dc1", state="paused", topics=Selection())


def planned(want, *clusters, mode=Mode.APPLY, shop=None, targets=()) -> Plan:
    shop = shop or topology(FLOW, BACK)
    seen = observed(*clusters)
    return made_plan(want, seen, diff(want, seen), shop, mode, NOW, targets)


LIMITS = {"producer_byte_rate": 10_000_000, "request_percentage": 12.5}
CONNECTIONS = {"connection_creation_rate": 20}
OLD_LIMITS = {"producer_byte_rate": 1_048_576, "consumer_byte_rate": 1_000}
QUOTAS: dict[QuotaEntity, Mapping[str, float]] = {
    QuotaEntity("<default>", "loader"): OLD_LIMITS,
    QuotaEntity("old"): LIMITS,
}


def everything() -> Plan:
    """Every action and every kind of field."""
    sensitive = replace(live("secret"), config={"vendor.password": ConfigValue("x", sensitive=True)})
    before = [
        wanted("grown", 6, retention_ms=WEEK, segment_ms=DAY, flush_ms="1"),
        wanted("by-hand", 6, retention_ms=WEEK),
        wanted("same", 6),
        wanted("guarded", 6),
        wanted("noted", 6),
    ]
    doomed = replace(owned(wanted("old", 6, retention_ms=DAY)), on_remove=OnRemove.DELETE)
    dc1 = cluster(
        live("grown", 6, retention_ms=DAY, flush_ms="1"),
        live("by-hand", 6, retention_ms=DAY),
        live("same", 6),
        live("guarded", 6),
        live("noted", 6, retention_ms=WEEK),
        live("old", 6),
        live("left", 6),
        live("found", 6, retention_ms=WEEK),
        live("found-other", 6, inherited={"retention.ms": DAY}),
        sensitive,
        owned=[
            *map(owned, before),
            doomed,
            owned(wanted("left")),
            owned(wanted("secret")),
            *(
                quota_entry(DesiredQuota("dc1", entity, values, Declared()), SHOP, created=True)
                for entity, values in QUOTAS.items()
            ),
        ],
        acls=[acl("WRITE")],
        quotas={entity.name: limits for entity, limits in QUOTAS.items()},
        sizes={"old": 1_200_000_000},
        group_topics={"billing": frozenset({"old"})},
        hidden=frozenset({"vault"}),
    )
    want = desired(
        wanted("new", 12, retention_ms=WEEK, max_message_bytes="5242880", confluent_key="a|b`c"),
        wanted("grown", 12, retention_ms=WEEK, segment_ms=DAY),
        wanted("by-hand", 6, retention_ms=WEEK),
        wanted("same", 6),
        replace(wanted("guarded", 6, segment_ms=DAY), protect=True),
        wanted("noted", 6, retention_ms=WEEK),
        wanted("found", 6, retention_ms=WEEK),
        wanted("found-other", 6, retention_ms=WEEK),
        wanted("secret", vendor_password="canary"),
        wanted("vault"),
        mirror("orders", 6, retention_ms=WEEK),
        acls=(DesiredAcl(acl("READ"), Declared()), DesiredAcl(acl("WRITE"), Declared())),
        quotas=(
            DesiredQuota("dc1", QuotaEntity("new"), LIMITS, Declared()),
            DesiredQuota("dc1", QuotaEntity("<default>", "loader"), LIMITS, Declared()),
            DesiredQuota("dc2", QuotaEntity(ip="10.0.0.7"), CONNECTIONS, MirroredBy(FLOW.name, "dc1")),
        ),
        flows=(selecting(FLOW, "orders"), selecting(BACK)),
    )
    return planned(want, dc1, cluster(name="dc2"))


def jobs() -> Plan:
    """Flows that come, go and change; a job that is told, one that is started over, one that died."""
    quick, old = flow("quick", topics=Selection(("a",))), flow("old", topics=Selection(("o",)))
    slow = flow("slow", job="slow", topics=Selection(("s",)))
    back = flow("back", source_cluster="dc2", destination_cluster="dc1", job="dc1", topics=Selection(("b",)))
    before = applied(topology(quick, slow, old, back))
    shop = topology(
        structs.replace(quick, rate_limit=50_000_000, state="paused"),
        structs.replace(slow, rpo_ms=5_000),
        flow("new", topics=Selection(("orders",)), provenance="headers"),
        back,
    )
    shop = replace(shop, jobs={"slow": Job("slow", memory="2g", conf={"spark.key": "value"})})
    return with_inputs(plan(shop, lagging(dead(before, "dc1"), {"old": 1_200, "slow": 7})), created_at=NOW)


def lagging(seen: Observed, lag: dict[str, int]) -> Observed:
    there = seen.reachable("dc2")
    assert there is not None
    told = tuple(replace(job, lag=lag) for job in there.jobs)
    return Observed({**seen.clusters, "dc2": replace(there, jobs=told)})


def nothing() -> Plan:
    want = wanted("orders")
    return planned(desired(want), cluster(live("orders"), owned=[owned(want)]), shop=topology())


def adopting() -> Plan:
    """The topic is there as declared, and no topology owns it yet."""
    return planned(desired(wanted("orders")), cluster(live("orders")), shop=topology())


def silent() -> Plan:
    """dc1 does not answer; twelve of its topics are asked for, and one of dc2."""
    want = desired(
        *(wanted(f"t{number:02}") for number in range(12)),
        replace(wanted("there"), cluster="dc2"),
        flows=(selecting(FLOW, known=False),),
    )
    return planned(
        want, Unreachable("dc1", "connection refused", "is it up?"), cluster(name="dc2"), shop=topology(FLOW)
    )


def errored() -> Plan:
    want = desired(replace(wanted("orders", 3), source=SourceLocation("shop.yaml", 7, 5)))
    plan = planned(want, cluster(live("orders", 6)), shop=topology())
    said = [
        error("the broker refuses it: policy", "ask its owner", address="topic.dc1.orders", code="broker"),
        warning("clocks differ by 5 s", source=SourceLocation("shop.yaml", 1, 1)),
    ]
    return with_diagnostics(plan, said)


def drifted() -> Plan:
    rule = acl("READ")
    applied = [
        owned(wanted("orders", 6, 3, retention_ms=WEEK)),
        owned(wanted("gone", 6)),
        owned(wanted("again", 6)),
        owned(wanted("same", 6)),
        acl_entry(DesiredAcl(rule, Declared()), SHOP, created=True),
        quota_entry(DesiredQuota("dc1", QuotaEntity("loader"), LIMITS, Declared()), SHOP, created=True),
    ]
    limits = {"user/loader": {**LIMITS, "producer_byte_rate": 1_000}}
    at = cluster(
        live("orders", 6, retention_ms=DAY),
        live("again", topic_id="x"),
        live("same"),
        owned=applied,
        acls=[],
        quotas=limits,
    )
    shop, seen = topology(), observed(at)
    plan = made_plan(desired(), seen, (), shop, Mode.DRIFT, NOW)
    return replace(plan, changes=drift(desired(), seen))


@cache
def many(count: int = 3000) -> Plan:
    """The same change for very many topics, beside a few of their own."""
    before = [wanted(f"events.{number:05}", 6, retention_ms=DAY) for number in range(count)]
    want = desired(
        *(wanted(f"events.{number:05}", 6, retention_ms="259200000") for number in range(count)),
        *(wanted(f"own.{number:05}", 6, retention_ms=str(number)) for number in range(count)),
    )
    doomed = replace(owned(wanted("old", 6)), on_remove=OnRemove.DELETE)
    at = cluster(
        *(live(one.name, 6, retention_ms=DAY) for one in before),
        live("old"),
        owned=[*map(owned, before), doomed],
    )
    return planned(want, at, shop=topology())


SCENES = {
    "everything": everything,
    "jobs": jobs,
    "nothing": nothing,
    "silent": silent,
    "errored": errored,
    "drifted": drifted,
}
