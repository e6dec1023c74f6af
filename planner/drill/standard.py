"""The standard drill: each cluster that flows leave is lost, failed over, brought back and failed back to.

A scenario is a list of acts: the commands that an operator types, what clients and clusters do meanwhile, and
what is promised. Real producers write until the loss, and a consumer group of each flow reads on both sides.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

from planner.config import load
from planner.drill import promises
from planner.drill.rehearsal import (
    DrillLimits,
    DrillRequest,
    alone,
    drill_folder,
    drill_report,
    limits_of,
    now,
)
from planner.drill.replica import Replica
from planner.drill.routes import DrillRoute, clusters_to_lose, flows_out_of, not_failed_back
from planner.drill.rules import GROUPS, grant_rights, protected_routes, synced_routes
from planner.drill.scenario_record import DrillAborted, Progress, PromiseBroken, problem_of
from planner.drill.scenario_run import ScenarioRun
from planner.graph.lints.transforms import changed_fields_of
from planner.model.diagnostic import Failure, error
from planner.model.drill import DrillReport, Scenario

RECORDS = 300  # of each topic, before the loss
RATE = 100.0  # records per second and topic, until the loss
_BEFORE_LOSS = 50  # records of each topic that are acknowledged while the flow copies, before the loss
_AFTER_LOSS = 100  # records of each topic that are written at the destination

# What the report says of it, and what carries it out: a function, or the words of a command of repl.
Act = tuple[str, Callable[[], object] | tuple[str, ...]]


def rehearse(request: DrillRequest, progress: Progress) -> DrillReport:
    """Rehearses the loss of each cluster on this machine. The topology's own clusters are not touched.

    Failure: the topology has errors, or the lab can't be started.
    """
    topology = load(request.path, request.var_files)
    if not clusters_to_lose(topology):
        raise Failure(error("no flow runs, so there is nothing to rehearse", "declare a flow, or resume one"))
    load_ms = topology.drill.load_ms if request.load_ms is None else request.load_ms
    started = now()
    folder = drill_folder(request.path)
    replica = Replica(topology, folder, progress)
    progress("clusters are started on this machine")
    with alone(folder), replica.running():
        scenarios = _scenarios(replica, limits_of(request, topology), load_ms / 1000, progress)
        progress("the clusters are removed")
    return drill_report(topology, started, replica.notes, scenarios)


def _scenarios(
    replica: Replica, limits: DrillLimits, load_s: float, progress: Progress
) -> tuple[Scenario, ...]:
    """Returns a scenario for each cluster that running flows leave.

    The first problem ends the drill, and so does a right that the jobs lack.
    """
    scenarios: list[Scenario] = []
    numbers = count(1)
    clusters = clusters_to_lose(replica.topology)
    for number, cluster in enumerate(clusters, start=1):
        progress(f"scenario {number} of {len(clusters)}: {cluster} is lost and comes back")
        run = ScenarioRun(replica, progress, numbers)
        problem, ended = "", False
        try:
            if not scenarios:
                with run.step("the drill's principal and the jobs get their rights"):
                    grant_rights(replica, run.routes())
                promises.apply(run)
            for text, act in _cluster_loss(run, cluster, limits, load_s):
                if isinstance(act, tuple):
                    run.command(text, *act, "--auto-approve")
                else:
                    with run.step(text):
                        act()
        except PromiseBroken:
            ended = True  # without this promise the next scenarios show nothing
        except (DrillAborted, Failure) as wrong:
            problem = problem_of(wrong)
        finally:
            run.close()
        scenarios.append(run.result(f"{cluster} is lost", cluster, problem))
        if problem or ended:
            break
    return tuple(scenarios)


def _cluster_loss(run: ScenarioRun, cluster: str, limits: DrillLimits, load_s: float) -> Iterator[Act]:
    """Yields the acts of one scenario. Each is carried out before the next is asked for."""
    flows = flows_out_of(run.replica.topology, cluster)
    routes = run.routes(cluster)
    topics = sorted({route.topic for route in routes})
    groups = {
        f"{GROUPS}{flow.name}": of_flow
        for flow in flows
        if (of_flow := [route for route in routes if route.flow == flow.name])
    }
    destinations = {name: of_flow[0].destination for name, of_flow in groups.items()}
    protected = protected_routes(run.replica, routes)

    yield (
        f"{RECORDS} records are written to {_named(topics)} at {cluster}",
        partial(run.write, RECORDS, topics, cluster),
    )
    yield "a consumer group of each flow reads a third of them", partial(_read_a_third, run, groups)
    yield "the flows copy everything, and translate the groups", partial(run.await_copied, cluster)
    if protected or synced_routes(run.replica, routes):
        yield "the rules of the mirrors are tried", partial(_promise_rules, run, cluster)
    for flow in flows:
        if flow.transform is not None:
            yield f"the transform of {flow.name} is looked at", partial(promises.transformed, run, flow.name)
    yield (
        f"producers write {RATE:g} records/s to {_named(topics)} for {load_s:g} s; then {cluster} is killed",
        partial(_lose_under_load, run, cluster, topics, load_s),
    )
    yield f"the operator fails over from {cluster}", ("failover", cluster)
    yield "the consumer groups go on at the destinations", partial(run.resume_all, destinations)
    promises.rpo(run, limits.rpo_records)  # counts what did not arrive, in a step of its own
    promises.rto(run, limits.rto_s)
    if protected:
        yield "the mirrors may be written again", partial(promises.given_back, run, cluster)
    for name, destination in destinations.items():
        promises.resumed(run, name, destination)
    for destination in sorted({route.destination for route in routes}):
        mirrors = sorted({route.mirror for route in routes if route.destination == destination})
        yield (
            f"producers write {_AFTER_LOSS} records to {_named(mirrors)} at {destination}",
            partial(run.write, _AFTER_LOSS, mirrors, destination),
        )
    yield f"{cluster} comes back with its data", partial(run.bring_back, cluster)
    uncopied: list[str] = []
    yield "both sides are read", lambda: uncopied.extend(run.flows_with_uncopied(cluster))
    for flow_name in uncopied:
        yield (
            f"the records that {flow_name} had not copied are salvaged",
            ("salvage", flow_name, "--replay"),
        )

    lossy = [flow.name for flow in flows if changed_fields_of(flow)]
    left_out = [*lossy, *not_failed_back(route for route in routes if route.flow not in lossy)]
    if left_out:
        run.replica.take_out(left_out)
        text = f"{', '.join(left_out)} has no failback, as the notes say: the flow is taken out"
        yield text, ("apply",)
    if len(left_out) < len(flows):
        topics = sorted({route.topic for route in run.routes(cluster)})
        if any(login.exact for login in run.replica.job_logins.values()):
            yield "the rights of the failback are tried", partial(_demand_failback_rights, run, cluster)
        text = f"what was written at the destinations is copied back to {cluster}"
        yield text, ("failback", cluster)
        yield f"the flows out of {cluster} run as before", ("failback", cluster, "--switch")
        yield (
            f"producers write to {cluster} again, and the flows copy it",
            lambda: (run.write(_AFTER_LOSS, topics, cluster), run.await_copied(cluster)),
        )
        if protected:
            yield "the mirrors are protected again", partial(promises.protected, run, cluster)
        yield "both sides are compared", partial(_compare, run, cluster)
    yield "the topology is planned", partial(promises.no_changes, run)


def _read_a_third(run: ScenarioRun, groups: dict[str, list[DrillRoute]]) -> None:
    for group, routes in groups.items():
        topics = [route.topic for route in routes]
        run.read(group, RECORDS * len(topics) // 3, topics, routes[0].source, routes[0].flow)


def _promise_rules(run: ScenarioRun, cluster: str) -> None:
    promises.protected(run, cluster)
    promises.rules_synced(run, cluster)


def _demand_failback_rights(run: ScenarioRun, cluster: str) -> None:
    run.demand(kept=promises.rights(run, [cluster], failback=True))


def _lose_under_load(run: ScenarioRun, cluster: str, topics: Sequence[str], load_s: float) -> None:
    began = time.monotonic()
    run.start_load(RATE, topics, cluster)
    run.await_load(_BEFORE_LOSS)
    time.sleep(max(0.0, began + load_s - time.monotonic()))
    run.lose(cluster)


def _compare(run: ScenarioRun, cluster: str) -> None:
    """Everything that was written at a destination meanwhile is at the cluster, and both sides are equal."""
    missing = 0
    for route in run.routes(cluster):  # a reverse flow has no transform
        home = run.ids(cluster, route.topic)
        missing += sum(id_ not in home for id_ in run.acknowledged(route.destination, route.mirror))
    run.promise(
        f"what was written at the destinations is at {cluster} after the failback",
        "0 missing",
        f"{missing:,} missing",
        kept=not missing,
        why="records of the time after the failover are only at the destination",
    )
    if run.compared([cluster]):
        promises.equal(run, [cluster])


def _named(topics: Sequence[str]) -> str:
    """Returns the topic where there is one, else how many there are."""
    return topics[0] if len(topics) == 1 else f"each of {len(topics)} topics"
