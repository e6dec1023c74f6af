"""Files of other tools, which anybody may have written: an import is quick, or one error that names them."""

import json
import time
from pathlib import Path

import pytest

from planner.config.importing.readers import READERS
from planner.model.diagnostic import Failure

SECONDS = 10.0  # of CPU; each of these took minutes, or ended the command as unexpected


def mm2(*lines: str, clusters: str = "a, b") -> str:
    declared = (f"clusters = {clusters}", "a.bootstrap.servers = a:1", "b.bootstrap.servers = b:1")
    return "\n".join((*declared, "a->b.enabled = true", *lines))


def terraform(**changes: object) -> str:
    resource = {
        "mode": "managed",
        "type": "kafka_topic",
        "name": "orders",
        "provider": 'provider["registry.terraform.io/mongey/kafka"].a',
        "instances": [{"attributes": {"name": "orders", "partitions": 3, "replication_factor": 1}}],
    }
    return json.dumps({"version": 4, "resources": [resource | changes]})


READ = {
    "numbers of thousands of digits": (
        "mm2",
        mm2("replication.factor = " + "9" * 10_000, "tasks.max = " + "1" * 5_000),
    ),
    "other replications": ("mm2", mm2("offset.storage.replication.factor = " + "9" * 5_000)),
    "intervals": ("mm2", mm2("refresh.topics.interval.seconds = " + "9" * 5_000)),
    "keys of dots": ("mm2", mm2(*(f"{'a.' * 5_000}{number} = x" for number in range(200)))),
    "an endless login": ("mm2", mm2("a.sasl.jaas.config = x " + 'u="\\\\' * 50_000)),
    "a provider of brackets": ("terraform", terraform(provider="provider[" * 50_000)),
    "a provider of modules": ("terraform", terraform(provider="module.a:" * 50_000)),
    "an address of brackets": (
        "terraform",
        json.dumps(
            {
                "planned_values": {
                    "root_module": {
                        "resources": [
                            {
                                "mode": "managed",
                                "type": "kafka_topic",
                                "address": "kafka_topic.x" + '["' * 100_000,
                                "values": {"name": "orders", "partitions": 3},
                            }
                        ]
                    }
                }
            }
        ),
    ),
    "escaped quotes": (
        "terraform",
        terraform(instances=[{"attributes": {"name": "orders", "x": '\\"' * 500_000}}]),
    ),
}


@pytest.mark.parametrize(("tool", "text"), READ.values(), ids=READ.keys())
def test_a_hostile_file_is_read_quickly(tool: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "hostile"
    file.write_text(text)
    began = time.process_time()
    converted = READERS[tool].read([file], "imported")
    assert converted.topology.flows or converted.topology.topics
    assert time.process_time() - began < SECONDS


def test_the_pairs_of_a_million_clusters_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(mm2(clusters=", ".join(f"c{number}" for number in range(1_000_000))))
    began = time.process_time()
    with pytest.raises(Failure, match="names 1,000,000 clusters, and at most 100 are converted"):
        READERS["mm2"].read([file], "imported")
    assert time.process_time() - began < SECONDS
