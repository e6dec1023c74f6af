"""The standard drill: each cluster that flows leave is lost, failed over, brought back and failed back to.

A scenario is a list of steps: the commands that an operator types, what clients and clusters do meanwhile,
and what is promised. Real producers write until the loss, and a group of each flow reads on both sides.
"""

import time
from collections.abc import Sequence

from planner.drill import promises
from planner.drill.replica import Replica, only_drill
from planner.drill.routes import DrillRoute, clusters_to_lose, flows_out_of, not_failed_back
from planner.drill.rules import GROUPS, grant_rights
from planner.drill.scenario_record import Progress, PromiseBroken
from planner.drill.scenario_run import ScenarioRun
from planner.graph.lints.transforms import changed_fields_of
from planner.model.drill import Scenario
from planner.model.topology import Topology
from planner.workflows.requests import DrillRequest

RECORDS = 300  # of each topic, before the loss
RATE = 100.0  # records per second and topic, until the loss
_BEFORE_LOSS = 50  # records of each topic that are acknowledged while the flow copies, before the loss
_AFTER_LOSS = 100  # records of each topic that are written at the destination


def rehearse_on_lab(
    request: DrillRequest, topology: Topology, progress: Progress
) -> tuple[tuple[str, ...], tuple[Scenario, ...]]:
    """Rehearses the loss of each cluster on this machine. The topology's own clusters are not touched.

    Returns what differs in the copy, and a scenario for each cluster that running flows leave. The first
    problem ends the drill, and so does a right that the jobs lack.
    """
    scenarios: list[Scenario] = []
    with only_drill(request.path) as folder:
        replica = Replica(topology, folder, progress)
        progress("clusters are started on this machine")
        with replica.running():
            clusters = clusters_to_lose(replica.topology)
            for number, cluster in enumerate(clusters, start=1):
                progress(f"scenario {number} of {len(clusters)}: {cluster} is lost and comes back")
                run = ScenarioRun(replica, progress, f"{cluster} is lost", cluster)
                scenarios.append(run.scenario)
                if not _rehearse(run, cluster, request, first=number == 1):
                    break
            progress("the clusters are removed")
    return replica.notes, tuple(scenarios)


def _rehearse(run: ScenarioRun, cluster: str, request: DrillRequest, *, first: bool) -> bool:
    """Carries out one scenario, and returns whether the next one can follow it."""
    try:
        with run.recording_problem():
            if first:
                with run.step("the drill's principal and the jobs get their rights"):
                    grant_rights(run.replica, run.routes())
                promises.apply(run)
            routes = run.routes(cluster)
            _lose(run, cluster, routes, (request.load_ms or 0) / 1000)
            _fail_over(run, cluster, routes, request)
            _bring_back(run, cluster, routes)
            with run.step("the topology is planned"):
                promises.no_changes(run)
    except PromiseBroken:
        return False  # without this promise the next scenarios show nothing
    finally:
        run.close()
    return not run.scenario.problem


def _lose(run: ScenarioRun, cluster: str, routes: Sequence[DrillRoute], load_s: float) -> None:
    topics = sorted({route.topic for route in routes})
    with run.step(f"{RECORDS} records are written to {_named(topics)} at {cluster}"):
        run.write(RECORDS, topics, cluster)
    with run.step("a consumer group of each flow reads a third of them"):
        for flow in sorted({route.flow for route in routes}):
            copied = [route.topic for route in routes if route.flow == flow]
            run.read(f"{GROUPS}{flow}", RECORDS * len(copied) // 3, copied, cluster, flow)
    with run.step("the flows copy everything, and translate the groups"):
        run.await_copied(cluster)
    if any(route.protected or route.rules_synced for route in routes):
        with run.step("the rules of the mirrors are tried"):
            promises.protected(run, cluster)
            promises.rules_synced(run, cluster)
    for flow in sorted({route.flow for route in routes if route.transformed}):
        with run.step(f"the transform of {flow} is looked at"):
            promises.transformed(run, flow)
    text = (
        f"producers write {RATE:g} records/s to {_named(topics)} for {load_s:g} s; then {cluster} is killed"
    )
    with run.step(text):
        began = time.monotonic()
        run.start_load(RATE, topics, cluster)
        run.await_load(_BEFORE_LOSS)
        time.sleep(max(0.0, began + load_s - time.monotonic()))
        run.lose(cluster)


def _fail_over(run: ScenarioRun, cluster: str, routes: Sequence[DrillRoute], request: DrillRequest) -> None:
    run.command(f"the operator fails over from {cluster}", "failover", cluster, "--auto-approve")
    destinations = {f"{GROUPS}{route.flow}": route.destination for route in routes}
    with run.step("the consumer groups go on at the destinations"):
        run.resume_all(destinations)
    promises.rpo(run, request.max_rpo)  # counts what did not arrive, in a step of its own
    promises.rto(run, request.max_rto_ms and request.max_rto_ms / 1000)
    if any(route.protected for route in routes):
        with run.step("the mirrors may be written again"):
            promises.given_back(run, cluster)
    for group, destination in sorted(destinations.items()):
        promises.resumed(run, group, destination)
    for destination in sorted({route.destination for route in routes}):
        mirrors = sorted({route.mirror for route in routes if route.destination == destination})
        with run.step(f"producers write {_AFTER_LOSS} records to {_named(mirrors)} at {destination}"):
            run.write(_AFTER_LOSS, mirrors, destination)


def _bring_back(run: ScenarioRun, cluster: str, routes: Sequence[DrillRoute]) -> None:
    flows = flows_out_of(run.replica.topology, cluster)
    with run.step(f"{cluster} comes back with its data"):
        run.bring_back(cluster)
    with run.step("both sides are read"):
        # Also records that no producer got an acknowledgement for, which are in no loss.
        uncopied = {
            route.flow
            for route in run.compared([cluster])
            if run.ids(cluster, route.topic) - run.ids(route.destination, route.mirror)
        }
    for flow in sorted(uncopied):
        text = f"the records that {flow} had not copied are salvaged"
        run.command(text, "salvage", flow, "--replay", "--auto-approve")
    lossy = [flow.name for flow in flows if changed_fields_of(flow)]
    left_out = [*lossy, *not_failed_back(route for route in routes if route.flow not in lossy)]
    if left_out:
        run.replica.take_out(left_out)
        text = f"{', '.join(left_out)} has no failback, as the notes say: the flow is taken out"
        run.command(text, "apply", "--auto-approve")
    if len(left_out) == len(flows):
        return
    if any(copy.exact for copy in run.replica.copies.values()):
        with run.step("the rights of the failback are tried"):
            run.demand(kept=promises.rights(run, [cluster], failback=True))
    text = f"what was written at the destinations is copied back to {cluster}"
    run.command(text, "failback", cluster, "--auto-approve")
    text = f"the flows out of {cluster} run as before"
    run.command(text, "failback", cluster, "--switch", "--auto-approve")
    with run.step(f"producers write to {cluster} again, and the flows copy it"):
        run.write(_AFTER_LOSS, sorted({route.topic for route in run.routes(cluster)}), cluster)
        run.await_copied(cluster)
    if any(route.protected for route in routes):
        with run.step("the mirrors are protected again"):
            promises.protected(run, cluster)
    with run.step("both sides are compared"):
        _compare(run, cluster)


def _compare(run: ScenarioRun, cluster: str) -> None:
    """Everything that was written at a destination meanwhile is at the cluster, and both sides are equal."""
    missing = 0
    for route in run.routes(cluster):  # a reverse flow has no transform
        at_source = run.ids(cluster, route.topic)
        missing += sum(id_ not in at_source for id_ in run.acknowledged(route.destination, route.mirror))
    run.promise(
        f"what was written at the destinations is at {cluster} after the failback",
        "0 missing",
        f"{missing:,} missing",
        "records of the time after the failover are only at the destination",
    )
    if run.compared([cluster]):
        promises.equal(run, [cluster])


def _named(topics: Sequence[str]) -> str:
    """Returns the topic where there is one, else how many there are."""
    return topics[0] if len(topics) == 1 else f"each of {len(topics)} topics"
