"""A job or a flow that goes to another destination: it ends there, then begins here, wherever that is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.change import Action
from planner.model.diagnostic import ExitCode
from planner.model.observed import Observed, Unreachable
from planner.model.plan import Plan
from planner.model.topology import Cluster, Flow, Job, Selection, Topology
from planner.plan.steps.jobs import LaunchJob, StopJob
from planner.render.plan.text import text
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.flow import FlowState
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.plan import jobs
from tests.planner.plan.jobs import at, changes, dead, jobs_as, needs, plan, refused, steps_of, there

pytestmark = pytest.mark.slow

PLACES = ("dc1", "dc2", "dc3")
NOTHING = observed(cluster(live("a")), cluster(name="dc2"), cluster(name="dc3"))
FOURTH = Generation(4, "main", "stopped", "d", [], "cluster-dc1", "cluster-dc2", 0)


def to(place: str, name: str = "x", job: str = "main", **more: Any) -> Flow:
    return flow(name, destination_cluster=place, topics=Selection(("a",)), job=job, **more)


def shop(*flows: Flow, **more: Any) -> Topology:
    return replace(
        topology(*flows, clusters=[Cluster(name, bootstrap=f"{name}:9092") for name in PLACES]), **more
    )


def applied(made: Topology, seen: Observed = NOTHING) -> Observed:
    return jobs.applied(made, seen)


def order(made: Plan) -> list[str]:
    return [one.id for one in made.steps if one.address.cluster is None]


def running(seen: Observed) -> set[tuple[str, str]]:
    return {(place, job.name) for place in PLACES for job in there(seen, place).jobs if job.live}


def held(seen: Observed) -> set[tuple[str, str]]:
    addresses = [(place, entry.address) for place in PLACES for entry in there(seen, place).owned]
    return {(place, str(address)) for place, address in addresses if address.cluster is None}


HERE, FAR = applied(shop(to("dc2"))), applied(shop(to("dc3")))
BOTH = Observed({**HERE.clusters, "dc3": FAR.clusters["dc3"]})
# Of a killed job's move everything was done but what forgets it where it was.
LAUNCHED = simulate(
    [one for one in plan(shop(to("dc3")), dead(HERE)).steps if "disown" not in one.id], dead(HERE)
)
ENDS = ["stop:job.main@dc2", "launch:job.main"]
FORGET = ["own:flow.x", "own:job.main", "disown:flow.x@dc2", "disown:job.main@dc2"]


@cases(
    "seen first",
    {
        "stopped there, then launched here": (HERE, [*ENDS, *FORGET]),
        "one that died there is stopped for good": (dead(HERE), ENDS),
        "one that was launched already is only forgotten": (LAUNCHED, FORGET),
        # By their name its launcher can't tell them apart.
        "one that runs at both is stopped at both": (BOTH, ["stop:job.main", *ENDS]),
        "one that is not registered there is stopped too": (at(HERE, owned=()), ENDS),
        "another topology's job of that name is left alone": (
            applied(replace(shop(to("dc2")), name="billing")),
            ["own:job.main", "launch:job.main", "own:flow.x"],
        ),
        "while the new place can't be read nothing ends": (
            Observed({**HERE.clusters, "dc3": Unreachable("dc3", "gone")}),
            [],
        ),
    },
)
def test_a_job_that_moves_ends_there_before_it_begins_here(seen: Observed, first: list[str]) -> None:
    made = plan(shop(to("dc3")), seen)
    assert order(made)[: len(first)] == first
    assert bool(order(made)) is bool(first)
    assert first or {changes(made)[one].action for one in ("flow.x", "job.main")} == {Action.UNKNOWN}
    launched = [step for step in steps_of(made, LaunchJob) if "stop:job.main@dc2" in order(made)]
    assert all("stop:job.main@dc2" in step.needs for step in launched)


def test_what_the_changes_of_a_move_say() -> None:
    made = plan(shop(to("dc3")), HERE)
    assert [(step.cluster) for step in made.steps if isinstance(step, StopJob | LaunchJob)] == ["dc2", "dc3"]
    assert [changes(made)[one].action for one in ("flow.x", "job.main")] == [Action.REPLACE] * 2
    assert changes(made)["topic.dc2.a"].reason == "flow.x copies to dc3 now; its mirror stays"
    shown = "\n".join(text(plan(shop(to("dc3")), jobs_as(HERE, lag={"x": 12}))))
    for line in (
        "# flow.x must be replaced (moves from dc2 to dc3: it ends at dc2 first)",
        "~ to: dc2 -> dc3",
        "! at dc2: leaves 12 records uncopied at the source",
        "! nothing of it is at dc3: it begins by its start, earliest",
        "# job.main must be replaced (moves from dc2 to dc3: stopped at dc2 first)",
        "~ destination: dc2 -> dc3",
    ):
        assert line in shown


def test_moved_back_it_resumes_from_its_ledger() -> None:
    away = applied(shop(to("dc3")), HERE)
    made = plan(shop(to("dc2")), at(away, "dc2", generations={"x": FOURTH}))
    notes = "\n".join(changes(made)["flow.x"].notes)
    assert "its ledger is there (generation 4)" in notes
    assert "nothing of it is at dc2" not in notes


@pytest.mark.parametrize("targets", [(), ("flow.y",)])
def test_a_flow_that_moves_alone_leaves_the_others_of_its_job(targets: tuple[str, ...]) -> None:
    made = plan(shop(to("dc2"), to("dc3", "y", "far")), applied(shop(to("dc2"), to("dc2", "y"))), *targets)
    assert "reconfigure:job.main" in needs(made)["launch:job.far"]
    assert "disown:flow.y@dc2" in order(made)
    assert changes(made)["job.far"].action is Action.CREATE


def test_while_the_old_place_can_not_be_read_the_plan_says_so() -> None:
    silent = Observed({**NOTHING.clusters, "dc2": Unreachable("dc2", "gone")})
    made = plan(shop(to("dc3")), silent)
    assert [one.summary for one in made.diagnostics if one.code == "perhaps-elsewhere"] == [
        "dc2 could not be read: if flow.x, job.main runs at dc2 too, it is not stopped now"
    ]
    assert not made.complete


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("failed_over", "active"),
        ("promoted", "paused"),
        ("active", "promoted"),
    ],
)
def test_a_flow_that_ends_does_not_move(before: FlowState, after: FlowState) -> None:
    seen = applied(shop(to("dc2", state=before)), HERE)
    for one in (seen, Observed({**seen.clusters, "dc1": Unreachable("dc1", "gone")})):
        codes = {(code, exit_) for code, _, exit_ in refused(plan(shop(to("dc3", state=after)), one))}
        assert ("transition", ExitCode.REFUSED) in codes


def test_a_flow_whose_destination_is_silent_keeps_its_state_and_the_others_fail_over() -> None:
    def both(state: FlowState) -> Topology:
        return shop(to("dc2", state=state), to("dc3", "y", "other", state=state))

    seen = applied(both("active"), HERE)
    away = Observed({**seen.clusters, "dc3": Unreachable("dc3", "gone")})
    made = plan(both("failed_over"), away)

    assert order(made) == ["reconfigure:job.main", "stop:job.main", "own:flow.x", "disown:job.main"]
    assert changes(made)["flow.y"].action is Action.UNKNOWN


def test_destroy_stops_it_wherever_it_is_held() -> None:
    made = jobs.destroyed(BOTH, shop())
    after = simulate(made.steps, BOTH)
    assert (running(after), held(after)) == (set(), set())
    assert len(needs(made)) == len(made.steps)


def test_two_jobs_that_hand_flows_to_each_other_do_not_wait_for_each_other() -> None:
    stay = to("dc2", "z"), to("dc2", "w", "far")
    seen = applied(shop(to("dc2", "x"), to("dc2", "y", "far"), *stay))
    after = shop(to("dc2", "x", "far"), to("dc2", "y"), *stay)
    made = plan(after, seen)
    assert {"reconfigure:job.far", "reconfigure:job.main"} <= set(order(made))
    assert plan(after, simulate(made.steps, seen)).steps == ()


@st.composite
def placed(draw: st.DrawFn) -> Topology:
    """Up to three flows in up to three jobs, each at one of two destinations."""
    places = {job: draw(st.sampled_from(["dc2", "dc3"])) for job in ("main", "far", "own")}
    flows = []
    for name in draw(st.lists(st.sampled_from(["x", "y", "z"]), unique=True)):
        job = draw(st.sampled_from(sorted(places)))
        flows.append(to(places[job], name, job, rate_limit=draw(st.sampled_from([None, 5]))))
    memory = draw(st.sampled_from(["1g", "2g"]))
    return shop(*flows, jobs={job: Job(job, memory=memory) for job in places})


@given(placed(), placed(), st.data())
def test_wherever_an_apply_is_cut_the_next_one_ends_it(
    before: Topology, after: Topology, data: st.DataObject
) -> None:
    seen = applied(before)
    steps = plan(after, seen).steps
    cut = simulate(steps[: data.draw(st.integers(0, len(steps)), "steps done")], seen)
    if data.draw(st.booleans(), "all died"):
        cut = dead(cut, "dc2", "dc3")

    ended, gone = applied(after, cut), simulate(jobs.destroyed(cut, shop()).steps, cut)

    assert (running(gone), held(gone)) == (set(), set())
    assert plan(after, ended).steps == ()
    wanted = {(one.destination_cluster, one.job) for one in after.flows.values()}
    flows = {(one.destination_cluster, f"flow.{one.name}") for one in after.flows.values()}
    assert running(ended) == wanted
    assert held(ended) == flows | {(place, f"job.{job}") for place, job in wanted}


OTHER_RELEASE = jobs_as(HERE, spec=None, unreadable="its heartbeat is of another release (version 02)")


@cases(
    "after",
    {
        "as declared": (shop(to("dc2", rpo_ms=1000)),),
        "the job moves": (shop(to("dc3")),),
        "the flow gets another job": (shop(to("dc2", job="other")),),
        "the flow leaves": (shop(to("dc2", "y")),),
        "all leave": (shop(),),
    },
)
def test_a_job_that_only_another_release_can_read_is_left_alone_and_no_second_one_starts(
    after: Topology,
) -> None:
    made = plan(after, OTHER_RELEASE)
    assert [step for step in order(made) if "job.main" in step or "flow.x" in step] == []
    assert made.unknown["flow.x"] == (
        "job.main runs at dc2, and its heartbeat is of another release (version 02)"
    )
    (hint,) = {found.hint for found in made.diagnostics if found.address == "flow.x"}
    assert hint.startswith("plan and apply with the release that started the job")


def test_a_job_whose_last_heartbeat_can_not_be_read_starts_again_when_it_is_dead() -> None:
    assert steps_of(plan(shop(to("dc2")), dead(OTHER_RELEASE)), LaunchJob)


def test_a_cluster_that_leaves_together_with_its_flows_is_named() -> None:
    both = shop(to("dc2"), to("dc3", "y", "far"))
    without = replace(shop(to("dc2")), clusters={name: both.clusters[name] for name in ("dc1", "dc2")})
    left = Observed({name: seen for name, seen in applied(both).clusters.items() if name != "dc3"})

    (found,) = [found for found in plan(without, left).diagnostics if found.code == "cluster-left"]

    assert found.summary.startswith("dc3 is not declared any more, and flow.y copied into it")
    assert "declare dc3 again without these flows" in found.hint
    assert not [
        found for found in plan(shop(to("dc2")), applied(both)).diagnostics if found.code == "cluster-left"
    ]
