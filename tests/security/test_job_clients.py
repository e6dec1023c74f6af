"""What a job connects with is held to the operator's lists: at its launch, and in a saved plan of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.model.address import job_address, topic_address
from planner.model.diagnostic import Failure, SourceLocation
from planner.model.plan import Plan
from planner.model.restore import RestoredTopic
from planner.model.topology import Cluster
from planner.plan.steps.jobs import LaunchJob
from planner.plan.steps.restores import RestoreRecords
from planner.workflows.audit.access import endpoints_of
from planner.workflows.preflight import check_jobs
from runtime.contract.client.stores import Setting
from runtime.contract.launching import LaunchError
from runtime.contract.records.manifest import BackupState
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.launch.launcher import check_references, referenced_variables
from tests.fakes.states import inputs, observed, topology

VARIABLES = {"REPL_ALLOW_BOOTSTRAP": "*.example.org", "REPL_ALLOW_ENV": "JOB_*"}
SECRETS = {"JOB_PASSWORD": "x", "JOB_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x"}
OURS: dict[str, Setting] = {"sasl.username": "repl", "sasl.password": {"env": "JOB_PASSWORD"}}
OTHER: dict[str, Setting] = {"sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
STORE: dict[str, Setting] = {
    "endpoint": "https://s3.example.org",
    "access.key": {"env": "JOB_KEY"},
    "secret.key": {"env": "JOB_PASSWORD"},
}
MADE_UP = "/proc/self/environ"


def job(
    bootstrap: str = "kafka.example.org:9092",
    client: dict[str, Any] | None = None,
    *,
    store: dict[str, Any] | None = None,
    syncs: RegistrySpec | None = None,
    decodes: RegistrySpec | None = None,
) -> JobSpec:
    """A job at one cluster; it writes files to a store, syncs a registry, or decodes records by one."""
    form = FormatSpec(format="avro", schema='"string"', registry=decodes)
    files = FilesSpec(endpoint="lake", folder="s3a://bucket", client=store or {}, format="raw")
    flow = FlowSpec(
        name="f",
        source="dc1",
        destination="dc1",
        topics=SelectionSpec(include=("a",)),
        files=files if store else None,
        transform=TransformSpec(key=form, where="true") if decodes else None,
    )
    return JobSpec(
        job="j",
        topology="shop",
        destination="dc1",
        clusters={"dc1": ClusterSpec(bootstrap=bootstrap, client=client or {})},
        flows=[flow],
        registries={"dc1": syncs} if syncs else {},
    )


def check_plan(spec: JobSpec, trusted: Path) -> None:
    step = LaunchJob("1", job_address("j"), "dc1", "dc1", spec)
    check_jobs(Plan(inputs(topology(), observed()), steps=(step,)), [trusted])


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**VARIABLES, **SECRETS}.items():
        monkeypatch.setenv(name, value)


EVIL = RegistrySpec(url="https://evil.net", client=OURS)
OTHER_SECRET = RegistrySpec(url="https://registry.example.org", client=OTHER)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (job("evil.net:9092"), "evil.net:9092 is not among the addresses"),
        (job(client=OTHER), "AWS_SECRET_ACCESS_KEY is not among"),
        (job(client={"sasl.password": {"file": MADE_UP}}), "in no folder that a topology may read"),
        (job(client={"plugin.library.paths": "/evil.so"}), r"plugin\.library\.paths"),
        (job(store={**STORE, "endpoint": "https://evil.net"}), "evil.net:443 is not among the addresses"),
        (job(store={**STORE, "secret.key": {"file": MADE_UP}}), "in no folder that a topology may read"),
        (job(store={**STORE, "proxy": "x"}), "no setting of an object store"),
        *((job(syncs=one), why) for one, why in ((EVIL, "evil.net:443"), (OTHER_SECRET, "AWS_SECRET"))),
        *((job(decodes=one), why) for one, why in ((EVIL, "evil.net:443"), (OTHER_SECRET, "AWS_SECRET"))),
    ],
)
def test_no_job_is_launched_with_a_client_that_is_not_allowed(
    spec: JobSpec, why: str, tmp_path: Path
) -> None:
    """Its processes may run where the operator's lists are not: on a Spark cluster, or in a pod."""
    with pytest.raises(LaunchError, match=why):
        check_references(spec, {**VARIABLES, **SECRETS})
    with pytest.raises(Failure, match=why):
        check_plan(spec, tmp_path)


def test_what_is_allowed_is_launched_once_its_secrets_are_there(tmp_path: Path) -> None:
    ours = RegistrySpec(url="https://registry.example.org", client=OURS)
    spec = job(client=OURS, store=STORE, syncs=ours, decodes=ours)
    assert referenced_variables(spec) == ["JOB_KEY", "JOB_PASSWORD"]
    check_references(spec, {**VARIABLES, **SECRETS})
    check_plan(spec, tmp_path)
    with pytest.raises(LaunchError, match=r"lake: access\.key wants the environment variable JOB_KEY"):
        check_references(spec, VARIABLES)


def test_a_saved_plan_can_not_choose_the_folder_that_files_are_read_from(tmp_path: Path) -> None:
    plans, home = tmp_path / "plans", tmp_path / "home"
    for folder in (plans, home):
        folder.mkdir()
    (home / "id_rsa").write_text("a key")

    def client_of(source: Path) -> dict[str, str]:
        client: dict[str, Setting] = {"sasl.password": {"file": "id_rsa"}}
        at = SourceLocation(str(source / "t.yaml"), 1, 1)
        cluster = Cluster("dc1", bootstrap="kafka.example.org:9092", client=client, source=at)
        return dict(endpoints_of([cluster], trusted=[trusted])["dc1"].settings)

    trusted = tmp_path
    assert client_of(home) == {"sasl.password": "a key"}
    spec = job(client={"sasl.password": {"file": str(home / "id_rsa")}})
    check_plan(spec, home)
    trusted = plans
    for refused in (
        lambda: client_of(home),
        lambda: client_of(plans / ".." / "home"),
        lambda: check_plan(spec, plans),
    ):
        with pytest.raises(Failure, match="in no folder that a topology may read"):
            refused()


def test_the_store_of_a_restore_is_held_to_them_too(tmp_path: Path) -> None:
    def check(folder: str, client: dict[str, Any]) -> None:
        step = RestoreRecords(
            id="restore:x",
            address=topic_address("dc1", "a"),
            cluster="dc1",
            topic="a",
            restored=RestoredTopic("a", "a", "", 1, 1, {}, (1,), 1),
            backup=BackupState(folder=folder, flow="f", commit=1, digest="", client=client),
        )
        check_jobs(Plan(inputs(topology(), observed()), steps=(step,)), [tmp_path])

    check("s3a://bucket/a", STORE)
    check("/data/lake", {})  # a folder of this machine has no address
    with pytest.raises(Failure, match="among the addresses"):
        check("s3a://bucket/a", {**STORE, "endpoint": "https://evil.net"})
    with pytest.raises(Failure, match="in no folder that a topology may read"):
        check("s3a://bucket/a", {**STORE, "secret.key": {"file": "/etc/shadow"}})
