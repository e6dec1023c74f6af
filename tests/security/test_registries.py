"""Schema registries: no topology, plan file or record has a job send credentials to another registry."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest
from msgspec.structs import replace

from planner.config import load
from planner.graph.jobs import standby_spec
from planner.model.address import job_address
from planner.model.diagnostic import ExitCode, Failure
from planner.model.plan import Plan
from planner.plan.steps.jobs import LaunchJob
from planner.workflows.preflight import check_jobs
from runtime.contract.client.stores import Setting
from runtime.contract.launching import LaunchError
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.launch.launcher import check_references
from tests.fakes.states import inputs, observed, topology
from tests.security.conftest import Command

PASSWORD: dict[str, Setting] = {"sasl.username": "repl", "sasl.password": {"env": "REGISTRY_PASSWORD"}}
OURS = RegistrySpec(url="https://registry.example.org", client=PASSWORD)
ELSEWHERE = RegistrySpec(url="https://evil.net", client=PASSWORD)
OTHER_SECRET = RegistrySpec(
    url="https://registry.example.org", client={"sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
)
SHOP = """
apiVersion: repl/v1
name: shop
clusters: {dc1: {bootstrap: "127.0.0.1:1"}, dc2: {bootstrap: "127.0.0.1:1"}}
flows:
  - name: there
    from: dc1
    to: dc2
    topics: {include: [orders]}
    transform:
      value:
        format: avro
        schema: '"string"'
        registry: {url: "%s", client: {sasl.username: repl, sasl.password: {env: %s}}}
      where: topic = 'orders'
jobs: {dc2: {standby: 1}}
"""


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "127.0.0.1,registry.example.org:443")
    monkeypatch.setenv("REPL_ALLOW_ENV", "REGISTRY_*")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    monkeypatch.setenv("REGISTRY_PASSWORD", "a password")


def job(registry: RegistrySpec, *, syncs: bool) -> JobSpec:
    """A job that reads schemas of a registry: to sync them, or for a transform."""
    form = FormatSpec(format="avro", schema='"string"', registry=registry)
    flow = FlowSpec(
        name="there",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=("orders",)),
        transform=None if syncs else TransformSpec(key=form, where="true"),
    )
    return JobSpec(
        job="dc2",
        topology="shop",
        destination="dc2",
        clusters={name: ClusterSpec(bootstrap="127.0.0.1:1") for name in ("dc1", "dc2")},
        flows=[flow],
        registries={"dc1": registry} if syncs else {},
    )


@pytest.mark.parametrize(
    ("url", "variable", "why"),
    [
        ("https://evil.net", "REGISTRY_PASSWORD", "evil.net:443 is not among the addresses"),
        ("https://registry.example.org:8081", "REGISTRY_PASSWORD", "example.org:8081 is not among"),
        ("https://registry.example.org", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY is not among"),
    ],
)
@pytest.mark.parametrize("line", ["plan {}", "apply {}", "try there --sample {}.jsonl --path {}"])
def test_a_transform_asks_no_registry_that_this_machine_does_not_allow(
    line: str, url: str, variable: str, why: str, tmp_path: Path, command: Command
) -> None:
    """A trial gives Spark the variables of the topology alone, so what is allowed is checked before."""
    file = tmp_path / "t.yaml"
    file.write_text(SHOP % (url, variable))
    Path(f"{file}.jsonl").write_text('{"topic": "orders", "value": "x"}\n')
    ended = command(*line.format(file, file).split())
    assert ended.code == ExitCode.ERROR
    assert why in ended.err


@pytest.mark.parametrize("syncs", [True, False])
def test_no_job_is_launched_with_a_registry_that_is_not_allowed(tmp_path: Path, *, syncs: bool) -> None:
    """Its processes may run where the operator's lists are not: on a Spark cluster, or in a pod."""
    environ = {
        "REPL_ALLOW_BOOTSTRAP": "127.0.0.1,registry.example.org",
        "REPL_ALLOW_ENV": "REGISTRY_*",
        "REGISTRY_PASSWORD": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }

    def check_plan(registry: RegistrySpec) -> None:
        text = jobspec.encode(job(registry, syncs=syncs)).decode()
        step = LaunchJob("1", job_address("dc2"), "dc2", "dc2", text)
        check_jobs(Plan(inputs(topology(), observed()), steps=(step,)), [tmp_path])

    check_references(job(OURS, syncs=syncs), environ)
    check_plan(OURS)
    for registry, why in ((ELSEWHERE, r"evil\.net:443 is not among"), (OTHER_SECRET, "SECRET_ACCESS_KEY is")):
        with pytest.raises(LaunchError, match=why):
            check_references(job(registry, syncs=syncs), environ)
        with pytest.raises(Failure, match=why):
            check_plan(registry)


@pytest.mark.parametrize("registry", [ELSEWHERE, OTHER_SECRET])
def test_a_record_sends_no_standby_to_another_registry(registry: RegistrySpec, tmp_path: Path) -> None:
    """The spec that a job runs by is a record of __repl.status."""
    file = tmp_path / "t.yaml"
    file.write_text(SHOP % (OURS.url, "REGISTRY_PASSWORD"))
    running = job(registry, syncs=False)
    with pytest.raises(KeyError, match=r"the registry of flow\.there"):  # this topology has one of the value
        standby_spec(running, load(file), PurePath("/here"))

    (flow,) = running.flows
    assert flow.transform is not None
    values = replace(flow.transform, value=flow.transform.key, key=FormatSpec())
    running = replace(running, flows=[replace(flow, transform=values)])
    (found,) = standby_spec(running, load(file), PurePath("/here")).flows
    assert found.transform == replace(values, value=replace(values.value, registry=OURS))
