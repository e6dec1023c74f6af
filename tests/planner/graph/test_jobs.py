"""The spec of each job: what the topology says, what it came to, and references instead of secrets."""

from pathlib import PurePath

from planner.graph.expansion import expand
from planner.model.desired import DesiredJob
from planner.model.diagnostic import SourceLocation
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.topology import Cluster, Topology
from runtime.contract.client.stores import Setting
from runtime.contract.spec.jobspec import JobSpec, ProtectionSpec, Route
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec
from tests.fakes.replacing import replace
from tests.fakes.simulated import running
from tests.fakes.tables import cases
from tests.planner.graph.build import flow, live, topic, topology


def at(name: str, *topics: str) -> ObservedCluster:
    return ObservedCluster(name, f"id-{name}", (), {one: live(one) for one in topics})


TWO = Observed({"dc1": at("dc1", "a"), "dc2": at("dc2")})


def jobs(shop: Topology, seen: Observed = TWO) -> tuple[DesiredJob, ...]:
    return expand(shop, seen, PurePath("/home")).jobs


def spec(shop: Topology, seen: Observed = TWO) -> JobSpec:
    (job,) = jobs(shop, seen)
    assert job.spec is not None
    return job.spec


def test_clusters_are_pinned_to_what_was_seen() -> None:
    found = spec(topology(flow("dc1>dc2")))

    assert (found.topology, found.destination) == ("t", "dc2")
    assert {name: (one.bootstrap, one.id) for name, one in found.clusters.items()} == {
        "dc1": ("dc1:9092", "id-dc1"),
        "dc2": ("dc2:9092", "id-dc2"),
    }


def test_a_silent_cluster_keeps_the_id_that_the_running_job_knows() -> None:
    shop = topology(flow("dc1>dc2"))
    before = spec(shop)
    seen = Observed({"dc1": Unreachable("dc1", "gone"), "dc2": replace(at("dc2"), jobs=(running(before),))})

    assert spec(shop, seen) == before


def test_secrets_stay_references_and_files_are_found_from_anywhere() -> None:
    client: dict[str, Setting] = {
        "security.protocol": "SASL_SSL",
        "sasl.password": {"env": "DC1_PASSWORD"},
        "ssl.key.pem": {"file": "keys/dc1.pem"},
    }
    secured = Cluster(
        "dc1", bootstrap="dc1:9092", client=client, source=SourceLocation("shop/clusters.yaml", 1, 1)
    )
    shop = topology(flow("dc1>dc2"), clusters={"dc1": secured, "dc2": Cluster("dc2", bootstrap="dc2:9092")})

    assert spec(shop).clusters["dc1"].client == {
        "sasl.password": {"env": "DC1_PASSWORD"},
        "security.protocol": "SASL_SSL",
        "ssl.key.pem": {"file": "/home/shop/./keys/dc1.pem"},
    }


def test_what_auto_came_to_is_in_the_flow() -> None:
    shop = topology(flow("x=dc1>dc2", "a", job="j"), flow("y=dc2>dc1", "a", job="k"))

    assert {job.job.name: job.spec.flows[0].provenance for job in jobs(shop) if job.spec} == {
        "j": "batch",
        "k": "batch",
    }
    assert all(job.spec.flows[0].shared for job in jobs(shop) if job.spec)


def test_routes_tell_of_every_flow_and_a_way_back_of_what_it_undoes() -> None:
    there = flow("x=dc1>dc2", "pay", rename=Template("{source}.{topic}"), state="failed_over")
    shop = topology(there, flow("x-back=dc2>dc1", (), reverse_of="x"), flow("y=dc1>dc3", "z"))

    seen = Observed({**TWO.clusters, "dc3": at("dc3")})

    (found,) = [job.spec for job in jobs(shop, seen) if job.job.name == "dc1"]

    assert found is not None
    routes = {route.name: route for route in found.routes}
    assert sorted(routes) == ["x", "x-back", "y"]
    assert routes["x-back"] == Route(
        name="x-back",
        source="dc2",
        destination="dc1",
        topics=SelectionSpec(include=(), default_exclude=False),
        rename=Template(text="{source}.{topic}"),
        undoes=SelectionSpec(include=("pay",)),
        reverse_of="x",
    )


def test_only_the_declared_settings_that_a_flow_could_touch() -> None:
    shop = topology(
        flow("dc1>dc2", "a"),
        topic("dc2/a", retention_ms="1", cleanup_policy="compact"),
        topic("dc2/elsewhere", retention_ms="1"),
        topic("dc1/a", retention_ms="1"),
    )

    assert spec(shop).declared == {"a": ["cleanup.policy", "retention.ms"]}


@cases(
    "protect state open_without_rules protection",
    {
        "off": ("off", "active", False, None),
        "acl": ("acl", "active", False, ProtectionSpec(principal="User:repl")),
        "acl, where topics without rules are open": (
            "acl",
            "active",
            True,
            ProtectionSpec(principal="User:repl", open_without_rules=True),
        ),
        "of a flow that has ended": ("acl", "promoted", True, None),
    },
)
def test_a_job_knows_how_to_protect_the_mirrors_that_it_creates(
    protect, state, open_without_rules, protection
) -> None:
    open_ = {"allow_everyone_if_no_acl_found": open_without_rules}
    dc2 = Cluster("dc2", bootstrap="dc2:9092", principal="User:repl", **open_)
    clusters = {"dc1": Cluster("dc1", bootstrap="dc1:9092"), "dc2": dc2}
    ending = flow("x=dc1>dc2", "a", protect=protect, state=state)
    shop = topology(ending, flow("y=dc1>dc2", "b"), clusters=clusters)
    assert spec(shop).protection == protection


def test_two_destinations_are_no_spec() -> None:
    shop = topology(flow("x=dc1>dc2", job="j"), flow("y=dc1>dc3", job="j"))

    assert [job.spec for job in jobs(shop)] == [None]
