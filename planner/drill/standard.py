"""The standard drill: each cluster that flows leave is lost, failed over, brought back and failed back to.

The steps are the commands that an operator types. Real producers write until the loss, and a consumer group
of each flow reads on both sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from planner.drill import promises
from planner.drill.replica import (
    DrillRoute,
    Progress,
    Replica,
    clusters_to_lose,
    flows_out_of,
    not_failed_back,
)
from planner.drill.rules import GROUPS, grant_rights
from planner.drill.scenario_record import DrillAborted, PromiseBroken, problem_of
from planner.drill.scenario_run import ScenarioRun
from planner.graph.lints.transforms import changed_fields_of
from planner.model.diagnostic import Failure
from planner.model.drill import Scenario

RECORDS = 300  # of each topic, before the loss
RATE = 100.0  # records per second and topic, until the loss
_BEFORE_LOSS = 50  # records of each topic that are acknowledged while the flow copies, before the loss
_AFTER_LOSS = 100  # records of each topic that are written at the destination


@dataclass(frozen=True, slots=True)
class DrillLimits:
    """What a drill must keep: None is no limit."""

    rto_s: float | None = None
    rpo_records: int | None = None


class StandardDrill:
    """Runs the scenarios of a topology one after the other on its copy."""

    def __init__(self, replica: Replica, limits: DrillLimits, progress: Progress) -> None:
        self._replica = replica
        self._limits = limits
        self._progress = progress
        self._numbers = count(1)

    def run(self) -> tuple[Scenario, ...]:
        """Returns a scenario for each cluster that running flows leave.

        The first problem ends the drill, and so does a right that the jobs lack.
        """
        scenarios: list[Scenario] = []
        clusters = list(clusters_to_lose(self._replica.topology))
        for number, cluster in enumerate(clusters, start=1):
            self._progress(f"scenario {number} of {len(clusters)}: {cluster} is lost and comes back")
            run = ScenarioRun(self._replica, self._progress, self._numbers)
            loss = _ClusterLoss(run, cluster, self._limits)
            scenarios.append(loss.run(first=not scenarios))
            if scenarios[-1].problem or loss.ended:
                break
        return tuple(scenarios)


class _ClusterLoss:
    """One cluster is lost and comes back."""

    def __init__(self, run: ScenarioRun, cluster: str, limits: DrillLimits) -> None:
        self._run = run
        self.ended = False  # by a broken promise without which the next scenarios show nothing
        self._cluster = cluster
        self._limits = limits
        self._routes = run.routes(cluster)
        self._flows = flows_out_of(run.replica.topology, cluster)
        by_flow: dict[str, list[DrillRoute]] = {}
        for route in run.routes(cluster):
            by_flow.setdefault(route.flow, []).append(route)
        self._groups = {
            f"{GROUPS}{flow.name}": by_flow[flow.name] for flow in self._flows if flow.name in by_flow
        }

    @property
    def _topics(self) -> list[str]:
        """The topics that running flows copy from the cluster."""
        return sorted({one.topic for one in self._run.routes(self._cluster)})

    def run(self, *, first: bool) -> Scenario:
        """Carries the scenario out. A step that fails is its problem, and ends it."""
        problem = ""
        try:
            self._prepare(first=first)
            self._lose()
            self._fail_over()
            self._bring_back()
            self._fail_back()
        except PromiseBroken:
            self.ended = True
        except (DrillAborted, Failure) as wrong:
            problem = problem_of(wrong)
        finally:
            self._run.close()
        return self._run.result(f"{self._cluster} is lost", self._cluster, problem)

    def _prepare(self, *, first: bool) -> None:
        run, name = self._run, self._cluster
        if first:
            grant_rights(run.replica, run.routes())
            promises.apply(run)
        with run.step(f"{RECORDS} records are written to {_named(self._topics)} at {name}"):
            run.write(name, self._topics, RECORDS)
        with run.step("a consumer group of each flow reads a third of them"):
            for group, routes in self._groups.items():
                topics = [one.topic for one in routes]
                run.read(group, name, topics, RECORDS * len(topics) // 3, routes[0].flow)
        with run.step("the flows copy everything, and translate the groups"):
            run.await_copied(name)
        promises.protected(run, name)
        promises.rules_synced(run, name)
        for flow in self._flows:
            if flow.transform is not None:
                promises.transformed(run, flow.name)

    def _lose(self) -> None:
        run, name = self._run, self._cluster
        topics = _named(self._topics)
        with run.step(f"producers write {RATE:g} records/s to {topics}; then {name} is killed"):
            run.start_load(name, self._topics, RATE)
            run.await_load(_BEFORE_LOSS)
            run.lose(name)

    def _fail_over(self) -> None:
        run, name = self._run, self._cluster
        run.command(f"the operator fails over from {name}", "failover", name, "--auto-approve")
        with run.step("the consumer groups go on at the destinations"):
            for group, routes in self._groups.items():
                run.resume(group, routes[0].destination)
        self._promise_rpo_and_rto()
        promises.given_back(run, name)
        for group, routes in self._groups.items():
            promises.resumed(run, run.groups[group], routes[0].destination)
        for destination in sorted({one.destination for one in self._routes}):
            mirrors = sorted({one.mirror for one in self._routes if one.destination == destination})
            with run.step(f"producers write {_AFTER_LOSS} records to {_named(mirrors)} at {destination}"):
                run.write(destination, mirrors, _AFTER_LOSS)

    def _bring_back(self) -> None:
        run = self._run
        with run.step(f"{self._cluster} comes back with its data"):
            run.bring_back(self._cluster)
        for flow in run.flows_with_uncopied(self._cluster):
            text = f"the records that {flow} had not copied are salvaged"
            run.command(text, "salvage", flow, "--replay", "--auto-approve")

    def _fail_back(self) -> None:
        run, name = self._run, self._cluster
        lossy = [flow.name for flow in self._flows if changed_fields_of(flow)]
        others = not_failed_back(one for one in self._routes if one.flow not in lossy)
        if left_out := [*lossy, *others]:
            run.replica.take_out(left_out)
            text = f"{', '.join(left_out)} has no failback, as the notes say: the flow is taken out"
            run.command(text, "apply", "--auto-approve")
        if len(left_out) == len(self._flows):
            promises.no_changes(run)
            return
        run.demand(kept=promises.rights(run, [name], failback=True))
        text = f"what was written at the destinations is copied back to {name}"
        run.command(text, "failback", name, "--auto-approve")
        run.command(f"the flows out of {name} run as before", "failback", name, "--switch", "--auto-approve")
        with run.step(f"producers write to {name} again, and the flows copy it"):
            run.write(name, self._topics, _AFTER_LOSS)
            run.await_copied(name)
        promises.protected(run, name)
        with run.step("both sides are compared"):
            self._promise_home()
            if run.compared([name]):
                promises.equal(run, [name])
        promises.no_changes(run)

    def _promise_rpo_and_rto(self) -> None:
        run, limits = self._run, self._limits
        promises.rpo(run, limits.rpo_records)
        promises.rto(run, limits.rto_s)

    def _promise_home(self) -> None:
        """Everything that was written at a destination meanwhile is at the cluster."""
        run, missing = self._run, 0
        for route in run.routes(self._cluster):  # a reverse flow has no transform
            home = run.ids(self._cluster, route.topic)
            missing += sum(id_ not in home for id_ in run.written(route.destination, route.mirror))
        run.promise(
            f"what was written at the destinations is at {self._cluster} after the failback",
            "0 missing",
            f"{missing:,} missing",
            kept=not missing,
            why="records of the time after the failover are only at the destination",
        )


def _named(topics: Sequence[str]) -> str:
    """Returns the topic where there is one, else how many there are."""
    return topics[0] if len(topics) == 1 else f"each of {len(topics)} topics"
