"""An edit that says which hosts, files and variables a job uses needs a new start of the job."""

import pytest
from msgspec.structs import replace

from planner.diff.compare import changed_fields
from planner.diff.typed_values import reached_values
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.restarts import not_started_with
from runtime.contract.spec.selection import SelectionSpec

DC1 = ClusterSpec(bootstrap="dc1:1", id="one", client={"sasl.password": {"env": "DC1"}, "client.id": "x"})
DC2 = ClusterSpec(bootstrap="dc2:1")
DC3 = ClusterSpec(bootstrap="attacker:1", client={"sasl.password": {"file": "/etc/shadow"}})
STARTED = {"dc1": DC1, "dc2": DC2}


def edit(**clusters: ClusterSpec) -> JobSpec:
    flow = FlowSpec(name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=("x",)))
    return JobSpec(job="j", topology="t", destination="dc2", clusters=clusters, flows=[flow])


@pytest.mark.parametrize(
    ("clusters", "refused"),
    [
        ({"dc1": DC1, "dc2": DC2}, []),
        ({"dc2": DC2}, []),
        ({**STARTED, "dc3": DC3}, ["clusters.dc3"]),
        ({**STARTED, "dc1": replace(DC1, bootstrap="attacker:1")}, ["clusters.dc1.bootstrap"]),
        ({**STARTED, "dc2": replace(DC2, bootstrap="attacker:1")}, ["clusters.dc2.bootstrap"]),
        ({**STARTED, "dc1": replace(DC1, id="other")}, ["clusters.dc1.id"]),
        ({**STARTED, "dc1": replace(DC1, id=None)}, ["clusters.dc1.id"]),
        (
            {**STARTED, "dc1": replace(DC1, client={})},
            ["clusters.dc1.client.client.id", "clusters.dc1.client.sasl.password"],
        ),
        (
            {**STARTED, "dc1": replace(DC1, client={**DC1.client, "sasl.password": {"file": "/etc/shadow"}})},
            ["clusters.dc1.client.sasl.password"],
        ),
        (
            {**STARTED, "dc2": replace(DC2, client={"repl.oauthbearer.token.command": "id"})},
            ["clusters.dc2.client.repl.oauthbearer.token.command"],
        ),
    ],
)
def test_an_edit_brings_no_cluster_address_pin_or_client_setting(
    clusters: dict[str, ClusterSpec], refused: list[str]
) -> None:
    spec = edit(**clusters)
    assert not_started_with(STARTED, spec) == refused
    planned = changed_fields(reached_values(edit(**STARTED), clusters), reached_values(spec))
    assert bool(planned) is bool(refused)  # the planner plans a new start for the same edits
