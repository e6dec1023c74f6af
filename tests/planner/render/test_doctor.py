"""repl doctor: what a cluster can do, for a person and for a script."""

import dataclasses
import json
from pathlib import Path

import pytest

from planner.model.observed import (
    BrokerFeature,
    BrokerReport,
    ClusterReport,
    FeatureReport,
    RightReport,
    TopicRightsReport,
)
from planner.render.reports.doctor import as_json, screen
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.topologies import at

READ = BrokerFeature("copy from", "2.4", as_source="no flow can read from it", required=True)
WRITE = BrokerFeature("copy to", "2.5", as_destination="no flow can write to it", required=True)
IDS = BrokerFeature("topic ids", "2.8", as_source="told by its epoch")
OLD = ClusterReport(
    "dc1",
    "an-id",
    (
        BrokerReport(1, "a:9092", "2.4", 0.42, {1: (0, 11)}),
        BrokerReport(2, "b:9092", why="connection refused"),
    ),
    (
        FeatureReport(READ),
        FeatureReport(WRITE, "1 (a:9092)", "InitProducerId is offered in versions 0 to 2"),
        FeatureReport(IDS, "1 (a:9092)", "Metadata is offered in versions 0 to 9"),
    ),
    (RightReport("CREATE", False, "create topics"), RightReport("ALTER", None, "change ACLs")),
    None,
    "this version tells no time",
)


def test_the_screen_says_what_a_flow_can_do() -> None:
    lines = [line.plain for line in screen(OLD, None)]
    assert "Kafka 2.4" in lines[3]
    assert "does not answer: connection refused" in lines[4]
    assert any(line.startswith("copy to") and "no flow can write to it" in line for line in lines)
    assert lines[-3:] == [
        "Clock: not known (this version tells no time)",
        "A flow from dc1: yes",
        "A flow to dc1: no",
    ]


def test_each_missing_right_has_a_row() -> None:
    whole = TopicRightsReport("payments", ("mirror of a flow",), {})
    lacking = TopicRightsReport("orders", ("mirror of a flow",), {"WRITE": "copy records to it"})
    untold = TopicRightsReport("returns", ("source of a flow",), None, "the broker does not tell")
    report = dataclasses.replace(OLD, topic_rights=(lacking, untold, whole))
    lines = [line.plain for line in screen(report, None)]
    start = lines.index("Rights on the topics that flows use: all on 1 of 3")
    assert [line.split() for line in lines[start + 2 : start + 4]] == [
        ["orders", "mirror", "of", "a", "flow", "WRITE", "copy", "records", "to", "it"],
        ["returns", "source", "of", "a", "flow", "?", "the", "broker", "does", "not", "tell"],
    ]
    told = as_json(report)["topic_rights"]
    assert told[0] == {
        "topic": "orders",
        "uses": ["mirror of a flow"],
        "missing": {"WRITE": "copy records to it"},
        "why": None,
    }
    assert [one["missing"] for one in told[1:]] == [None, {}]


def test_many_topics_without_a_right_are_counted() -> None:
    one = TopicRightsReport("orders", ("mirror of a flow",), {"WRITE": "copy records to it"})
    lines = [line.plain for line in screen(dataclasses.replace(OLD, topic_rights=(one,) * 30), None)]
    assert sum(line.startswith("orders") for line in lines) == 20
    assert "… and 10 topics more: --json shows all" in lines


def test_the_json_is_whole() -> None:
    told = as_json(OLD)
    assert (told["can_be_source"], told["can_be_destination"]) == (True, False)
    assert [one["supported"] for one in told["features"]] == [True, False, False]
    assert told["brokers"][0]["versions"] == {"1": [0, 11]}
    assert told["brokers"][1]["why"] == "connection refused"
    assert [one["allowed"] for one in told["rights"]] == [False, None]


@pytest.mark.integration
def test_a_live_cluster_is_examined(lab: Lab, tmp_path: Path) -> None:
    topology = at(lab, "doctor", tmp_path)
    topology.topic("orders", partitions=1)
    done = repl("doctor", "dc1", str(topology.write()), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["cluster_id"] == lab.clusters["dc1"].cluster_id
    assert told["can_be_source"]
    assert told["can_be_destination"]
    assert all(one["supported"] for one in told["features"])
    assert all(one["allowed"] for one in told["rights"])
    assert abs(told["clock_offset_ms"]) < 1000  # the same machine
    (broker,) = told["brokers"]
    assert broker["release"] == "4.1"
    assert broker["round_trip_ms"] > 0
