"""repl doctor: what a cluster can do, for a person and for a script."""

import json
from pathlib import Path

import pytest

from runtime.lab.lab import Lab
from tests.commands import repl
from tests.topologies import at


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
    assert [feature["name"] for feature in told["features"] if not feature["supported"]] == []
    assert all(one["allowed"] for one in told["rights"])
    assert abs(told["clock_offset_ms"]) < 1000  # the same machine
    (broker,) = told["brokers"]
    assert broker["release"] == "4.4"
    assert broker["round_trip_ms"] > 0
