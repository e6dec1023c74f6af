"""A saved plan is data of others: it names no file of the machine, and no address that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.model.address import job_address
from planner.model.diagnostic import Failure, SourceLocation
from planner.model.plan import Plan
from planner.model.topology import Cluster
from planner.plan.steps.jobs import LaunchJob
from planner.workflows.audit.access import endpoints_of
from planner.workflows.preflight import check_jobs
from runtime.contract.client.stores import Setting
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from tests.fakes.states import inputs, observed, topology

SILENT = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Somebody's home folder, with a key in it; beside it the folder with the plan."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text("a key")
    return tmp_path / "home"


def cluster(source: Path) -> Cluster:
    client: dict[str, Setting] = {"sasl.password": {"file": "id_rsa"}}
    return Cluster(
        "dc1", bootstrap=SILENT, client=client, source=SourceLocation(str(source / "t.yaml"), 1, 1)
    )


def plan(client: dict[str, Setting], bootstrap: str = SILENT) -> Plan:
    spec = JobSpec(
        job="dc1",
        topology="shop",
        destination="dc1",
        clusters={"dc1": ClusterSpec(bootstrap=bootstrap, client=client)},
        flows=[],
    )
    step = LaunchJob("1", job_address("dc1"), "dc1", "dc1", spec)
    return Plan(inputs(topology(), observed()), steps=(step,))


def test_a_plan_can_not_choose_the_folder_that_files_are_read_from(home: Path) -> None:
    plans = home.parent / "plans"

    assert endpoints_of([cluster(home)], trusted=[home.parent])["dc1"].settings == {"sasl.password": "a key"}
    with pytest.raises(Failure, match="in no folder that a topology may read"):
        endpoints_of([cluster(home)], trusted=[plans])
    with pytest.raises(Failure, match="in no folder that a topology may read"):
        endpoints_of([cluster(plans / ".." / "home")], trusted=[plans])


def test_nor_can_the_spec_of_a_job_in_it(home: Path) -> None:
    client: dict[str, Setting] = {"sasl.password": {"file": str(home / "id_rsa")}}

    check_jobs(plan(client), [home])
    with pytest.raises(Failure, match="in no folder that a topology may read"):
        check_jobs(plan(client), [home.parent / "plans"])


def test_a_job_in_it_goes_only_where_it_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "*.example.org")

    check_jobs(plan({}, "kafka.example.org:9092"), [tmp_path])
    with pytest.raises(Failure, match="not among the addresses"):
        check_jobs(plan({}, "evil.net:9092"), [tmp_path])
    with pytest.raises(Failure, match=r"plugin\.library\.paths"):
        check_jobs(plan({"plugin.library.paths": "/evil.so"}, "kafka.example.org:9092"), [tmp_path])
