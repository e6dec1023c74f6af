"""Which topics the clusters should hold, with what, and what each flow takes, in every state."""

from typing import Final, Literal

import pytest

from planner.diff.differ import diff
from planner.graph.expansion import expand, read_requests
from planner.model.desired import Declared, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.observed import ConfigValue
from planner.model.topology import OnRemove, Topic
from runtime.contract.spec.flow import ConfigsSpec, FlowState
from runtime.contract.spec.rename import Template
from runtime.contract.spec.transform import TransformSpec
from tests.fakes.replacing import replace
from tests.fakes.tables import cases
from tests.planner.graph.build import (
    BOUNDS,
    MIRROR,
    cluster,
    expanded,
    flow,
    live,
    mirror_entry,
    seen,
    selected,
    topic,
    topology,
    wanted,
)

PREFIX = Template("{source}.{topic}")
WAY, BACK = flow("dc1>dc2"), flow("dc2>dc1")
ALL: Final = "all"
SET: Final = "set"
OFF: Final = "off"
HEADERS = flow("dc1>dc2", provenance="headers")
INHERITED = {"retention.ms": "604800000", "retention.bytes": "-1"}
SETS = live("a", retention_ms="5", cleanup_policy="compact", min_insync_replicas="2")
HAS = live("a", flush_ms="1", min_insync_replicas="2", retention_ms="1")
COMPACT = {"retention.ms": "5", "cleanup.policy": "compact"}
NO_SEGMENTS = {key: value for key, value in MIRROR.items() if key != "segment.bytes"}


def synced(mode: Literal["off", "set", "all"], *exclude: str):
    return flow("dc1>dc2", configs=ConfigsSpec(mode, exclude))


def hidden(one, **secret: None):
    """A topic with a value that may not be read."""
    secrets = {key.replace("_", "."): ConfigValue(None, sensitive=True) for key in secret}
    return replace(one, config={**one.config, **secrets})


FLUSHES = {"flush.ms": None}  # what a mirror unsets
BOTH_SIDES = {"dc1": [live("a", 3, retention_ms="1")], "dc2": [live("a", 6, retention_ms="2")]}
OTHER_SIDE = {"dc2": [live("a", 6, retention_ms="2")]}
ITS_OWN = {"dc1": [SETS], "dc2": [HAS]}
LARGE = {"dc1": [live("a", max_message_bytes="2000000")]}
ROOM = {**MIRROR, "max.message.bytes": "2001024"}


@cases(
    "parts clusters place config",
    {
        "by default": ([WAY], ITS_OWN, "dc2/a", {**MIRROR, **COMPACT, **FLUSHES}),
        "without some": (
            [synced(SET, "flush.ms", "retention.*", "seg.*")],
            ITS_OWN,
            "dc2/a",
            {**NO_SEGMENTS, "cleanup.policy": "compact"},
        ),
        "none": ([synced(OFF)], ITS_OWN, "dc2/a", BOUNDS),
        "all": ([synced(ALL)], ITS_OWN, "dc2/a", {**MIRROR, **COMPACT, "retention.bytes": "-1", **FLUSHES}),
        "all of one that is to be made": (
            [synced(ALL), topic("dc1/a", flush_ms="1")],
            {},
            "dc2/a",
            {**MIRROR, **INHERITED, "flush.ms": "1"},
        ),
        "what is declared stands": (
            [WAY, topic("dc2/a", retention_ms="7", min_insync_replicas="1")],
            {"dc1": [live("a", retention_ms="5")], "dc2": [live("a", flush_ms="1")]},
            "dc2/a",
            {**MIRROR, "retention.ms": "7", "min.insync.replicas": "1"},
        ),
        "headers need room": ([HEADERS], LARGE, "dc2/a", ROOM),
        "further on too": ([HEADERS, flow("dc2>dc3")], LARGE, "dc3/a", ROOM),
        "no number": (
            [HEADERS, topic("dc1/a", max_message_bytes="much")],
            {},
            "dc2/a",
            {**MIRROR, "max.message.bytes": "much"},
        ),
        "a secret": (
            [synced(SET, "segment.bytes")],
            {"dc1": [hidden(live("a"), vendor_key=None)], "dc2": [hidden(live("a"), other_key=None)]},
            "dc2/a",
            NO_SEGMENTS,
        ),
        "a topic of both sides": ([WAY, BACK], BOTH_SIDES, "dc1/a", BOUNDS),
        "one that this side lacks": ([WAY, BACK], OTHER_SIDE, "dc1/a", {**MIRROR, "retention.ms": "2"}),
        "other side": ([WAY, BACK], OTHER_SIDE, "dc2/a", BOUNDS),
        "what no cluster tells": (
            [WAY, topic("dc1/a")],
            {"dc1": cluster("dc1", default_partitions=None, defaults={})},
            "dc2/a",
            BOUNDS,
        ),
        "a source that was promoted": (
            [flow("dc1>dc2", promoted=("a",))],
            {"dc1": "a", "dc2": cluster("dc2", "a", owned=(mirror_entry("dc1-dc2", "dc2/a"),))},
            "dc2/a",
            {},
        ),
    },
)
def test_the_settings_of_a_mirror(parts, clusters, place, config) -> None:
    one = wanted(expanded(*parts, **clusters))[place]
    assert {**one.config, **dict.fromkeys(one.unset)} == config
    assert not one.unset & one.config.keys()


@cases(
    "parts clusters partitions",
    {
        "as its source": (
            [flow("dc1>dc2", ("orders", r"pay\..*"))],
            {"dc1": [live("orders", 12), live("pay.eu", 3), "other"]},
            {"dc2/orders": 12, "dc2/pay.eu": 3},
        ),
        "declared": ([WAY, topic("dc2/a")], {"dc1": [live("a", 4)]}, {"dc2/a": 4}),
        "grown": ([WAY, topic("dc2/a")], {"dc1": [live("a", 4)], "dc2": [live("a", 2)]}, {"dc2/a": 4}),
        "more": ([WAY, topic("dc2/a")], {"dc1": [live("a", 4)], "dc2": [live("a", 9)]}, {"dc2/a": 9}),
        "the larger of both sides": (
            [WAY, BACK],
            {"dc1": [live("a", 3)], "dc2": [live("a", 6)]},
            {"dc1/a": 6, "dc2/a": 6},
        ),
        "of one that is declared here": (
            [WAY, topic("dc1/new", 4), topic("dc1/plain")],
            {"dc1": cluster("dc1", default_partitions=7)},
            {"dc1/new": 4, "dc1/plain": None, "dc2/new": 4, "dc2/plain": 7},
        ),
        "a chain": (
            [flow("dc1>dc2", "orders"), flow("dc2>dc3", rename=PREFIX)],
            {"dc1": [live("orders", 5)]},
            {"dc2/orders": 5, "dc3/dc2.orders": 5},
        ),
        "unknown": (
            [WAY, topic("dc1/a")],
            {"dc1": cluster("dc1", default_partitions=None)},
            {"dc1/a": None, "dc2/a": None},
        ),
        # Prefixed names do not grow without end.
        "a prefixed ring": (
            [flow(ends, rename=PREFIX) for ends in ("dc1>dc2", "dc2>dc3", "dc3>dc1")],
            {"dc1": "a", "dc2": "b", "dc3": "c"},
            dict.fromkeys(
                ["dc1/dc3.c", "dc1/dc3.dc2.b", "dc2/dc1.a", "dc2/dc1.dc3.c", "dc3/dc2.b", "dc3/dc2.dc1.a"], 1
            ),
        ),
        "samples are no topics": ([flow("dc1>dc2", ("x.*", "__repl.*", "named"))], {}, {}),
    },
)
def test_the_topics_and_their_partitions(parts, clusters, partitions) -> None:
    desired = expanded(*parts, **clusters)
    assert {place: one.partitions for place, one in wanted(desired).items()} == partitions


def test_declared_topics_are_desired_as_declared_and_mirrors_have_the_replication_of_their_flow() -> None:
    declared = Topic("orders", "dc1", 6, 3, {"retention.ms": "1"}, protect=True, on_remove=OnRemove.DELETE)
    assert expanded(declared).topics == (
        DesiredTopic(
            "dc1", "orders", Declared(), 6, 3, {"retention.ms": "1"}, frozenset(), True, OnRemove.DELETE
        ),
    )
    found = wanted(expanded(flow("dc1>dc2", replication=2), topic("dc2/declared"), dc1="orders declared"))
    assert {name: one.replication for name, one in found.items()} == {"dc2/orders": 2, "dc2/declared": None}


def test_a_flow_that_quarantines_has_a_topic_for_it_beside_each_mirror() -> None:
    """It has the mirror's partitions and room for headers. What exists keeps its settings and partitions."""
    transform = TransformSpec(where="true", on_bad_record="quarantine")
    of = topology(flow("dc1>dc2", transform=transform, replication=2), topic("dc2/declared.quarantine", 1))
    over = seen(
        dc1=[live("orders", 12, max_message_bytes="5000"), live("old", 3), "declared"],
        dc2=[live("old.quarantine", 1, retention_ms="1")],
    )
    found = wanted(expand(of, over))
    settings = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": str(5000 + (64 << 10)),
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
    }
    origin = QuarantineOf("dc1-dc2", "orders")
    assert found["dc2/orders.quarantine"] == DesiredTopic("dc2", "orders.quarantine", origin, 12, 2, settings)
    kept = found["dc2/old.quarantine"]
    assert (kept.origin, kept.config) == (QuarantineOf("dc1-dc2", "old"), {})
    assert found["dc2/declared.quarantine"].origin == Declared()
    changes = {str(one.address): one for one in diff(expand(of, over), over)}
    reason = "takes the bad records of orders: on_bad_record of flow.dc1-dc2"
    assert changes["topic.dc2.orders.quarantine"].reason == reason
    assert {one.path[0] for one in changes["topic.dc2.old.quarantine"].fields} <= {"replication"}
    details = read_requests(of, seen(dc1="orders"))
    assert [name for name, one in details.items() if "orders.quarantine" in one.configs] == ["dc2"]


# Flows that ended, clusters that cannot be read.


@pytest.mark.parametrize("state", ["promoted", "failed_over"])
def test_a_flow_that_ended_leaves_its_mirrors_as_they_are(state: FlowState) -> None:
    owned = (
        *(mirror_entry("dc1-dc2", f"dc2/{name}") for name in ("dc1.a", "dc1.gone", "odd")),
        mirror_entry("dc1-dc2", "dc2/dc1.b", topology="another"),
        mirror_entry("other", "dc2/dc1.c"),
    )
    dc2 = cluster("dc2", "dc1.a", "dc1.b", "dc1.c", "odd", owned=owned)
    desired = expanded(flow("dc1>dc2", rename=PREFIX, state=state), dc1=None, dc2=dc2)
    assert desired.topics == (DesiredTopic("dc2", "dc1.a", MirroredBy("dc1-dc2", "dc1", "a")),)
    assert selected(desired) == {"dc1-dc2": (("a", "dc1.a"),)}
    assert desired.unknown == {}
    assert desired.flows[0].selection_known


def test_a_topic_that_was_promoted_is_taken_by_no_flow_but_another() -> None:
    owned = [mirror_entry("dc1-dc2", f"dc2/pay.{one}") for one in ("eu", "us")]
    dc2 = cluster("dc2", "pay.eu", "pay.us", owned=owned)
    desired = expanded(flow("dc1>dc2", promoted=(r"pay\.eu",)), dc1="pay.eu pay.us", dc2=dc2)
    assert {place: one.config for place, one in wanted(desired).items()} == {
        "dc2/pay.eu": {},
        "dc2/pay.us": MIRROR,
    }
    assert selected(desired) == {"dc1-dc2": (("pay.us", "pay.us"),)}
    old, dc2 = (
        flow("old=dc1>dc2", state="promoted"),
        cluster("dc2", "a", owned=(mirror_entry("old", "dc2/a"),)),
    )
    (taken,) = expanded(old, flow("new=dc3>dc2"), dc2=dc2, dc3="a").topics
    assert taken.origin == MirroredBy("new", "dc3", "a")


def test_a_failback_brings_topics_back_under_their_old_names() -> None:
    there = flow("f=dc1>dc2", "pay", rename=PREFIX, state="failed_over")
    desired = expanded(
        there, flow("f-back=dc2>dc1", reverse_of="f"), dc2=[live("dc1.pay", 3), "dc1.other", "own"]
    )
    origins = {place: one.origin for place, one in wanted(desired).items()}
    assert origins == {"dc1/pay": MirroredBy("f-back", "dc2", "dc1.pay")}


def test_what_may_not_be_described_is_unknown_and_never_created() -> None:
    dc1 = cluster("dc1", live("dim", 3, retention_ms="1"), hidden=frozenset({"secret", "dim", "else"}))
    desired = expanded(
        flow("dc1>dc2", ("secret", "dim", "hidden.*")), dc1=dc1, dc2=[live("dim", flush_ms="1")]
    )
    assert {place: (one.partitions, one.config, one.unset) for place, one in wanted(desired).items()} == {
        "dc2/dim": (3, BOUNDS, frozenset())
    }
    assert desired.unknown == {
        f"topic.dc1.{name}": f"not authorized to describe dc1/{name}" for name in ("dim", "secret")
    }


def test_what_hangs_on_an_unreachable_cluster_is_unknown_and_the_rest_is_expanded() -> None:
    parts = WAY, flow("dc2>dc1", "own"), flow("dc2>dc3", "x"), topic("dc1/declared", 2)
    desired = expanded(*parts, dc1=None, dc2=[live("own", 2), "x"])
    assert desired.unknown == {}  # the clusters that don't answer are in Observed
    assert {place: one.partitions for place, one in wanted(desired).items()} == {
        "dc1/declared": 2,
        "dc1/own": 2,
        "dc3/x": 1,
    }
    known = {one.flow.name: one.selection_known for one in desired.flows}
    assert known == {"dc1-dc2": False, "dc2-dc1": True, "dc2-dc3": True}
