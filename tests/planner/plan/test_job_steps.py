"""Flows and jobs as steps: in which order, what they carry, what they say of files, who refuses them."""

import functools
from typing import Final

import pytest
from msgspec import structs

from planner.diff.fields import displayed
from planner.diff.record import LAUNCH
from planner.model.address import Address, Kind
from planner.model.diagnostic import ExitCode
from planner.model.plan import Plan
from planner.model.topology import Cluster, FileEndpoint, Flow, Policies, Selection, Topic, Topology
from planner.plan.steps import noted
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob, StopJob
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import CreateTopic
from planner.render.plan.json import json_text
from runtime.contract.client.stores import Setting
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.transform import TransformSpec
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.plan.jobs import (
    NOTHING,
    applied,
    at,
    changes,
    dead,
    destroyed,
    jobs_as,
    needs,
    plan,
    refused,
    steps_of,
    touched,
)

FAILED: Final = "failed_over"
PROMOTED: Final = "promoted"
X, Y = flow("x"), flow("y")
BACK = flow("x-back", source_cluster="dc2", destination_cluster="dc1", job="dc1", reverse_of="x")
GONE = structs.replace(X, state=FAILED)


def ids(made: Plan) -> list[str]:
    return [step.id for step in made.steps if not step.id.startswith(("create:topic", "own:topic"))]


def launched(made: Plan, job: str = "dc2") -> LaunchJob:
    (launch,) = [step for step in steps_of(made, LaunchJob) if step.job == job]
    return launch


def test_topics_first_then_the_job_then_its_flows_are_remembered() -> None:
    """The job is registered before it begins: an apply that is cut short leaves none that is unknown."""
    made = plan(topology(X))
    assert [step.id for step in steps_of(made, CreateTopic)] == ["create:topic.dc2.a"]
    launch = launched(made)
    assert (launch.cluster, launch.topics) == ("dc2", {"x": 1})
    assert launch.needs == ("create:topic.dc2.a", "own:job.dc2")
    assert [flow.name for flow in launch.spec.flows] == ["x"]
    owns = {step.id: step.needs for step in steps_of(made, Own)}
    assert (owns["own:flow.x"], owns["own:job.dc2"]) == (("launch:job.dc2",), ())
    assert plan(topology(X), applied(topology(X))).steps == ()


def test_a_mirror_is_grown_and_configured_before_its_job_copies() -> None:
    seen = observed(cluster(live("a", 6, retention_ms="5")), cluster(live("a", 2), name="dc2"))
    steps = [*needs(plan(topology(X), seen))["launch:job.dc2"]]
    assert steps == ["alter:topic.dc2.a", "grow:topic.dc2.a", "own:job.dc2"]


SHOP, BOTH, LOST = topology(X), topology(X, Y), topology(GONE)
MOVED = topology(X, structs.replace(Y, job="own"))
HOME = topology(X, structs.replace(BACK, state=PROMOTED))
ENDS = {"stop:job.dc2": "launch:job.dc2", "own:flow.x": "launch:job.dc2 stop:job.dc2"}
LEAVES = "stop:job.dc2 disown:flow.x disown:job.dc2 disown:topic.dc2.a"
TOLD = "reconfigure:job.dc2 stop:job.dc2 own:flow.x disown:job.dc2"
OVER = "reconfigure:job.dc2 stop:job.dc2"


@cases(
    "before died after steps waits",
    {
        "a dead job is only launched": ([SHOP], True, SHOP, "own:job.dc2 launch:job.dc2", {}),
        "the last flow takes its job": ([SHOP], False, topology(), LEAVES, {"disown:flow.x": "stop:job.dc2"}),
        "a failover is told first": ([SHOP], False, LOST, TOLD, {"stop:job.dc2": "reconfigure:job.dc2"}),
        "a dead job starts to fail over": ([SHOP], True, LOST, None, ENDS),
        "a dead job starts to promote": (
            [SHOP],
            True,
            topology(structs.replace(X, state=PROMOTED)),
            None,
            ENDS,
        ),
        "a flow that ended needs no job": ([SHOP, LOST], True, LOST, "", {}),
        "a flow leaves its job before another takes it": (
            [BOTH],
            False,
            MOVED,
            None,
            {"launch:job.own": "reconfigure:job.dc2"},
        ),
        "a flow returns after its way back": (
            [topology(GONE, BACK)],
            False,
            HOME,
            None,
            {"launch:job.dc2": "reconfigure:job.dc1 stop:job.dc1"},
        ),
        "the way back follows its flow": (
            [SHOP],
            False,
            topology(GONE, BACK),
            None,
            {"launch:job.dc1": OVER},
        ),
    },
)
def test_the_steps_of_jobs_in_their_order(before, died, after, steps, waits) -> None:
    seen = functools.reduce(lambda seen, shop: applied(shop, seen), before, NOTHING)
    made = plan(after, dead(seen) if died else seen)
    assert steps is None or ids(made) == steps.split()
    assert all(set(waited.split()) <= set(needs(made)[step]) for step, waited in waits.items())


def test_an_end_that_was_cut_is_waited_for_by_the_next_apply() -> None:
    """The job runs its new spec as soon as the end has begun: the spec alone does not show what is left."""
    ended, seen = topology(GONE, Y), applied(BOTH)
    begun = [step for step in plan(ended, seen).steps if isinstance(step, ReconfigureJob)]
    cut = jobs_as(simulate(begun, seen), ending=("x",))
    again = needs(plan(ended, cut))
    assert "reconfigure:job.dc2" in again["own:flow.x"]
    recorded = applied(ended, seen)
    assert plan(ended, recorded).steps == ()
    assert ids(plan(ended, jobs_as(recorded, ending=("x",)))) == ["reconfigure:job.dc2", "own:job.dc2"]


def test_a_job_that_was_registered_before_its_apply_was_cut_is_known_and_goes_with_all() -> None:
    begun = [step for step in plan(topology(X)).steps if step.id == "own:job.dc2"]
    seen = simulate(begun, NOTHING)
    assert "launch:job.dc2" in ids(plan(topology(X), seen))
    gone = destroyed(seen, topology(X))
    (stop,) = steps_of(gone, StopJob)
    assert (stop.job, stop.launch) == ("dc2", launched(plan(topology(X))).spec.launch)
    assert "disown:job.dc2" in ids(gone)


def test_a_job_that_a_newer_release_started_is_stopped_by_no_guessed_launcher() -> None:
    (entry,) = [step.entry for step in steps_of(plan(topology(X)), Own) if step.id == "own:job.dc2"]
    newer = structs.replace(entry, spec={**entry.spec, LAUNCH: '{"launcher": "newer"}'})
    (stop,) = steps_of(destroyed(at(NOTHING, "dc2", owned=(newer,)), topology(X)), StopJob)
    assert (stop.launch, list(stop.details(())), stop.values()) == (None, ["(not readable)"], {})


def test_the_history_notes_no_launcher_that_an_older_release_could_not_read() -> None:
    local, yarn = (
        StopJob("stop", Address(Kind.JOB, "dc2", "j"), "dc2", "j", launch=LaunchSpec(launcher=name))
        for name in ("local", "yarn")
    )
    assert noted(local) == noted(yarn)


def test_a_job_that_ends_is_told_nothing_of_clusters_that_it_would_refuse() -> None:
    moved = (
        Cluster("dc1", bootstrap="moved:9092"),
        Cluster("dc2", bootstrap="dc2:9092"),
        Cluster("dc3", bootstrap="dc3:9092"),
    )
    new = flow("new", source_cluster="dc3", state=FAILED)
    (told,) = steps_of(plan(topology(GONE, new, clusters=moved), applied(topology(X))), ReconfigureJob)
    spec = told.spec
    addresses = {name: one.bootstrap for name, one in spec.clusters.items()}
    assert addresses == {"dc1": "dc1:9092", "dc2": "dc2:9092"}
    assert [(one.name, one.state) for one in spec.flows] == [("x", "failed_over")]


def test_a_target_takes_the_job_of_its_flow_and_stopping_jobs_deletes_nothing() -> None:
    assert touched(plan(topology(X), NOTHING, "flow.x")) == {"flow.x", "job.dc2", "topic.dc2.a"}
    strict = topology(policies=Policies(max_deletes=0))
    assert plan(strict, applied(topology(X, Y))).diagnostics == ()


def test_refused_are_jobs_of_another_topology_and_secrets_in_a_spec() -> None:
    theirs = applied(replace(topology(X), name="billing"))
    assert {(code, exit_) for code, _, exit_ in refused(plan(topology(X), theirs))} == {
        ("owned", ExitCode.REFUSED)
    }

    def shop(password: Setting) -> Topology:
        secured = Cluster("dc1", bootstrap="dc1:9092", client={"sasl.password": password})
        return topology(X, clusters=(secured, Cluster("dc2", bootstrap="dc2:9092")))

    written = plan(shop("canary"))
    assert {(code, exit_) for code, _, exit_ in refused(written)} == {("job-secret", ExitCode.ERROR)}
    assert "canary" not in json_text(written)
    assert refused(plan(shop({"env": "PASSWORD"}))) == []


def ring(*, ended: bool) -> Topology:
    """Three flows round three clusters; once they ended, each with its way back."""
    ends = (("dc1", "dc2"), ("dc2", "dc3"), ("dc3", "dc1"))
    there = [flow(f"{a}-{b}", source_cluster=a, destination_cluster=b, job=b) for a, b in ends]
    back = [
        flow(f"{b}-{a}", source_cluster=b, destination_cluster=a, job=a, reverse_of=f"{a}-{b}")
        for a, b in ends
    ]
    flows = [*(structs.replace(one, state=PROMOTED) for one in there), *back] if ended else there
    return topology(*flows, clusters=[Cluster(name, bootstrap=f"{name}:9092") for name, _ in ends])


def test_jobs_of_a_ring_do_not_wait_for_each_other() -> None:
    """Each way back comes from a cluster that the job does not know: the job is restarted."""
    nothing = observed(cluster(live("a")), cluster(name="dc2"), cluster(name="dc3"))
    seen = applied(ring(ended=False), nothing)
    made = plan(ring(ended=True), seen)
    assert {step.job: step.needs for step in steps_of(made, LaunchJob)} == {
        name: (f"stop:job.{name}",) for name in ("dc1", "dc2", "dc3")
    }
    simulate(made.steps, seen)


# Flows with files: at home at their cluster, and told to the running job without a restart where that can be.

INTO = structs.replace(flow("to-lake"), destination_cluster="lake", job="lake", every_ms=5_000)
LAKE = FileEndpoint("lake", folder="/data/lake", format="raw")
PARQUET = structs.replace(LAKE, format="parquet")


def files(into: Flow = INTO, endpoint: FileEndpoint = LAKE, **more: object) -> Topology:
    shop = replace(topology(X), file_flows={into.name: into}, endpoints={endpoint.name: endpoint})
    return replace(shop, **more)


def test_the_job_of_a_flow_into_files_is_launched_at_its_source() -> None:
    settings = Topic("a", "dc1", config={"retention.ms": "86400000"})  # no topic that the flow fills
    made = plan(files(topics=(settings,)))
    launch = launched(made, "lake")
    assert (launch.cluster, launch.topics) == ("dc1", {"to-lake": 1})
    assert ([one.name for one in launch.spec.flows], launch.spec.declared) == (["to-lake"], {})
    shown = {field.key for field in changes(made)["flow.to-lake"].fields}
    assert shown == {"from", "to", "topics.include", "start", "state", "files"}
    assert not plan(files(), applied(files())).changed


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        (files(), files(structs.replace(INTO, every_ms=9_000)), ""),
        (files(), files(structs.replace(INTO, state="paused")), ""),
        (files(), files(endpoint=structs.replace(LAKE, folder="/data/other")), "files of flow.to-lake"),
        (
            files(structs.replace(INTO, transform=TransformSpec(where="offset > 5")), PARQUET),
            files(structs.replace(INTO, transform=TransformSpec(where="offset > 6")), PARQUET),
            "transform of flow.to-lake",
        ),
    ],
    ids=[
        "an interval",
        "a pause",
        "another folder, because no record decides where it writes",
        "a transform",
    ],
)
def test_a_change_is_told_to_the_running_job_or_restarts_it(before, after, restarted) -> None:
    made = plan(after, applied(before))
    job = changes(made)["job.lake"]
    assert (f"will be restarted: {restarted}" in job.reason) is bool(restarted)
    assert [step.job for step in steps_of(made, LaunchJob)] == (["lake"] if restarted else [])
    assert [step.job for step in steps_of(made, ReconfigureJob)] == ([] if restarted else ["lake"])


def test_a_flow_into_files_that_is_gone_leaves_them() -> None:
    made = plan(topology(X), applied(files()))
    assert "its files and their manifest stay: if it comes back it resumes from them" in (
        changes(made)["flow.to-lake"].notes
    )


KEYS: dict[str, Setting] = {
    "region": "eu-1",
    "access.key": {"env": "K"},
    "secret.key": {"file": "/run/s"},
}


@pytest.mark.parametrize(
    ("endpoint", "folder", "shown"),
    [
        (FileEndpoint("in", folder="/data/in", format="text"), "/data/in", "lines of text in /data/in"),
        (FileEndpoint("in", folder="/data/in", format="json"), "/data/in", "lines of json in /data/in"),
        (FileEndpoint("in", folder="/data/in", format="parquet"), "/data/in", "rows of Parquet in /data/in"),
        (
            FileEndpoint("in", folder="s3://bucket/in/", format="text", client=KEYS),
            "s3a://bucket/in",
            "lines of text in s3a://bucket/in",
        ),
    ],
)
def test_a_flow_from_files_says_what_it_reads_and_holds_no_secret(endpoint, folder, shown) -> None:
    read = flow("in", source_cluster="in", job="in", topics=Selection(to="inbox"))
    made = plan(files(read, endpoint, topics=(Topic("inbox", "dc2", 2),)))
    spec = launched(made, "in").spec
    (lines,) = [one.lines for one in spec.flows]
    assert lines is not None
    assert (lines.format, lines.folder) == (endpoint.format, folder)
    (said,) = [field.new for field in changes(made)["flow.in"].fields if field.key == "lines"]
    keys = ", access.key {env: K}, region eu-1, secret.key {file: /run/s}" if endpoint.client else ""
    assert displayed(("lines",), said) == f"{shown} into inbox, looked at every 1s{keys}"
    if endpoint.client:
        told = {"region": "eu-1", "access.key": {"env": "K"}, "secret.key": {"file": "/run/s"}}
        assert (lines.client, spec.stores) == (told, {"in": lines})
