"""What a transform means for failback, for the job's place, and for its slots."""

from dataclasses import replace
from typing import Any

from planner.graph import expand, lint_offline
from planner.graph.routes import router_of
from planner.model.diagnostic import Diagnostic
from planner.model.observed import ObservedCluster
from planner.model.topology import (
    FileEndpoint,
    Flow,
    FlowState,
    Format,
    Job,
    OnFiltered,
    RecordFormat,
    Topology,
    Transform,
)
from planner.model.topology.transforms import OnBadRecord
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import cluster, flow, live, observed, topic, topology

JSON = Format(RecordFormat.JSON, "email STRING, card STRING")
MASK = Transform(value=JSON, set={"value.email": "'x'"}, drop=("value.card",))
FILTER = Transform(where="true")


def linted(of: Topology) -> list[str]:
    codes = ("failback-lossy", "raw-values-cross", "transform-slots")
    return [f"{one.code} {one.address}" for one in lint_offline(of) if one.code in codes]


def test_a_quarantine_takes_raw_values_across_the_border() -> None:
    """Only where the transform hides something: else the destination gets every record anyway."""
    for transform, warned in (
        (replace(MASK, on_bad_record=OnBadRecord.QUARANTINE), True),
        (replace(FILTER, on_bad_record=OnBadRecord.QUARANTINE), True),
        (Transform(value=JSON, on_bad_record=OnBadRecord.QUARANTINE), False),
        (MASK, False),
    ):
        found = lint_offline(topology(flow("f=dc1>dc2", transform=transform, job="at-dc1")))
        assert [one.address for one in found if one.code == "raw-values-quarantined"] == ["flow.f"] * warned


def quarantining(name: str, **more: Any) -> Flow:
    return flow(name, transform=replace(FILTER, on_bad_record=OnBadRecord.QUARANTINE), **more)


def test_a_quarantine_has_a_name_that_no_flow_copies_into() -> None:
    for name, copied, what in (
        ("orders", "orders.quarantine", "is the quarantine topic of dc2/orders, and flow.g copies"),
        ("o" * 245, "other", "a topic's name has at most 249 characters"),
        ("orders", "other", None),
    ):
        flows = [quarantining("f=dc1>dc2", include=(name,)), flow("g=dc3>dc2", include=(copied,))]
        found = [one for one in lint_offline(topology(*flows)) if one.code == "quarantine-name"]
        assert len(found) == (what is not None)
        assert all(what is not None and what in one.summary for one in found)


def test_no_pattern_takes_a_quarantine_topic_unless_it_is_written_out() -> None:
    """At dc2, orders.quarantine holds bad records of the flow: it is no data of dc2."""
    flows = [
        quarantining("f=dc1>dc2", include=("orders",)),
        flow("on=dc2>dc3", include=(".*",)),
        flow("named=dc2>dc3", include=(".*", "orders.quarantine"), rename=Template("named.{topic}")),
        flow("other=dc3>dc1", include=(".*",)),
    ]
    router = router_of(topology(*flows))
    taken = {
        one: router.destination_topic(one, "orders.quarantine") is not None
        for one in ("on", "named", "other")
    }
    assert taken == {"on": False, "named": True, "other": True}


def back(transform: Transform) -> list[Flow]:
    return [
        flow("there=dc1>dc2", transform=transform, job="j", state=FlowState.PROMOTED),
        flow("home=dc2>dc1", reverse_of="there"),
    ]


def test_a_failback_over_a_flow_that_changes_values_is_refused() -> None:
    assert linted(topology(*back(MASK))) == ["failback-lossy flow.home"]
    assert linted(topology(*back(FILTER))) == []


def test_raw_values_cross_the_border_where_the_job_is_the_destinations() -> None:
    assert linted(topology(flow("f=dc1>dc2", transform=MASK))) == ["raw-values-cross flow.f"]
    assert linted(topology(flow("f=dc1>dc2", transform=MASK, job="at-dc1"))) == []
    assert linted(topology(flow("f=dc1>dc2", transform=FILTER))) == []


DC2 = cluster("dc2")


def keyed(of: Topology, *clusters: ObservedCluster) -> list[Diagnostic]:
    """The warnings about the keys of filtered records, offline where no cluster is given."""
    found = expand(of, observed(*clusters)).diagnostics if clusters else lint_offline(of)
    return [one for one in found if one.code in ("stale-keys", "tombstones-not-compacted")]


def test_a_filter_over_a_compacted_topic_says_what_it_leaves_until_the_topology_decides() -> None:
    compacted = cluster("dc1", live("orders", cleanup_policy="compact"), live("log"))
    for transform, codes in (
        (FILTER, ["stale-keys"]),
        (replace(FILTER, on_filtered=OnFiltered.SKIP), []),
        (replace(FILTER, on_filtered=OnFiltered.TOMBSTONE), []),
        (MASK, []),
    ):
        found = keyed(topology(flow("f=dc1>dc2", "orders", transform=transform)), compacted, DC2)
        assert [one.code for one in found] == codes
    (stale,) = keyed(topology(flow("f=dc1>dc2", transform=FILTER)), compacted, DC2)
    assert stale.summary.startswith("flow.f filters the topic orders, compacted: ")  # and not the topic log
    assert "keys can be personal data" in stale.way_out


def test_tombstones_in_a_topic_that_is_not_compacted_are_told() -> None:
    deleting = flow("f=dc1>dc2", transform=replace(FILTER, on_filtered=OnFiltered.TOMBSTONE))
    both = cluster("dc1", live("orders", cleanup_policy="compact,delete"), live("log"))
    (found,) = keyed(topology(deleting), both, DC2)
    assert found.code == "tombstones-not-compacted"
    assert "the topic log is not compacted" in found.summary
    (found,) = keyed(topology(deleting, topic("dc2/orders", cleanup_policy="delete")), both, DC2)
    assert "2 topics (log, orders) are not compacted" in found.summary


def test_declared_topics_suffice_for_a_warning_and_unknown_ones_give_none() -> None:
    on = flow("f=dc1>dc2", transform=FILTER)
    compacted, unknown = topic("dc1/orders", cleanup_policy="compact"), topic("dc1/orders")
    for declared, codes in ((compacted, ["stale-keys"]), (unknown, [])):
        assert [one.code for one in keyed(topology(on, declared))] == codes


def test_files_keep_the_older_record_of_a_key_too() -> None:
    into = flow("f=dc1>lake", "orders", transform=FILTER)
    of = replace(
        topology(topic("dc1/orders", cleanup_policy="compact")),
        endpoints={"lake": FileEndpoint("lake", "/data/lake")},
        file_flows={"f": into},
    )
    (found,) = keyed(of, cluster("dc1", live("orders", cleanup_policy="compact")))
    assert found.summary.endswith("the key's older record stays the last one at lake")


def test_each_flow_with_a_transform_needs_a_slot() -> None:
    flows = [flow(f"{name}=dc1>dc2", transform=FILTER, job="j") for name in "ab"]
    raw = flow("raw=dc1>dc2", job="j")
    assert linted(topology(*flows, jobs={"j": Job("j", master="local[2]")})) == []
    assert linted(topology(*flows, raw, jobs={"j": Job("j", master="local[2]")})) == ["transform-slots job.j"]
