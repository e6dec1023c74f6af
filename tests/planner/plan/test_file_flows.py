"""Flows with files as steps: at home at their cluster, and told to the running job without a restart."""

from dataclasses import replace

import pytest

from planner.diff.values import displayed
from planner.model.plan import Plan, Value
from planner.model.step import LaunchJob, ReconfigureJob
from planner.model.topology import (
    FileEndpoint,
    FileFormat,
    Flow,
    FlowState,
    SecretRef,
    Selection,
    Topic,
    Topology,
    Transform,
)
from planner.plan.agreement import disagreements
from runtime.contract.spec import jobspec
from tests.fakes.states import flow, topology
from tests.planner.plan.jobs import applied, plan

INTO = replace(flow("to-lake"), destination_cluster="lake", job="lake", every_ms=5_000)
LAKE = FileEndpoint("lake", "/data/lake", FileFormat.RAW)


def files(into: Flow = INTO, endpoint: FileEndpoint = LAKE) -> Topology:
    return replace(topology(flow("x")), file_flows={"to-lake": into}, endpoints={"lake": endpoint})


def changed(made: Plan) -> dict[str, Value]:
    return {f"{one.address}.{field.key}": field.new for one in made.changes for field in one.fields}


def test_the_job_is_launched_at_the_source_and_the_plan_agrees_with_its_steps() -> None:
    made = plan(files())
    launch = next(step for step in made.steps if isinstance(step, LaunchJob) and step.job == "lake")
    assert (launch.cluster, launch.topics) == ("dc1", {"to-lake": 1})
    assert [one.name for one in jobspec.decode(launch.spec).flows] == ["to-lake"]
    assert disagreements(made) == ()
    fields = {key for key in changed(made) if key.startswith("flow.to-lake.")}
    assert fields == {
        f"flow.to-lake.{key}" for key in ("from", "to", "topics.include", "start", "state", "files")
    }


def test_once_applied_nothing_is_left_to_do() -> None:
    assert not plan(files(), applied(files())).changed


def test_an_interval_is_told_to_the_running_job() -> None:
    made = plan(files(replace(INTO, every_ms=9_000)), applied(files()))
    assert [step.job for step in made.steps if isinstance(step, ReconfigureJob)] == ["lake"]
    assert not [step for step in made.steps if isinstance(step, LaunchJob)]
    assert disagreements(made) == ()


def test_another_folder_restarts_the_job_because_no_record_decides_where_it_writes() -> None:
    made = plan(files(endpoint=replace(LAKE, folder="/data/other")), applied(files()))
    (job,) = (one for one in made.changes if str(one.address) == "job.lake")
    assert "will be restarted: files of flow.to-lake" in job.reason
    assert disagreements(made) == ()


def test_a_transform_is_shown_and_another_one_restarts_the_job() -> None:
    lake = replace(LAKE, format=FileFormat.PARQUET)
    masked = files(replace(INTO, transform=Transform(where="offset > 5", drop=("value.card",))), lake)
    made = plan(masked)
    assert changed(made)["flow.to-lake.transform"] == {"drop": ("value.card",), "where": "offset > 5"}
    launch = next(step for step in made.steps if isinstance(step, LaunchJob) and step.job == "lake")
    (spec,) = jobspec.decode(launch.spec).flows
    assert spec.transform is not None
    assert (spec.transform.where, spec.transform.drop) == ("offset > 5", ["value.card"])
    assert disagreements(made) == ()
    assert not plan(masked, applied(masked)).changed
    made = plan(files(replace(INTO, transform=Transform(where="offset > 6")), lake), applied(masked))
    (job,) = (one for one in made.changes if str(one.address) == "job.lake")
    assert "will be restarted: transform of flow.to-lake" in job.reason
    assert disagreements(made) == ()


def test_a_pause_changes_its_state_alone() -> None:
    made = plan(files(replace(INTO, state=FlowState.PAUSED)), applied(files()))
    assert changed(made)["flow.to-lake.state"] == "paused"
    assert disagreements(made) == ()


def test_a_flow_that_is_gone_leaves_its_files() -> None:
    made = plan(topology(flow("x")), applied(files()))
    (gone,) = (one for one in made.changes if str(one.address) == "flow.to-lake")
    assert "its files and their manifest stay: if it comes back it resumes from them" in gone.notes
    assert disagreements(made) == ()


def test_a_forged_end_of_a_flow_is_refused() -> None:
    made = plan(files())
    forged = tuple(replace(one, endpoint="" if one.endpoint else "lake") for one in made.flows)
    assert disagreements(replace(made, flows=forged)) != ()


def test_a_topic_with_settings_at_the_source_is_none_that_the_flow_fills() -> None:
    declared = Topic("orders", "dc1", config={"retention.ms": "86400000"})
    made = plan(replace(files(), topics=(declared,)))
    launch = next(step for step in made.steps if isinstance(step, LaunchJob) and step.job == "lake")
    assert jobspec.decode(launch.spec).declared == {}
    assert disagreements(made) == ()


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (FileFormat.TEXT, "lines of text in /data/in into inbox, looked at every 1s"),
        (FileFormat.JSON, "lines of json in /data/in into inbox, looked at every 1s"),
        (FileFormat.PARQUET, "rows of Parquet in /data/in into inbox, looked at every 1s"),
    ],
)
def test_a_flow_from_files_says_what_it_reads(form: FileFormat, shown: str) -> None:
    read = replace(flow("in"), source_cluster="in", job="in", topics=Selection(to="inbox"))
    declared = replace(
        topology(flow("x")),
        topics=(Topic("inbox", "dc2", 2),),
        file_flows={"in": read},
        endpoints={"in": FileEndpoint("in", "/data/in", form)},
    )
    made = plan(declared)
    launch = next(step for step in made.steps if isinstance(step, LaunchJob) and step.job == "in")
    lines = jobspec.decode(launch.spec).flows[0].lines
    assert lines is not None
    assert (lines.format, lines.folder) == (form, "/data/in")
    (field,) = (
        field
        for one in made.changes
        if str(one.address) == "flow.in"
        for field in one.fields
        if field.key == "lines"
    )
    assert displayed(("lines",), field.new) == shown
    assert disagreements(made) == ()


def test_a_flow_from_a_bucket_says_how_it_is_reached_and_holds_no_secret() -> None:
    read = replace(flow("in"), source_cluster="in", job="in", topics=Selection(to="inbox"))
    client: dict[str, str | SecretRef] = {
        "region": "eu-1",
        "access.key": SecretRef("env", "K"),
        "secret.key": SecretRef("file", "/run/s"),
    }
    declared = replace(
        topology(flow("x")),
        topics=(Topic("inbox", "dc2", 2),),
        file_flows={"in": read},
        endpoints={"in": FileEndpoint("in", "s3://bucket/in/", FileFormat.TEXT, client=client)},
    )
    made = plan(declared)
    launch = next(step for step in made.steps if isinstance(step, LaunchJob) and step.job == "in")
    spec = jobspec.decode(launch.spec)
    lines = spec.flows[0].lines
    assert lines is not None
    assert lines.folder == "s3a://bucket/in"
    assert lines.client == {"region": "eu-1", "access.key": {"env": "K"}, "secret.key": {"file": "/run/s"}}
    assert spec.stores == {"in": lines.client}
    (field,) = (one for change in made.changes for one in change.fields if one.key == "lines")
    assert displayed(("lines",), field.new) == (
        "lines of text in s3a://bucket/in into inbox, looked at every 1s, access.key {env: K}, region eu-1,"
        " secret.key {file: /run/s}"
    )
    assert disagreements(made) == ()
