"""What a plan file says that the clusters hold is read again: another state is stale, or refused."""

from collections.abc import Callable

import pytest
from msgspec import structs

from planner.diff.record import LAUNCH
from planner.model.diagnostic import ExitCode
from planner.model.observed import ConfigValue, Observed, ObservedCluster, RegistryEntry
from planner.model.plan import Plan
from planner.model.topology import Job, OnRemove, Selection
from planner.plan.guards import recheck
from planner.plan.make import plan_from
from planner.plan.staleness import stale
from planner.render.plan.text import text
from tests.fakes.replacing import replace
from tests.fakes.states import acl, flow, inputs, live, owned, topology, wanted
from tests.planner.plan.jobs import applied
from tests.security.plans import honest, state

Edit = Callable[[ObservedCluster], ObservedCluster]


def edited(cluster: str, edit: Edit, plan: Plan) -> Plan:
    """The plan of a file in which a cluster holds something else than was read."""
    seen = plan.inputs.observed
    there = seen.reachable(cluster)
    assert there is not None
    return plan_from(replace(plan.inputs, observed=Observed({**seen.clusters, cluster: edit(there)})))


def topic(name: str, **changes: object) -> Edit:
    return lambda one: replace(
        one,
        topics={**one.topics, name: replace(one.topics[name], **changes)},
    )


def entries(address: str, edit: Callable[[RegistryEntry], RegistryEntry]) -> Edit:
    return lambda one: replace(
        one, owned=tuple(edit(two) if str(two.address) == address else two for two in one.owned)
    )


def removing(one: RegistryEntry) -> RegistryEntry:
    return replace(one, on_remove=OnRemove.DELETE)


PAYMENTS = owned(wanted("payments"), on_remove=OnRemove.DELETE)
FORGED: dict[str, tuple[str, Edit]] = {
    "another topic under the name": ("dc1", topic("doomed", id="id:other")),
    "fewer partitions": ("dc1", topic("grown", replicas=((1,),) * 3)),
    "other replicas": ("dc1", topic("grown", replicas=((2,),) * 6)),
    "another old value": ("dc1", topic("changed", config={"retention.ms": ConfigValue("9")})),
    "a topic that is there already": (
        "dc1",
        lambda one: replace(one, topics={**one.topics, "new": live("new", 12, 3)}),
    ),
    "a topic that is gone": (
        "dc1",
        lambda one: replace(one, topics={key: two for key, two in one.topics.items() if key != "changed"}),
    ),
    "a topic of another to delete": (
        "dc1",
        lambda one: replace(
            one, topics={**one.topics, "payments": live("payments")}, owned=(*one.owned, PAYMENTS)
        ),
    ),
    "a kept topic to delete": ("dc1", entries("topic.dc1.changed", removing)),
    "a topic that nobody owns": (
        "dc1",
        lambda one: replace(one, owned=tuple(two for two in one.owned if two.address.name != "changed")),
    ),
    "a rule that is not there": ("dc1", lambda one: replace(one, acls=())),
    "a rule that is there": ("dc1", lambda one: replace(one, acls=(*(one.acls or ()), acl()))),
    "other limits": (
        "dc1",
        lambda one: replace(one, quotas={**one.quotas, "user/limited": {"producer_byte_rate": 5}}),
    ),
    "another cluster": ("dc1", lambda one: replace(one, id="evil")),
    "another driver of a job": (
        "dc2",
        lambda one: replace(one, jobs=tuple(replace(two, driver="evil") for two in one.jobs)),
    ),
    "no job": ("dc2", lambda one: replace(one, jobs=())),
    "a job that was started by another launcher": (
        "dc2",
        lambda one: replace(
            entries(
                "job.gone", lambda two: replace(two, spec={**two.spec, LAUNCH: '{"launcher":"kubernetes"}'})
            )(one),
            jobs=tuple(two for two in one.jobs if two.name != "gone"),
        ),
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_another_state_than_the_clusters_hold(name: str) -> None:
    cluster, edit = FORGED[name]
    plan = edited(cluster, edit, honest())
    assert plan.steps

    found = (*recheck(plan, plan.steps, state()), *stale(plan, state()))

    assert {one.exit for one in found} & {ExitCode.STALE, ExitCode.REFUSED}


@pytest.mark.parametrize("running", [True, False])
def test_a_change_that_is_hidden_behind_what_is_there(running: bool) -> None:
    """The file says that the flow has its new values already, so that no field tells that they change."""
    x = flow("x", topics=Selection(("a",)))
    wider = structs.replace(x, rate_limit=7)
    seen, later = applied(topology(x)), applied(topology(wider))
    if not running:
        ended = replace(
            cluster_of(seen), jobs=tuple(replace(one, live=False) for one in cluster_of(seen).jobs)
        )
        seen = Observed({**seen.clusters, "dc2": ended})
    forged = replace(cluster_of(seen), owned=cluster_of(later).owned)
    if running:
        forged = replace(forged, jobs=cluster_of(later).jobs)
    shop = replace(topology(wider), jobs={"dc2": Job("dc2", memory="2g")})

    plan = plan_from(inputs(shop, Observed({**seen.clusters, "dc2": forged})))

    assert not any("rate_limit" in line for line in text(plan))
    assert plan.steps
    assert {one.exit for one in stale(plan, seen)} == {ExitCode.STALE}


def cluster_of(seen: Observed) -> ObservedCluster:
    there = seen.reachable("dc2")
    assert there is not None
    return there
