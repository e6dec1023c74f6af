"""A job or a flow that goes to another destination: it ends there, then begins here, wherever that is cut."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.diff import diff, diff_destroy
from planner.graph import expand
from planner.model.desired import Desired
from planner.model.diagnostic import ExitCode
from planner.model.observed import Observed, Unreachable
from planner.model.plan import Action, Change, Plan
from planner.model.step import LaunchJob, StopJob
from planner.model.topology import Cluster, Flow, FlowState, Job, Selection, Topology
from planner.plan import make_plan
from planner.render.plan.text import text
from runtime.contract.records.ledger import Generation
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import dead, plan

PLACES = ("dc1", "dc2", "dc3")
NOTHING = observed(cluster(live("a")), cluster(name="dc2"), cluster(name="dc3"))
FOURTH = Generation(4, "main", "stopped", "d", [], "cluster-dc1", "cluster-dc2", 0)


def to(place: str, name: str = "x", job: str = "main", **more: Any) -> Flow:
    return flow(name, destination_cluster=place, topics=Selection(("a",)), job=job, **more)


def shop(*flows: Flow, **more: Any) -> Topology:
    return replace(topology(*flows, clusters=[Cluster(name, f"{name}:9092") for name in PLACES]), **more)


def applied(made: Topology, seen: Observed = NOTHING) -> Observed:
    return simulate(plan(made, seen).steps, seen)


def at(seen: Observed, place: str, **more: Any) -> Observed:
    there = seen.reachable(place)
    assert there is not None
    return Observed({**seen.clusters, place: replace(there, **more)})


def changes(made: Plan) -> dict[str, Change]:
    return {str(one.address): one for one in made.changes}


def order(made: Plan) -> list[str]:
    return [one.id for one in made.steps if one.address.cluster is None]


def running(seen: Observed) -> set[tuple[str, str]]:
    found = {place: seen.reachable(place) for place in PLACES}
    return {(place, job.name) for place, one in found.items() if one for job in one.jobs if job.live}


def held(seen: Observed) -> set[tuple[str, str]]:
    found = {place: seen.reachable(place) for place in PLACES}
    entries = [(place, entry.address) for place, one in found.items() if one for entry in one.owned]
    return {(place, str(address)) for place, address in entries if address.cluster is None}


def destroyed(seen: Observed) -> Plan:
    return make_plan(Desired("shop"), seen, diff_destroy(seen, shop()), shop())


def test_stopped_there_then_launched_here() -> None:
    made = plan(shop(to("dc3")), applied(shop(to("dc2"))))

    assert order(made) == [
        "stop:job.main@dc2",
        "launch:job.main",
        "own:flow.x",
        "own:job.main",
        "disown:flow.x@dc2",
        "disown:job.main@dc2",
    ]
    stop, launch = (one for one in made.steps if isinstance(one, StopJob | LaunchJob))
    assert (stop.cluster, launch.cluster) == ("dc2", "dc3")
    assert stop.id in launch.needs
    moves = changes(made)
    assert [moves[one].action for one in ("flow.x", "job.main")] == [Action.REPLACE] * 2
    assert moves["topic.dc2.a"].reason == "flow.x copies to dc3 now; its mirror stays"


def test_what_a_user_sees() -> None:
    before = applied(shop(to("dc2")))
    there = before.reachable("dc2")
    assert there is not None
    lagging = at(before, "dc2", jobs=tuple(replace(job, lag={"x": 12}) for job in there.jobs))

    shown = "\n".join(text(plan(shop(to("dc3")), lagging)))

    assert "# flow.x must be replaced (moves from dc2 to dc3: it ends at dc2 first)" in shown
    assert "~ to: dc2 -> dc3" in shown
    assert "! at dc2: leaves 12 records uncopied at the source" in shown
    assert "! nothing of it is at dc3: it begins by its start, earliest" in shown
    assert "# job.main must be replaced (moves from dc2 to dc3: stopped at dc2 first)" in shown
    assert "~ destination: dc2 -> dc3" in shown


def test_moved_back_it_resumes_from_its_ledger() -> None:
    away = applied(shop(to("dc3")), applied(shop(to("dc2"))))

    made = plan(shop(to("dc2")), at(away, "dc2", generations={"x": FOURTH}))

    notes = "\n".join(changes(made)["flow.x"].notes)
    assert "its ledger is there (generation 4)" in notes
    assert "nothing of it is at dc2" not in notes


def test_the_others_of_its_job_stay() -> None:
    made = plan(shop(to("dc2"), to("dc3", "y", "far")), applied(shop(to("dc2"), to("dc2", "y"))))

    assert "reconfigure:job.main" in {one.id: one for one in made.steps}["launch:job.far"].needs
    assert "disown:flow.y@dc2" in order(made)
    assert changes(made)["job.far"].action is Action.CREATE


def test_a_dead_one_is_stopped_for_good_and_launched() -> None:
    made = plan(shop(to("dc3")), dead(applied(shop(to("dc2")))))

    assert order(made)[:2] == ["stop:job.main@dc2", "launch:job.main"]


def test_one_that_was_launched_already_is_only_forgotten_where_it_was() -> None:
    before = dead(applied(shop(to("dc2"))))
    both = simulate([one for one in plan(shop(to("dc3")), before).steps if "disown" not in one.id], before)

    made = plan(shop(to("dc3")), both)

    assert order(made) == ["own:flow.x", "own:job.main", "disown:flow.x@dc2", "disown:job.main@dc2"]


def test_one_that_runs_at_both_is_stopped_at_both_first() -> None:
    """By their name its launcher can't tell them apart."""
    here = applied(shop(to("dc3"))).clusters["dc3"]
    both = Observed({**applied(shop(to("dc2"))).clusters, "dc3": here})

    made = plan(shop(to("dc3")), both)

    assert order(made)[:3] == ["stop:job.main", "stop:job.main@dc2", "launch:job.main"]
    assert running(simulate(made.steps, both)) == {("dc3", "main")}


def test_one_that_nobody_wrote_down_there_is_stopped_too() -> None:
    there = at(applied(shop(to("dc2"))), "dc2", owned=())

    assert order(plan(shop(to("dc3")), there))[:2] == ["stop:job.main@dc2", "launch:job.main"]


def test_another_topologys_job_of_that_name_is_left_alone() -> None:
    theirs = applied(replace(shop(to("dc2")), name="billing"))

    made = plan(shop(to("dc3")), theirs)

    assert changes(made)["job.main"].action is Action.CREATE
    assert not any("@dc2" in one for one in order(made))


def test_while_the_new_one_can_not_be_read_nothing_ends() -> None:
    silent = Observed({**applied(shop(to("dc2"))).clusters, "dc3": Unreachable("dc3", "gone")})

    made = plan(shop(to("dc3")), silent)

    assert [changes(made)[one].action for one in ("flow.x", "job.main")] == [Action.UNKNOWN] * 2
    assert order(made) == []


def test_while_the_old_one_can_not_be_read_the_plan_says_so() -> None:
    silent = Observed({**NOTHING.clusters, "dc2": Unreachable("dc2", "gone")})

    made = plan(shop(to("dc3")), silent)

    (said,) = [one for one in made.diagnostics if one.code == "perhaps-elsewhere"]
    assert said.summary == (
        "dc2 could not be read: if flow.x, job.main runs at dc2 too, it is not stopped now"
    )
    assert not made.complete


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FlowState.FAILED_OVER, FlowState.ACTIVE),
        (FlowState.PROMOTED, FlowState.PAUSED),
        (FlowState.ACTIVE, FlowState.PROMOTED),
    ],
)
def test_a_flow_that_ends_does_not_move(before: FlowState, after: FlowState) -> None:
    seen = applied(shop(to("dc2", state=before)), applied(shop(to("dc2"))))
    away = observed(Unreachable("dc1", "gone"), *(seen.clusters[name] for name in ("dc2", "dc3")))

    for one in (seen, away):
        found = [said for said in plan(shop(to("dc3", state=after)), one).diagnostics if said.code]
        assert ("transition", ExitCode.REFUSED) in {(said.code, said.exit) for said in found}


def test_targeting_a_flow_takes_the_job_that_it_leaves() -> None:
    wanted, seen = shop(to("dc2"), to("dc3", "y", "far")), applied(shop(to("dc2"), to("dc2", "y")))
    desired = expand(wanted, seen)

    made = make_plan(desired, seen, diff(desired, seen, wanted), wanted, targets=("flow.y",))

    assert {"reconfigure:job.main", "launch:job.far", "disown:flow.y@dc2"} <= set(order(made))


def test_destroy_stops_it_wherever_it_is_held() -> None:
    here = applied(shop(to("dc3"))).clusters["dc3"]
    both = Observed({**applied(shop(to("dc2"))).clusters, "dc3": here})
    made = destroyed(both)

    after = simulate(made.steps, both)
    assert (running(after), held(after)) == (set(), set())
    assert len({one.id for one in made.steps}) == len(made.steps)


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


@settings(max_examples=80, deadline=None)
@given(placed(), placed(), st.data())
def test_wherever_an_apply_is_cut_the_next_one_ends_it(
    before: Topology, after: Topology, data: st.DataObject
) -> None:
    seen = applied(before)
    steps = plan(after, seen).steps
    cut = simulate(steps[: data.draw(st.integers(0, len(steps)), "steps done")], seen)
    if data.draw(st.booleans(), "all died"):
        cut = dead(dead(cut, "dc2"), "dc3")

    ended, gone = applied(after, cut), simulate(destroyed(cut).steps, cut)

    assert (running(gone), held(gone)) == (set(), set())
    assert plan(after, ended).steps == ()
    wanted = {(one.destination_cluster, one.job) for one in after.flows.values()}
    flows = {(one.destination_cluster, f"flow.{one.name}") for one in after.flows.values()}
    assert running(ended) == wanted
    assert held(ended) == flows | {(place, f"job.{job}") for place, job in wanted}
