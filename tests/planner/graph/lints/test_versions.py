"""What the versions of Kafka at both sides of a flow cannot do."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.graph import expand
from planner.model.observed import BrokerFeature, LackingFeature
from planner.model.topology import Groups
from tests.planner.graph.build import cluster, codes, flow, live, observed, said, topic, topology, wanted

WRITING = BrokerFeature("copy to", "2.5", as_destination="no flow can write to it", required=True)
READING = BrokerFeature("copy from", "2.4", as_source="no flow can read from it", required=True)
GROUPS = BrokerFeature(
    "consumer groups", "2.4", as_source="unread", as_destination="unwritten", required=True, for_groups=True
)
IDS = BrokerFeature("topic ids", "2.8", as_source="told by its epoch", as_destination="told by its epoch")
NEW = {"message.timestamp.before.max.ms": "1"}
OLD = {"message.timestamp.difference.max.ms": "1"}


@pytest.mark.parametrize(
    ("source", "destination", "lints"),
    [
        ((), (), []),
        ((WRITING,), (), []),
        ((), (WRITING,), ["version-required"]),
        ((READING,), (READING,), ["version-required"]),
        ((IDS,), (), ["version-lacks"]),
        ((GROUPS,), (GROUPS,), ["version-required", "version-required"]),
    ],
)
def test_a_flow_says_what_the_versions_of_its_clusters_lack(
    source: tuple[BrokerFeature, ...], destination: tuple[BrokerFeature, ...], lints: list[str]
) -> None:
    def lacking(*features: BrokerFeature) -> tuple[LackingFeature, ...]:
        return tuple(
            LackingFeature(one, "1 (a:9092)", "Fetch is offered in versions 0 to 3") for one in features
        )

    dc1 = replace(cluster("dc1", live("a")), lacking=lacking(*source))
    dc2 = replace(cluster("dc2"), lacking=lacking(*destination))
    of = topology(flow("dc1>dc2", "a", heartbeats_every_ms=None))
    assert codes(expand(of, observed(dc1, dc2))) == lints
    if GROUPS in source:
        alone = topology(flow("dc1>dc2", "a", heartbeats_every_ms=None, groups=Groups(sync=False)))
        assert codes(expand(alone, observed(dc1, dc2))) == []


def test_the_broker_the_version_and_the_consequence_are_named() -> None:
    lacking = LackingFeature(WRITING, "2 (b:9092)", "InitProducerId is offered in versions 0 to 2")
    dc2 = replace(cluster("dc2"), lacking=(lacking,))
    (only,) = expand(topology(flow("dc1>dc2", "a")), observed(cluster("dc1", live("a")), dc2)).diagnostics
    assert only.summary == (
        "broker 2 (b:9092) of dc2 lacks copy to (Kafka 2.5): no flow can write to it"
        " (InitProducerId is offered in versions 0 to 2)"
    )
    assert only.way_out == "upgrade dc2 to Kafka 2.5 or newer"


@pytest.mark.parametrize(("defaults", "lints"), [({}, []), (NEW, []), (OLD, ["setting-unknown"])])
def test_a_declared_setting_that_the_version_lacks_is_refused(
    defaults: Mapping[str, str], lints: list[str]
) -> None:
    declared = topic("dc1/a", 1, None, message_timestamp_after_max_ms="5")
    known = {**defaults, **({"message.timestamp.after.max.ms": "1"} if defaults is NEW else {})}
    assert codes(expand(topology(declared), observed(replace(cluster("dc1"), defaults=known)))) == lints


def test_a_mirror_goes_without_a_setting_that_its_version_lacks() -> None:
    dc1 = cluster("dc1", live("a", compression_gzip_level="3", retention_ms="5"))
    dc2 = replace(cluster("dc2"), defaults={**cluster("dc2").defaults, **OLD})
    of = topology(flow("dc1>dc2", "a", heartbeats_every_ms=None))
    desired = expand(of, observed(dc1, dc2))
    assert codes(desired) == ["setting-left-out"]
    config = wanted(desired)["dc2/a"].config
    assert config["retention.ms"] == "5"
    assert config["message.timestamp.difference.max.ms"] == "9223372036854775807"
    assert not config.keys() & {"compression.gzip.level", "message.timestamp.before.max.ms"}
    assert "the setting compression.gzip.level of its topics at dc1" in said(desired, "setting-left-out")[0]
