"""For any topology and any clusters: order means nothing, and what was applied is wanted again."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from planner.graph.expansion import expand, lint_offline
from planner.model.desired import Desired, MirroredBy
from planner.model.diagnostic import Severity
from planner.model.observed import ConfigSource, ConfigValue, Observed, ObservedCluster, ObservedTopic
from planner.model.topology import AclRule, Flow, Provenance, Selection, Topology
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.rename import Table, Template
from tests.fakes.replacing import replace
from tests.planner.graph.build import (
    DEFAULTS,
    acl_entry,
    cluster,
    flow,
    live,
    observed,
    rule,
    topic,
    topology,
)

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


def applied(desired: Desired, world: Observed) -> Observed:
    """The clusters after all of it was done."""
    clusters = {}
    for name in CLUSTERS:
        before = world.reachable(name)
        assert before is not None
        topics = dict(before.topics)
        for one in desired.topics:
            if one.cluster == name:
                old = topics.get(one.name, live(one.name))
                count = max(one.partitions or 1, old.partitions)
                config = dict(old.config)
                config |= {
                    key: ConfigValue(DEFAULTS[key], ConfigSource.DEFAULT)
                    if key in DEFAULTS
                    else ConfigValue(None)
                    for key in one.unset
                }
                config |= {key: ConfigValue(value) for key, value in one.config.items()}
                topics[one.name] = ObservedTopic(one.name, old.id, ((1,),) * count, config)
        made = [one for one in desired.acls if one.rule.cluster == name]
        rules = sorted({*(before.acls or ()), *(one.rule for one in made)})
        entries = [acl_entry(one.origin.flow, one.rule) for one in made if isinstance(one.origin, MirroredBy)]
        clusters[name] = replace(before, topics=topics, acls=tuple(rules), owned=tuple(entries))
    return Observed(clusters)


def still_to_do(desired: Desired, world: Observed) -> list[str]:
    found = []
    for one in desired.topics:
        there = world.clusters[one.cluster]
        assert isinstance(there, ObservedCluster)
        now = there.topics.get(one.name)
        explicit = {} if now is None else now.config
        if now is None or (one.partitions or 0) > now.partitions:
            found.append(str(one.address))
        found += [f"{one.address} {key}" for key, value in one.config.items() if explicit[key].value != value]
        found += [f"{one.address} -{key}" for key in one.unset]
    acls = {
        rule
        for there in world.clusters.values()
        if isinstance(there, ObservedCluster)
        for rule in there.acls or ()
    }
    return found + [str(one.address) for one in desired.acls if one.rule not in acls]


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
def test_once_it_is_applied_nothing_is_left_to_do(of: Topology, world: Observed) -> None:
    desired = expand(of, world)
    if any(one.severity is Severity.ERROR for one in desired.diagnostics):
        return  # such a plan is never applied
    after = applied(desired, world)
    again = expand(of, after)
    assert still_to_do(again, after) == []
    assert {(one.cluster, one.name) for one in again.topics} == {
        (one.cluster, one.name) for one in desired.topics
    }
    assert again.acls == desired.acls
    assert [one.topics for one in again.flows] == [one.topics for one in desired.flows]
    assert [one.provenance for one in again.flows] == [one.provenance for one in desired.flows]


@given(topologies(), worlds())
def test_every_flow_takes_only_what_is_there_or_comes(of: Topology, world: Observed) -> None:
    desired = expand(of, world)
    there = {(name, topic) for name in CLUSTERS if (one := world.reachable(name)) for topic in one.topics}
    there |= {(one.cluster, one.name) for one in desired.topics}
    taken = {(one.flow.source_cluster, here) for one in desired.flows for here, _ in one.topics}
    assert taken <= there
