"""Every field of a job spec is compared with what the plan shows: one that is added later must be, too."""

from typing import Any

import msgspec
import pytest

from planner.model.step import LaunchJob
from planner.plan.agreement import disagreements
from runtime.contract.spec import jobspec
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.jobspec import (
    ClusterSpec,
    ConfigsSpec,
    CopySettings,
    FlowSpec,
    GroupsSpec,
    InternalSpec,
    JobSpec,
    Latest,
    LaunchSpec,
    OriginCommitsSpec,
    ProtectionSpec,
    SelectionSpec,
    TemplateRule,
)
from runtime.contract.spec.transform import TransformSpec
from tests.security.plans import honest, with_step

LAUNCH = "launch:job.other"
JOB: dict[str, Any] = {
    "version": 2,
    "job": "payments",
    "topology": "billing",
    "destination": "dc2",
    "clusters": {},
    "flows": [],
    "slots": 99,
    "launch": LaunchSpec(master="local[99]"),
    "copy": CopySettings(lanes=99),
    "internal": InternalSpec(replication=1),
    "routes": [],
    "declared": {"salaries": ["retention.ms"]},
    "metrics_host": "0.0.0.0",
    "metrics_port": 1,
    "protection": ProtectionSpec(principal="User:evil"),
    "metrics_partitions": 1,
}
FLOW: dict[str, Any] = {
    "name": "payments",
    "source": "dc1",
    "destination": "dc2",
    "topics": SelectionSpec(include=["salaries"]),
    "rename": TemplateRule(text="evil.{topic}"),
    "provenance": "batch",
    "native_only": True,
    "shared": True,
    "start": Latest(),
    "restart_from": Latest(),
    "state": "paused",
    "reverse_of": "x",
    "promoted": ["only2"],
    "configs": ConfigsSpec(sync="off"),
    "groups": GroupsSpec(sync=False),
    "replication": 9,
    "transform": TransformSpec(where="false"),
    "files": FilesSpec(endpoint="evil", folder="/etc", format="raw"),
    "lines": LinesSpec(endpoint="evil", folder="/etc", format="text", topic="stolen"),
    "acls_sync": True,
    "protect": "acl",
    "rpo_ms": 1,
    "rate_limit": 1,
    "follow_every_ms": 1,
    "heartbeats_every_ms": 1,
    "checkpoints_every_ms": 1,
    "origin_commits": OriginCommitsSpec(group="evil"),
    "on_source_delete": "delete",
    "on_data_loss": "skip",
}
LAUNCHED: dict[str, Any] = {
    "launcher": "standalone",
    "master": "spark://evil:7077",
    "memory": "99g",
    "conf": {"spark.jars": "/tmp/evil.jar"},
    "options": {"python": "/tmp/evil"},
}
REACHED: dict[str, Any] = {"bootstrap": "evil:9092", "id": "evil", "client": {"client.id": "evil"}}


def spec() -> JobSpec:
    step = next(one for one in honest().steps if one.id == LAUNCH)
    assert isinstance(step, LaunchJob)
    return jobspec.decode(step.spec)


def test_no_field_is_left_out() -> None:
    """A new field of a spec needs a value here, and so its comparison in planner.plan."""
    for values, kind in ((JOB, JobSpec), (FLOW, FlowSpec), (LAUNCHED, LaunchSpec), (REACHED, ClusterSpec)):
        assert values.keys() == set(kind.__struct_fields__)


def refused(edited: JobSpec) -> bool:
    assert edited != spec()
    return bool(disagreements(with_step(honest(), LAUNCH, spec=jobspec.encode(edited).decode())))


@pytest.mark.parametrize("field", JOB)
def test_a_field_of_the_job(field: str) -> None:
    assert refused(msgspec.structs.replace(spec(), **{field: JOB[field]}))


@pytest.mark.parametrize("field", FLOW)
def test_a_field_of_a_flow(field: str) -> None:
    (flow,) = spec().flows
    edited = msgspec.structs.replace(flow, **{field: FLOW[field]})

    assert refused(msgspec.structs.replace(spec(), flows=[edited]))


@pytest.mark.parametrize("field", LAUNCHED)
def test_how_it_is_launched(field: str) -> None:
    launch = msgspec.structs.replace(spec().launch, **{field: LAUNCHED[field]})

    assert refused(msgspec.structs.replace(spec(), launch=launch))


@pytest.mark.parametrize("field", REACHED)
@pytest.mark.parametrize("cluster", ["dc1", "dc2"])
def test_how_a_cluster_is_reached(cluster: str, field: str) -> None:
    reached = msgspec.structs.replace(spec().clusters[cluster], **{field: REACHED[field]})

    assert refused(msgspec.structs.replace(spec(), clusters={**spec().clusters, cluster: reached}))
