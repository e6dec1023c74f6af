"""File endpoints, and the flows that go to them, as far as their text goes."""

from pathlib import Path

import pytest

from planner.config.language.scalars import spark_bytes
from planner.render.yaml import spark_size
from runtime.contract.spec.flow import Latest
from tests.planner.config.given import loaded

ENDPOINT = "endpoints:\n  lake: {file: /data/lake, format: raw}\n"
FLOW = "flows:\n  - {name: f, from: dc1, to: lake, topics: {include: [orders]}%s}\n"


def test_a_flow_to_an_endpoint_is_no_flow_between_clusters(tmp_path: Path) -> None:
    found = loaded(tmp_path, ENDPOINT + FLOW % ", every: 5s")
    assert found.flows == {}
    flow = found.file_flows["f"]
    assert (flow.destination_cluster, flow.every_ms, flow.job) == ("lake", 5_000, "lake")
    assert found.job_flows["f"].destination_cluster == "dc1"
    endpoint = found.endpoints["lake"]
    assert (endpoint.folder, endpoint.format, endpoint.layout) == ("/data/lake", "raw", "{topic}/")


def test_defaults_of_flows_reach_it_where_it_has_the_key(tmp_path: Path) -> None:
    defaults = "defaults: {flow: {start: latest, rename: 'x.{topic}', groups: {sync: true}}}\n"
    assert loaded(tmp_path, defaults + ENDPOINT + FLOW % "").file_flows["f"].start == Latest()


@pytest.mark.parametrize(("size", "bytes_"), [("64k", 1 << 16), ("128m", 128 << 20), ("2GB", 2 << 30)])
def test_sizes(size: str, bytes_: int) -> None:
    assert spark_bytes(size) == spark_bytes(spark_size(bytes_)) == bytes_


INBOX = "topics: [{name: inbox, cluster: dc1, partitions: 2}]\n"
LINES = "flows:\n  - {name: in, from: {file: ./in, format: json}, to: dc1, topics: {to: inbox}%s}\n"


def test_files_in_a_flow_become_an_endpoint_beside_the_topology(tmp_path: Path) -> None:
    found = loaded(tmp_path, INBOX + LINES % ", every: 2s")
    assert found.flows == {}
    flow, endpoint = found.file_flows["in"], found.endpoints["in"]
    assert (flow.source_cluster, flow.job, flow.topics.to, flow.every_ms) == ("in", "in", "inbox", 2_000)
    assert found.job_flows["in"].source_cluster == found.job_flows["in"].destination_cluster == "dc1"
    assert (endpoint.folder, endpoint.format) == (str(tmp_path / "in"), "json")
