"""For any topology and any clusters: order means nothing, and what was applied is wanted again."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from planner.graph.expansion import expand, lint_offline
from planner.model.observed import ConfigValue, Observed, ObservedCluster, ObservedTopic
from planner.model.topology import AclRule, Flow, Provenance, Selection, Topology
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.rename import Table, Template
from tests.fakes.replacing import replace
from tests.planner.graph.build import cluster, flow, live, observed, rule, topic, topology

CLUSTERS = ("dc1", "dc2", "dc3")
NAMES = ("a", "b", "pay.eu", "x.internal", "dc1.a", "a.replica")

ENDS = st.sampled_from([f"{one}>{other}" for one in CLUSTERS for other in CLUSTERS if one != other])
INCLUDES = st.lists(st.sampled_from([".*", "a", r"pay\..*", "b|a", "dc1.*"]), min_size=1, max_size=2)
RENAMES = st.sampled_from(
    [
        Template("{topic}"),
        Template("{source}.{topic}"),
        Template("{topic}.copy"),
        Table({"a": "b", "b": "a"}),
    ]
)
SETTINGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas", "flush.ms"]),
    st.sampled_from(["1", "2"]),
    max_size=3,
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
    places = st.sampled_from([f"{one}/{name}" for one in CLUSTERS for name in NAMES])
    topics = [
        replace(topic(place, draw(st.none() | st.integers(1, 3))), config=draw(SETTINGS))
        for place in draw(st.sets(places, max_size=4))
    ]
    return topology(*draw(flows()), *topics, *draw(st.sets(acl_rules(), max_size=2)))


@st.composite
def acl_rules(draw: st.DrawFn, where: str | None = None) -> AclRule:
    at = where or draw(st.sampled_from(CLUSTERS))
    operation = draw(st.sampled_from(["READ", "WRITE", "ALL"]))
    permission = draw(st.sampled_from(["ALLOW", "DENY"]))
    return rule(
        f"{at} {permission} User:u {operation} {draw(st.sampled_from(NAMES))}",
        draw(st.sampled_from(["LITERAL", "PREFIXED"])),
    )


@st.composite
def worlds(draw: st.DrawFn) -> Observed:
    return observed(
        *(
            cluster(
                name,
                *(
                    with_settings(live(one, draw(st.integers(1, 4))), draw(SETTINGS))
                    for one in sorted(draw(st.sets(st.sampled_from(NAMES), max_size=4)))
                ),
                acls=tuple(sorted(draw(st.sets(acl_rules(name), max_size=2)))),
            )
            for name in CLUSTERS
        )
    )


def with_settings(one: ObservedTopic, settings: dict[str, str]) -> ObservedTopic:
    return replace(one, config={**one.config, **{key: ConfigValue(value) for key, value in settings.items()}})


@given(topologies(), worlds())
def test_the_order_of_flows_and_topics_means_nothing(of: Topology, world: Observed) -> None:
    shuffled = replace(
        of,
        topics=tuple(reversed(of.topics)),
        acls=tuple(reversed(of.acls)),
        flows=dict(reversed(list(of.flows.items()))),
        clusters=dict(reversed(list(of.clusters.items()))),
    )
    backwards = Observed(
        {
            name: replace(one, topics=dict(reversed(list(one.topics.items()))))
            for name, one in reversed(list(world.clusters.items()))
            if isinstance(one, ObservedCluster)
        }
    )
    assert expand(of, world) == expand(shuffled, backwards)
    assert lint_offline(of) == lint_offline(shuffled)


@given(topologies(), worlds())
def test_every_flow_takes_only_what_is_there_or_comes(of: Topology, world: Observed) -> None:
    desired = expand(of, world)
    there = {(name, topic) for name in CLUSTERS if (one := world.reachable(name)) for topic in one.topics}
    there |= {(one.cluster, one.name) for one in desired.topics}
    taken = {(one.flow.source_cluster, here) for one in desired.flows for here, _ in one.topics}
    assert taken <= there
