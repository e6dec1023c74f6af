"""A cluster that does not answer, or hides a topic, changes nothing at the others."""

from itertools import permutations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from msgspec import structs

from planner.graph.expansion import read_requests
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.topology import Flow, Topic, Topology
from runtime.contract.spec.flow import ConfigsSpec
from runtime.contract.spec.rename import Table
from tests.fakes.simulated import simulate
from tests.fakes.states import acl
from tests.fakes.tables import cases
from tests.fakes.worlds import states, topologies
from tests.planner.graph.build import cluster, flow, live, observed, topic, topology
from tests.planner.plan.jobs import at, changes, plan, there

CLUSTERS = ("dc1", "dc2", "dc3")
MESH = tuple(flow(f"{source}>{destination}") for source, destination in permutations(CLUSTERS, 2))
RING = (flow("dc1>dc2"), flow("dc2>dc3"), flow("dc3>dc1"))
TRIANGLE = (flow("dc1>dc2"), flow("dc1>dc3"), flow("dc2>dc3"))
CHAIN = (flow("dc1>dc2", "orders"), flow("dc2>dc3", "orders"))
# Over two ways, of which one leads over names that no topic has yet.
TWO_WAYS = (flow("dc1>dc2", "later"), flow("dc1>dc3", "la.*"), flow("dc3>dc2", ".*"))
PROTECTED = tuple(structs.replace(one, protect="acl") for one in RING)
BOTH = (topic("dc2/orders"), topic("dc3/orders"))


def applied(*parts: Flow | Topic) -> tuple[Topology, Observed]:
    """A topology with its clusters after an apply."""
    shop = topology(*parts)
    secured = {
        name: structs.replace(declared, principal="User:job") for name, declared in shop.clusters.items()
    }
    shop = topology(*parts, clusters=secured)
    rules = [acl("WRITE", cluster=name, principal="User:shop") for name in CLUSTERS]
    seen = observed(
        *(
            cluster(name, *topics, acls=[rule for rule in rules if rule.cluster == name])
            for name, topics in {
                "dc1": [live("orders", 3, cleanup_policy="compact", retention_ms="123")],
                "dc2": [live("orders", 3, retention_ms="5")],
                "dc3": [],
            }.items()
        )
    )
    seen = simulate(plan(shop, seen).steps, seen)
    assert plan(shop, seen).steps == ()
    return shop, seen


def without(seen: Observed, *names: str) -> Observed:
    return Observed({**seen.clusters, **{name: Unreachable(name, "timed out") for name in names}})


@cases(
    "parts",
    {
        "a mesh": (MESH,),
        "a mesh of declared topics": ((*MESH, *BOTH),),
        "a ring": (RING,),
        "a ring of protected topics": (PROTECTED,),
        "a triangle": (TRIANGLE,),
        "a triangle of declared topics": ((*TRIANGLE, *BOTH),),
        "two ways": (TWO_WAYS,),
        "a chain": (CHAIN,),
        "a chain of declared topics": ((*CHAIN, *BOTH),),
    },
)
@pytest.mark.parametrize("silent", [("dc1",), ("dc2",), ("dc3",), ("dc1", "dc2"), ("dc2", "dc3")])
def test_while_clusters_are_silent_a_plan_changes_nothing_at_the_others(parts, silent) -> None:
    shop, seen = applied(*parts)
    assert plan(shop, without(seen, *silent)).steps == ()


def test_a_topic_that_only_a_silent_cluster_would_fill_gives_no_settings() -> None:
    flows = (
        flow("dc3>dc2", ("orders",)),
        flow("a=dc2>dc1", ("orders",)),
        flow("b=dc2>dc1", ("other",), rename=Table({"other": "orders"})),
    )
    seen = observed(cluster("dc1", live("orders", 1, retention_ms="7")), cluster("dc2", live("other", 1)))
    made = plan(topology(*flows), without(seen, "dc3"))
    assert "retention.ms" not in {
        key for field in changes(made)["topic.dc1.orders"].fields for key in field.path
    }


def hiding(seen: Observed, name: str) -> Observed:
    topics = {topic: live for topic, live in there(seen, name).topics.items() if topic != "orders"}
    return at(seen, name, topics=topics, hidden=frozenset({"orders"}))


@pytest.mark.parametrize("parts", [CHAIN, (*CHAIN, *BOTH), TRIANGLE, (*TRIANGLE, *BOTH)])
def test_a_source_topic_that_is_hidden_leaves_its_mirrors_as_they_are(parts) -> None:
    shop, seen = applied(*parts)
    assert plan(shop, hiding(seen, "dc1")).steps == ()


def test_the_source_of_a_mirror_that_no_listing_shows_is_asked_for_by_name() -> None:
    """A listing leaves out topics without the right to describe them: these must not count as deleted."""
    shop, seen = applied(flow("dc1>dc2", "ord.*", on_source_delete="delete"))
    unlisted = at(seen, "dc1", topics={})
    assert "orders" in read_requests(shop, unlisted)["dc1"].configs
    assert plan(shop, hiding(seen, "dc1")).steps == ()


@pytest.mark.parametrize("state", ["active", "failed_over"])
def test_a_declared_mirror_keeps_its_settings_when_its_source_is_gone(state) -> None:
    shop, seen = applied(flow("dc1>dc2", "orders"), topic("dc2/orders"))
    ended = topology(flow("dc1>dc2", "orders", state=state), topic("dc2/orders"), clusters=shop.clusters)
    made = plan(ended, at(seen, "dc1", topics={}))
    assert {field.path[0] for field in changes(made)["topic.dc2.orders"].fields} <= {"recorded"}


def holding(topic: str, partitions: int = 2) -> ObservedCluster:
    return cluster("dc1", live(topic, partitions))


def limited(name: str, rate: float) -> ObservedCluster:
    return cluster(name, quotas={"user/app": {"producer_byte_rate": rate}})


MIRROR = flow("dc1>dc2", "or.*|other")
HELD = cluster("dc2", live("orders", 2))
DECLARED = topic("dc2/orders")


@cases(
    "parts clusters silent",
    {
        "a topic that it fills too stays shared": (
            [flow("dc1>dc2"), flow("dc3>dc2")],
            [holding("orders"), cluster("dc2"), cluster("dc3", live("orders", 2))],
            "dc3",
        ),
        "a declared topic keeps the recorded partitions": (
            [MIRROR, DECLARED],
            [holding("orders"), HELD],
            "dc1",
        ),
        "without its settings": (
            [structs.replace(MIRROR, configs=ConfigsSpec("off")), DECLARED],
            [holding("orders"), HELD],
            "dc1",
        ),
        "a topic that it never had": ([MIRROR, DECLARED], [holding("other"), HELD], "dc1"),
        "a topic that is written out and that it never had": (
            [flow("dc1>dc2", "orders"), DECLARED],
            [cluster("dc1"), HELD],
            "dc1",
        ),
        "no quota of another takes its place": (
            [flow(ends, "orders", quotas_sync=True) for ends in ("dc1>dc3", "dc2>dc3")],
            [limited("dc1", 5.0), limited("dc2", 7.0), cluster("dc3")],
            "dc1",
        ),
    },
)
def test_while_a_cluster_is_silent_nothing_changes(parts, clusters, silent) -> None:
    shop, seen = topology(*parts), observed(*clusters)
    seen = simulate(plan(shop, seen).steps, seen)
    assert plan(shop, seen).steps == ()
    assert plan(shop, without(seen, silent)).steps == ()


SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.mark.slow
@settings(suppress_health_check=SLOW)
@given(topologies(), states())
def test_whatever_was_applied_rests_while_a_cluster_is_silent(shop: Topology, seen: Observed) -> None:
    made = plan(shop, seen)
    assume(not made.errored)
    seen = simulate(made.steps, seen)
    assume(plan(shop, seen).steps == ())
    for name, known in seen.clusters.items():
        assert isinstance(known, ObservedCluster)
        assert plan(shop, without(seen, name)).steps == ()


READER = acl("READ", cluster="dc1", principal="User:app")


def chain(state: str = "active") -> Topology:
    """A chain of flows that mirrors rules and quotas."""
    flows = (flow("dc1>dc2", "orders", state=state), flow("dc2>dc3", "orders"))
    return topology(*(structs.replace(one, acls_sync=True, quotas_sync=True) for one in flows))


def mirrored() -> Observed:
    quotas = {"user/app": {"producer_byte_rate": 5.0}}
    clusters = (
        cluster("dc1", live("orders", 3), acls=[READER], quotas=quotas),
        cluster("dc2", acls=[]),
        cluster("dc3", acls=[]),
    )
    seen = simulate(plan(chain(), observed(*clusters)).steps, observed(*clusters))
    assert plan(chain(), seen).steps == ()
    assert there(seen, "dc3").acls
    assert there(seen, "dc3").quotas
    return seen


@pytest.mark.parametrize("part", ["everything", "acls", "quotas"])
def test_what_a_chain_mirrors_stays_while_it_can_not_be_read_at_its_head(part) -> None:
    seen = without(mirrored(), "dc1")
    if part != "everything":
        gone = {part: None} if part == "acls" else {}
        seen = at(mirrored(), "dc1", unreadable={part: "not authorized"}, **gone)
    assert plan(chain(), seen).steps == ()


def test_a_failover_leaves_the_rules_and_quotas_further_along_the_chain() -> None:
    left = plan(chain("failed_over"), without(mirrored(), "dc1"))
    assert {step.address.kind.value for step in left.steps} <= {"job", "flow"}


def test_a_rule_that_goes_after_a_failover_goes_along_the_chain() -> None:
    seen = simulate(plan(chain("failed_over"), mirrored()).steps, mirrored())
    assert plan(chain("failed_over"), seen).steps == ()
    seen = at(seen, "dc2", acls=[], quotas={})
    assert there(simulate(plan(chain("failed_over"), seen).steps, seen), "dc3").acls == ()


def test_a_flow_shares_no_topic_with_a_silent_flow_that_never_filled_it() -> None:
    shop = topology(flow("dc1>dc2", "orders"), flow("dc3>dc2", ("orders",)))
    seen = observed(cluster("dc1", live("orders", 1)), cluster("dc2"), cluster("dc3"))
    seen = simulate(plan(shop, seen).steps, seen)
    assert plan(shop, seen).steps == ()
    steps = plan(shop, without(seen, "dc3")).steps
    assert {step.address.kind.value for step in steps} <= {"topic"}  # only what is remembered of its source
