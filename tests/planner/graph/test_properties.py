"""For any topology and any clusters: order means nothing, and flows take only what is there or comes."""

from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.graph.expansion import expand, lint_offline
from planner.model.observed import Observed
from planner.model.topology import Cluster, Flow, Provenance, Selection, Topology
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.rename import Table, Template
from tests.fakes import worlds
from tests.fakes.replacing import replace
from tests.planner.graph.build import flow
from tests.planner.plan.jobs import plan

CLUSTERS = ("dc1", "dc2", "dc3")
ENDS = st.sampled_from([f"{one}>{other}" for one in CLUSTERS for other in CLUSTERS if one != other])
INCLUDES = st.lists(st.sampled_from([".*", "a", r"d\..*", "b|a", "dc1.*"]), min_size=1, max_size=2)
RENAMES = st.sampled_from(
    [
        Template("{topic}"),
        Template("{source}.{topic}"),
        Template("{topic}.copy"),
        Table({"a": "b", "b": "a"}),
    ]
)


@st.composite
def flows(draw: st.DrawFn) -> list[Flow]:
    ends = draw(st.lists(ENDS, max_size=5))
    return [
        flow(
            f"f{at}={pair}",
            topics=Selection(tuple(draw(INCLUDES)), default_exclude=draw(st.booleans())),
            rename=draw(RENAMES),
            provenance=draw(st.sampled_from(get_args(Provenance))),
            configs=ConfigsSpec(
                draw(st.sampled_from(["off", "set", "all"])), draw(st.sampled_from([(), ("flush.*",)]))
            ),
            groups=GroupsSpec(sync=draw(st.booleans())),
            acls_sync=draw(st.booleans()),
        )
        for at, pair in enumerate(ends)
    ]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    shop = draw(worlds.topologies())
    clusters = {**shop.clusters, "dc3": Cluster("dc3", bootstrap="dc3:9092")}
    return replace(shop, clusters=clusters, flows={one.name: one for one in draw(flows())})


@st.composite
def states(draw: st.DrawFn) -> Observed:
    """dc3 holds the topics that dc1 holds in another state of the world."""
    seen, other = draw(worlds.states()), draw(worlds.states()).reachable("dc1")
    assert other is not None
    return Observed({**seen.clusters, "dc3": replace(other, name="dc3", id="id-dc3", owned=(), acls=())})


def mixed(value: Any, random: Random, *names: str) -> Any:
    """The dictionaries and tuples of these names in another order."""
    changed = {}
    for name in names:
        kind = type(getattr(value, name))
        items = getattr(value, name).items() if kind is dict else getattr(value, name)
        changed[name] = kind(random.sample(list(items), len(items)))
    return replace(value, **changed)


@pytest.mark.slow
@given(topologies(), states(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_written_and_read_never_matters(
    of: Topology, world: Observed, random: Random
) -> None:
    topics = tuple(mixed(one, random, "config") for one in of.topics)
    other = mixed(replace(of, topics=topics), random, "clusters", "topics", "acls", "quotas", "flows")
    clusters = {name: mixed(one, random, "topics", "quotas", "owned") for name, one in world.clusters.items()}
    made = plan(of, world)
    assert replace(plan(other, mixed(Observed(clusters), random, "clusters")), inputs=made.inputs) == made
    assert lint_offline(of) == lint_offline(other)


@given(topologies(), states())
def test_every_flow_takes_only_what_is_there_or_comes(of: Topology, world: Observed) -> None:
    desired = expand(of, world)
    there = {(name, topic) for name in CLUSTERS if (one := world.reachable(name)) for topic in one.topics}
    there |= {(one.cluster, one.name) for one in desired.topics}
    taken = {(one.flow.source_cluster, here) for one in desired.flows for here, _ in one.topics}
    assert taken <= there
