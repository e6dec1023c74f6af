"""Which jobs may have a standby, and by which spec it starts one."""

import re
from pathlib import Path, PurePath

import pytest
from msgspec.structs import replace

from planner.config import load
from planner.graph.jobs import standby_spec
from planner.model.diagnostic import Failure
from planner.workflows.requests import StandbyRequest
from planner.workflows.standby import standby
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec, MetricsSpec
from runtime.contract.spec.selection import SelectionSpec

SHOP = """
apiVersion: repl/v1
name: shop
clusters:
  dc1: {bootstrap: "dc1:9092", client: {sasl.password: {file: secrets/dc1}}}
  dc2: {bootstrap: "dc2:9092"}
flows: [{name: there, from: dc1, to: dc2, topics: {include: [orders]}}]
jobs: {dc2: {standby: 1, slots: 2, metrics: {port: 9500}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop.yaml"
    made.write_text(SHOP)
    return made


def flow(topic: str) -> FlowSpec:
    return FlowSpec(name="there", source="dc1", destination="dc2", topics=SelectionSpec(include=(topic,)))


def running(*clusters: str) -> JobSpec:
    """What a record of the status topic says: an apply has changed the flow since."""
    return JobSpec(
        job="dc2",
        topology="shop",
        destination="dc2",
        clusters={name: ClusterSpec(bootstrap="elsewhere:9092", id=f"id-{name}") for name in clusters},
        flows=[flow("orders.*")],
        slots=3,
        launch=LaunchSpec(options={"python": "/tmp/elsewhere"}, conf={"spark.a": "b"}),
        metrics=MetricsSpec(host="0.0.0.0", port=1),
    )


def test_flows_are_those_that_run_and_clusters_those_of_this_topology(file: Path) -> None:
    found = standby_spec(running("dc1", "dc2"), load(file), PurePath("/here"))
    assert (found.flows, found.slots) == ([flow("orders.*")], 3)
    assert found.launch == LaunchSpec()
    assert found.metrics == MetricsSpec(port=9500)
    assert found.clusters["dc2"] == ClusterSpec(bootstrap="dc2:9092", id="id-dc2")
    dc1 = found.clusters["dc1"]
    assert (dc1.bootstrap, dc1.id) == ("dc1:9092", "id-dc1")
    assert str(dc1.client["sasl.password"]).endswith("/./secrets/dc1'}")


def test_what_is_read_of_a_folder_is_what_this_topology_says(file: Path) -> None:
    """The running spec comes from a record, and no record decides what a job reads."""
    flows = SHOP[SHOP.index("flows:") :]
    into = "flows: [{name: there, from: {file: /data/in, format: text}, to: dc2, topics: {to: orders}}]\n"
    file.write_text(SHOP.replace(flows, into))
    lines = LinesSpec(endpoint="there", folder="/etc", format="text", topic="orders", recursive=True)
    spec = replace(running("dc2"), job="there", flows=[replace(flow("orders"), lines=lines)])
    (found,) = standby_spec(spec, load(file), PurePath("/here")).flows
    assert found.lines == replace(lines, folder="/data/in", recursive=False)
    store = replace(lines, folder="s3a://evil/in", client={"endpoint": "https://evil.net"})
    (found,) = standby_spec(
        replace(spec, flows=[replace(flow("orders"), lines=store)]), load(file), PurePath("/here")
    ).flows
    assert found.lines == replace(lines, folder="/data/in", recursive=False)


def test_a_cluster_that_this_topology_lacks_is_not_reached(file: Path) -> None:
    with pytest.raises(KeyError, match="dc9"):
        standby_spec(running("dc2", "dc9"), load(file), PurePath("/here"))


@pytest.mark.parametrize(
    ("job", "edit", "why"),
    [
        ("dc3", ("", ""), "no flow of this topology runs in a job dc3 — its jobs: dc2"),
        ("dc2", ("standby: 1, ", ""), "the job dc2 declares no standby — add jobs: {dc2: {standby: 1}}"),
    ],
)
def test_what_has_no_standby_says_so(file: Path, job: str, edit: tuple[str, str], why: str) -> None:
    file.write_text(SHOP.replace(*edit) if edit[0] else SHOP)
    with pytest.raises(Failure, match=re.escape(why)):
        standby(StandbyRequest(file, job=job), print)
