"""A job that this machine would launch needs extras and folders here: a plan warns, and an apply refuses."""

from pathlib import Path

import pytest

from planner.model.address import job_address
from planner.model.diagnostic import Severity, error, warning
from planner.model.plan import Plan
from planner.plan.steps.jobs import LaunchJob
from planner.workflows.preflight import missing_here
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.flow import FlowState
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.selection import SelectionSpec
from tests.extras import without
from tests.fakes.states import inputs, observed, topology


def plan_of(
    folder: str, *, state: FlowState = "active", launcher: str = "local", reads: bool = False
) -> Plan:
    lines = LinesSpec(endpoint="lake", folder=folder, format="text", topic="orders") if reads else None
    files = None if reads else FilesSpec(endpoint="lake", folder=folder, format="json")
    topics = SelectionSpec(include=("orders",))
    flow = FlowSpec(
        name="f", source="b", destination="b", topics=topics, state=state, lines=lines, files=files
    )
    launch = LaunchSpec(launcher=launcher)  # type: ignore[arg-type]
    clusters = {"b": ClusterSpec(bootstrap="h:1")}
    spec = JobSpec(job="j", topology="t", destination="b", clusters=clusters, flows=[flow], launch=launch)
    return Plan(
        inputs(topology(), observed()),
        steps=(LaunchJob("launch", job_address("j"), "b", "j", spec),),
    )


@pytest.mark.parametrize("reads", [False, True])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, reads: bool) -> None:
    plan = plan_of(f"{tmp_path}/my lake", reads=reads)
    (found,) = missing_here(plan, error)
    assert found.severity is Severity.ERROR
    assert str(found) == (
        f"flow.f: the folder {tmp_path}/my lake is not there on this machine, which would launch job.j"
        f" — make it (mkdir -p '{tmp_path}/my lake') or mount it, on every machine of the job: repl does not"
        " make it, because a mount may be missing"
    )
    (said,) = missing_here(plan, warning)
    assert said.severity is Severity.WARNING


def test_what_is_there_or_elsewhere_or_does_not_run_needs_nothing(tmp_path: Path) -> None:
    for plan in (
        plan_of(str(tmp_path)),
        plan_of(f"{tmp_path}/none", state="paused"),
        plan_of(f"{tmp_path}/none", launcher="kubernetes"),
        plan_of("s3a://bucket/prefix"),
    ):
        assert missing_here(plan, error) == ()


def test_each_extra_that_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    without(monkeypatch, "pyspark", "obstore")
    spark, files = missing_here(plan_of("s3a://bucket/prefix"), error)
    assert str(spark).startswith(
        "job.j: this machine, which would launch the job, needs the extra spark, which is not installed — "
    )
    assert str(spark).endswith("pip install 'kafka-repl[spark]'")
    assert "needs the extra files" in str(files)
    assert missing_here(plan_of("s3a://bucket/prefix", launcher="kubernetes"), error) == ()
