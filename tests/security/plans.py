"""A plan with many kinds of steps, for tests that forge its file."""

from functools import cache

from msgspec import structs

from planner.model.observed import Observed
from planner.model.plan import Plan
from planner.model.topology import Acl, Cluster, Job, OnRemove, Quota, Selection, Topic, Topology
from planner.plan.make import plan_from
from runtime.contract.client.stores import Setting
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import acl, cluster, flow, inputs, live, observed, owned, topology, wanted

LIMITS = {"user/limited": {"producer_byte_rate": 1_000_000, "consumer_byte_rate": 1}}
CLIENT: dict[str, Setting] = {
    "security.protocol": "SASL_SSL",
    "sasl.password": {"env": "DC1_PASSWORD"},
}
X = flow("x", topics=Selection((".*",), ("only2",)))
Y = flow("y", job="other", topics=Selection(("only2",)))


def shop(*, jobs: dict[str, Job] | None = None) -> Topology:
    back = structs.replace(Y, source_cluster="dc2", destination_cluster="dc1")
    made = topology(
        X,
        back,
        clusters=[Cluster("dc1", bootstrap="dc1:9092", client=CLIENT), Cluster("dc2", bootstrap="dc2:9092")],
    )
    topics = (
        Topic("new", "dc1", 12, 3, {"retention.ms": "1"}, protect=True),
        Topic("grown", "dc1", 12, 3, {"retention.ms": "7"}),
        Topic("changed", "dc1", 6, 3, {"retention.ms": "2"}),
        Topic("adopted", "dc1", 6, 3),
    )
    rules = (Acl(acl()), Acl(acl("WRITE")))
    quotas = (
        Quota("dc1", "limited", producer_byte_rate=10_000_000),
        Quota("dc1", "new", request_percentage=50),
    )
    return replace(
        made,
        topics=topics,
        acls=rules,
        quotas=quotas,
        jobs=jobs or {"dc2": Job("dc2"), "other": Job("other")},
    )


@cache
def state() -> Observed:
    """A job runs with other settings, one runs that nothing names, and topics wait to change or to go."""
    gone = acl("DESCRIBE")
    before = replace(
        topology(X, flow("z", job="gone", topics=Selection(("changed",)))),
        jobs={"dc2": Job("dc2", memory="2g"), "gone": Job("gone")},
        acls=(Acl(gone),),
        quotas=(Quota("dc1", "gone", request_percentage=5),),
    )
    topics = (live("grown", 6, 1), live("changed", retention_ms="1"), live("adopted"), live("doomed"))
    seen = observed(
        cluster(*topics, acls=[acl("WRITE")], quotas=LIMITS),
        cluster(live("only2"), live("changed"), name="dc2"),
    )
    there = simulate(plan_from(inputs(before, seen)).steps, seen)
    dc1 = there.reachable("dc1")
    assert dc1 is not None
    kept = [owned(wanted(name, 6, 3)) for name in ("grown", "changed")]
    doomed = owned(wanted("doomed"), on_remove=OnRemove.DELETE)
    return Observed({**there.clusters, "dc1": replace(dc1, owned=(*dc1.owned, *kept, doomed))})


@cache
def honest() -> Plan:
    return plan_from(inputs(shop(), state(), created_at="2026-01-01T00:00:00Z"))


def changed(plan: Plan, **changes: object) -> Plan:
    """The plan of the same inputs, but for the topology's values that are changed."""
    return plan_from(replace(plan.inputs, topology=replace(plan.topology, **changes)))
