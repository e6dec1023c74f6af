"""Flows and jobs as steps: in which order, what they carry, and when a saved plan is stale."""

from dataclasses import replace

import pytest

from planner.diff import diff, diff_destroy
from planner.graph import expand
from planner.model.desired import Desired
from planner.model.diagnostic import ExitCode
from planner.model.observed import Observed
from planner.model.plan import Plan
from planner.model.step import LaunchJob, Own, ReconfigureJob, StopJob
from planner.model.topology import Cluster, FlowState, Job, Policies, SecretRef, Topology
from planner.plan import make_plan, stale
from planner.render.plan.json import json_text
from runtime.contract.spec import jobspec
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import NOTHING, applied, dead, plan

X, Y = flow("x"), flow("y")


def ids(made: Plan) -> list[str]:
    return [step.id for step in made.steps if not step.id.startswith(("create:topic", "own:topic"))]


def test_topics_first_then_the_job_then_its_flows_are_remembered() -> None:
    """The job itself before it begins: an apply that is cut short leaves none that nobody knows of."""
    made = plan(topology(X))

    assert [step.id for step in made.steps if step.id.startswith("create:")] == ["create:topic.dc2.a"]
    launch = next(step for step in made.steps if isinstance(step, LaunchJob))
    assert (launch.cluster, launch.job, launch.topics) == ("dc2", "dc2", {"x": 1})
    assert launch.needs == ("create:topic.dc2.a", "own:job.dc2")
    assert [flow.name for flow in jobspec.decode(launch.spec).flows] == ["x"]
    books = {step.id: step.needs for step in made.steps if isinstance(step, Own)}
    assert (books["own:flow.x"], books["own:job.dc2"]) == (("launch:job.dc2",), ())


def test_nothing_to_do_after_it() -> None:
    assert plan(topology(X), applied(topology(X))).steps == ()


def test_a_dead_job_is_only_launched() -> None:
    assert ids(plan(topology(X), dead(applied(topology(X))))) == ["own:job.dc2", "launch:job.dc2"]


def test_one_that_an_apply_began_before_it_was_cut_short_is_known_and_goes_with_all() -> None:
    begun = [step for step in plan(topology(X)).steps if step.id == "own:job.dc2"]
    seen = simulate(begun, NOTHING)

    assert "launch:job.dc2" in ids(plan(topology(X), seen))
    gone = make_plan(Desired("shop"), seen, diff_destroy(seen, topology(X)), topology(X))
    (stop,) = [step for step in gone.steps if isinstance(step, StopJob)]
    assert (stop.job, bool(stop.launch)) == ("dc2", True)
    assert "disown:job.dc2" in ids(gone)


def test_an_edit_is_told() -> None:
    made = plan(topology(replace(X, rate_limit=5), Y), applied(topology(X, Y)))

    told = next(step for step in made.steps if isinstance(step, ReconfigureJob))
    assert jobspec.decode(told.spec).flow("x").rate_limit == 5
    assert "own:flow.x" in ids(made)
    assert "own:flow.y" not in ids(made)


def test_a_new_start_is_a_stop_and_a_launch() -> None:
    shop = replace(topology(X), jobs={"dc2": Job("dc2", memory="2g")})

    made = plan(shop, applied(topology(X)))

    launch = next(step for step in made.steps if isinstance(step, LaunchJob))
    assert "stop:job.dc2" in launch.needs
    stop = next(step for step in made.steps if isinstance(step, StopJob))
    assert "2g" not in stop.launch  # as the one that runs was started


def test_the_last_flow_leaves_with_its_job() -> None:
    made = plan(topology(), applied(topology(X)))

    assert ids(made) == ["stop:job.dc2", "disown:flow.x", "disown:job.dc2", "disown:topic.dc2.a"]
    books = {step.id: step.needs for step in made.steps}
    assert books["disown:flow.x"] == ("stop:job.dc2",)


def test_a_failover_is_told_before_its_job_goes() -> None:
    made = plan(topology(replace(X, state=FlowState.FAILED_OVER)), applied(topology(X)))

    assert ids(made) == ["reconfigure:job.dc2", "stop:job.dc2", "own:flow.x", "disown:job.dc2"]
    assert next(step for step in made.steps if isinstance(step, StopJob)).needs == ("reconfigure:job.dc2",)


def test_a_job_that_ends_is_told_nothing_of_clusters_that_it_would_refuse() -> None:
    before = topology(X, clusters=(Cluster("dc1", "dc1:9092"), Cluster("dc2", "dc2:9092")))
    moved = (Cluster("dc1", "moved:9092"), Cluster("dc2", "dc2:9092"), Cluster("dc3", "dc3:9092"))
    new = flow("new", source_cluster="dc3", state=FlowState.FAILED_OVER)
    after = topology(replace(X, state=FlowState.FAILED_OVER), new, clusters=moved)

    told = next(step for step in plan(after, applied(before)).steps if isinstance(step, ReconfigureJob))

    spec = jobspec.decode(told.spec)
    assert {name: one.bootstrap for name, one in spec.clusters.items()} == {
        "dc1": "dc1:9092",
        "dc2": "dc2:9092",
    }
    assert [(one.name, one.state) for one in spec.flows] == [("x", "failed_over")]


@pytest.mark.parametrize("state", [FlowState.FAILED_OVER, FlowState.PROMOTED])
def test_where_the_job_is_dead_a_new_one_ends_the_flow(state: FlowState) -> None:
    made = plan(topology(replace(X, state=state)), dead(applied(topology(X))))

    needs = {step.id: step.needs for step in made.steps}
    assert needs["stop:job.dc2"] == ("launch:job.dc2",)
    assert needs["own:flow.x"] == ("launch:job.dc2", "stop:job.dc2")


def test_a_flow_that_ended_needs_no_job() -> None:
    ended = topology(replace(X, state=FlowState.FAILED_OVER))

    assert plan(ended, dead(applied(ended, applied(topology(X))))).steps == ()


def test_a_flow_leaves_its_old_job_before_another_takes_it() -> None:
    made = plan(topology(X, replace(Y, job="own")), applied(topology(X, Y)))

    launch = next(step for step in made.steps if isinstance(step, LaunchJob))
    assert launch.job == "own"
    assert "reconfigure:job.dc2" in launch.needs


def test_targeting_a_flow_takes_its_job() -> None:
    shop, seen = topology(X), observed(cluster(live("a")), cluster(name="dc2"))
    desired = expand(shop, seen)
    made = make_plan(desired, seen, diff(desired, seen, shop), shop, targets=("flow.x",))

    assert {str(one.address) for one in made.changes} == {"flow.x", "job.dc2", "topic.dc2.a"}


def test_stopping_jobs_deletes_nothing() -> None:
    shop = topology(policies=Policies(max_deletes=0))

    assert [one.code for one in plan(shop, applied(topology(X, Y))).diagnostics] == []


def codes(shop: Topology, seen: Observed) -> set[tuple[str, ExitCode]]:
    return {(one.code, one.exit) for one in plan(shop, seen).diagnostics if one.exit is not ExitCode.DONE}


def test_another_topologys_job_or_flow_is_refused() -> None:
    theirs = replace(topology(X), name="billing")

    assert codes(topology(X), applied(theirs)) >= {("owned", ExitCode.REFUSED)}


def test_no_secret_is_written_into_a_spec() -> None:
    def shop(password: str | SecretRef) -> Topology:
        secured = Cluster("dc1", "dc1:9092", client={"sasl.password": password})
        return topology(X, clusters=(secured, Cluster("dc2", "dc2:9092")))

    seen = observed(cluster(live("a")), cluster(name="dc2"))
    assert codes(shop("canary"), seen) == {("job-secret", ExitCode.ERROR)}
    assert "canary" not in json_text(plan(shop("canary"), seen))
    assert codes(shop(SecretRef("env", "PASSWORD")), seen) == set()


def running_as(seen: Observed, **more: object) -> Observed:
    there = seen.reachable("dc2")
    assert there is not None
    jobs = tuple(replace(job, **more) for job in there.jobs)  # type: ignore[arg-type]
    return Observed({**seen.clusters, "dc2": replace(there, jobs=jobs)})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"lag": {"x": 9}, "at_ms": 5}, ""),
        ({"driver": "another"}, "was started again since the plan was made"),
        ({"live": False}, "does not run any more"),
        ({"spec": None}, "was reconfigured since the plan was made"),
    ],
)
def test_a_plan_is_stale_when_its_job_moved(more: dict[str, object], why: str) -> None:
    before = applied(topology(X))
    made = plan(topology(replace(X, rate_limit=5)), before)

    found = [str(one) for one in stale(made, running_as(before, **more))]

    assert bool(found) is bool(why)
    assert all(why in one for one in found)


def test_a_plan_to_launch_is_stale_when_somebody_did() -> None:
    made = plan(topology(X), dead(applied(topology(X))))

    assert "runs now, and did not run when the plan was made" in str(stale(made, applied(topology(X)))[0])


@pytest.mark.parametrize("lives", [True, False])
def test_a_plan_to_end_a_job_holds_whether_it_runs_or_not(lives: bool) -> None:
    runs, silent = applied(topology(X)), dead(applied(topology(X)))
    then, now = (silent, runs) if lives else (runs, silent)
    made = make_plan(Desired("shop"), then, diff_destroy(then, topology(X)), topology(X))

    assert stale(made, now) == ()


BACK = flow("x-back", source_cluster="dc2", destination_cluster="dc1", job="dc1", reverse_of="x")


def test_what_comes_back_waits_until_its_way_home_has_ended() -> None:
    home = topology(replace(X, state=FlowState.FAILED_OVER), BACK)
    made = plan(topology(X, replace(BACK, state=FlowState.PROMOTED)), applied(home))

    launch = next(step for step in made.steps if isinstance(step, LaunchJob))
    assert launch.job == "dc2"
    assert {"reconfigure:job.dc1", "stop:job.dc1"} <= set(launch.needs)


def test_the_way_home_waits_until_its_flow_has_ended() -> None:
    made = plan(topology(replace(X, state=FlowState.FAILED_OVER), BACK), applied(topology(X)))

    launch = next(step for step in made.steps if isinstance(step, LaunchJob))
    assert launch.job == "dc1"
    assert {"reconfigure:job.dc2", "stop:job.dc2"} <= set(launch.needs)


def ring(*, ended: bool) -> Topology:
    """Three flows round three clusters; once they ended, each with its way back."""
    ends = (("dc1", "dc2"), ("dc2", "dc3"), ("dc3", "dc1"))
    flows = [
        flow(f"{here}-{there}", source_cluster=here, destination_cluster=there, job=there)
        for here, there in ends
    ]
    if ended:
        flows = [replace(one, state=FlowState.PROMOTED) for one in flows] + [
            flow(f"{there}-{here}", source_cluster=there, destination_cluster=here, job=here)
            for here, there in ends
        ]
        backs = {f"{there}-{here}": f"{here}-{there}" for here, there in ends}
        flows = [replace(one, reverse_of=backs.get(one.name)) for one in flows]
    names = ("dc1", "dc2", "dc3")
    return topology(*flows, clusters=[Cluster(name, f"{name}:9092") for name in names])


def test_jobs_of_a_ring_do_not_wait_for_each_other() -> None:
    """Each way back comes from a cluster that the job does not know: the job is restarted."""
    nothing = observed(cluster(live("a")), cluster(name="dc2"), cluster(name="dc3"))
    seen = applied(ring(ended=False), nothing)

    made = plan(ring(ended=True), seen)

    launched = {step.job: step.needs for step in made.steps if isinstance(step, LaunchJob)}
    assert launched == {name: (f"stop:job.{name}",) for name in ("dc1", "dc2", "dc3")}
    simulate(made.steps, seen)
