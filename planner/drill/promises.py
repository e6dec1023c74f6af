"""What a scenario may promise. Each function measures it, adds it to the report, and returns if it was kept.

A function with a sentence is also a step of features, where a broken promise ends the scenario.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import structs

from planner.drill import rules
from planner.drill.lab_copy import OTHER
from planner.drill.replica import Replica
from planner.drill.routes import DrillRoute
from planner.drill.scenario_record import DrillAborted, ScenarioRecord
from planner.drill.scenario_run import ScenarioRun, printed
from planner.drill.steps.language import demand
from planner.graph.job_rights import JobRight
from planner.graph.routes import reason_not_synced
from planner.workflows.requests import DrillRequest

_DECLARE = "declare them under acls, or set drill.job_rights: documented if they are managed elsewhere"
_ASYNCHRONOUS = "they were not copied yet when the cluster was lost: flows copy asynchronously"


@demand("the RPO is at most {count} records")
def rpo(run: ScenarioRecord, count: int | None) -> bool:
    """At the last failover, so many acknowledged records of the lost cluster were missing at most."""
    run.count_loss()
    records = run.scenario.rpo_records
    return run.promise(
        "records that were acknowledged and did not arrive (RPO)",
        "any number" if count is None else f"at most {count:,}",
        "unknown" if records is None else f"{records:,}",
        _ASYNCHRONOUS,
        kept=count is None or (records is not None and records <= count),
    )


@demand("the RPO is at most {seconds} s")
def rpo_s(run: ScenarioRecord, seconds: float) -> bool:
    """At the last failover, the oldest missing record was so old at most."""
    run.count_loss()
    age_s = run.lost_for_s
    return run.promise(
        "age of the oldest record that did not arrive (RPO)",
        f"at most {seconds:g} s",
        "unknown" if age_s is None else f"{age_s:.1f} s",
        _ASYNCHRONOUS,
        kept=age_s is not None and age_s <= seconds,
    )


@demand("the RTO is at most {seconds} s")
def rto(run: ScenarioRecord, seconds: float | None) -> bool:
    """From the loss until a consumer of each group that resumed got a record."""
    total_s = run.scenario.rto_s
    return run.promise(
        "time from the loss until a consumer of each group read on (RTO)",
        "any time" if seconds is None else f"at most {seconds:g} s",
        "unknown" if total_s is None else f"{total_s:.1f} s",
        "the failover takes too long for this limit",
        kept=seconds is None or (total_s is not None and total_s <= seconds),
    )


def limits(run: ScenarioRecord, request: DrillRequest) -> None:
    """Limits hold for the figures that a scenario measured."""
    run.count_loss()
    if request.max_rpo is not None and run.scenario.rpo_records is not None:
        rpo(run, request.max_rpo)
    if request.max_rto_ms is not None and run.scenario.rto is not None:
        rto(run, request.max_rto_ms / 1000)


@demand(
    "the group {group} resumes at {cluster} with {again} records read again and {skipped} skipped",
    resumes=True,
)
def resume(run: ScenarioRun, group: str, cluster: str, again: int, skipped: int) -> bool:
    """The group reads on to the present end, from exactly where it stopped."""
    run.resume(group, cluster)
    return resumed(run, group, cluster, again, skipped)


def resumed(run: ScenarioRun, name: str, cluster: str, again: int = 0, skipped: int = 0) -> bool:
    """The group has gone on where it stopped."""
    group = run.groups[name]
    return run.promise(
        f"group {name} goes on at {cluster} where it stopped",
        f"{again:,} read again, {skipped:,} skipped",
        f"{group.again or 0:,} read again, {group.skipped or 0:,} skipped",
        _why_not_resumed(run, name, cluster),
    )


def _why_not_resumed(run: ScenarioRun, name: str, cluster: str) -> str:
    flows = run.replica.declared().flows
    routes = run.routes_of(run.groups[name])
    for flow in sorted({route.flow for route in routes if route.destination == cluster}):
        if reason := reason_not_synced(flows[flow], name):
            return f"{reason}, so its consumers start anew at {cluster}"
    return "its offsets were not translated exactly: look at repl offsets"


@demand("both sides hold the same records")
def equal(run: ScenarioRun, clusters: Iterable[str] = ()) -> bool:
    """Source and destination of every flow hold the same records, each as often."""
    different = 0
    for route in run.compared(clusters):
        source = Counter(run.records(route.source, route.topic))
        mirror = Counter(run.records(route.destination, route.mirror))
        different += sum((source - mirror).values()) + sum((mirror - source).values())
    why = "compare the sides with repl verify"
    return run.promise(
        "both sides hold the same records, each once", "0 different", f"{different:,} different", why
    )


@demand("{topic} at {cluster} holds {count} records")
def holds(run: ScenarioRun, topic: str, cluster: str, count: int) -> bool:
    """The topic holds so many committed records."""
    why = "records are missing or doubled: look at repl verify"
    return run.promise(f"records of {topic} at {cluster}", count, len(run.values(cluster, topic)), why)


@demand("{topic} at {cluster} holds the records of {other}, each once and in order")
def in_order(run: ScenarioRun, topic: str, cluster: str, other: str) -> bool:
    """The topic and its copy or its source there hold the same records, in every partition in one order."""
    others = _ids(run, other, _topic_at_other_side(run, cluster, topic, other))
    partitions = _ids(run, cluster, topic)
    numbers = sorted(partitions.keys() | others.keys())
    different = [number for number in numbers if partitions.get(number, []) != others.get(number, [])]
    return run.promise(
        f"{topic} at {cluster} holds the records of {other}, each once and in order",
        f"{sum(map(len, others.values())):,} records, 0 partitions different",
        f"{sum(map(len, partitions.values())):,} records, {len(different):,} partitions different",
        f"partitions {', '.join(map(str, different))} differ: compare the sides with repl verify",
    )


def _ids(run: ScenarioRun, cluster: str, topic: str) -> dict[int, list[bytes]]:
    partitions = run.partitions(cluster, topic)
    return {number: [record.id for record in records] for number, records in partitions.items()}


def _topic_at_other_side(run: ScenarioRun, cluster: str, topic: str, other: str) -> str:
    """Returns the name at another cluster of a topic that a flow copies from or to there."""
    for route in run.routes():
        for way in (route, route.turned()):
            if (way.source, way.topic, way.destination) == (cluster, topic, other):
                return way.mirror
    raise DrillAborted(f"no flow copies {topic} between {cluster} and {other}")


def apply(run: ScenarioRun) -> None:
    """Applies the topology for the first time. PromiseBroken where a job lacks a right that it needs."""
    rules.grant_job_rights(run.replica)
    try:
        run.command("the topology is applied", "apply", "--auto-approve")
    except DrillAborted:
        run.demand(kept=rights(run))
        raise
    run.demand(kept=rights(run))


def rights(run: ScenarioRun, clusters: Iterable[str] = (), *, failback: bool = False) -> bool:
    """Promises that the declared rules give the jobs what their flows need, at each cluster they name.

    Of the flows out of these clusters, or of all; `failback`: of their failback.
    """
    needed: dict[str, list[JobRight]] = {}
    for route in run.routes(*clusters):
        flow = run.replica.topology.flows[route.flow]
        if failback:
            flow, route = structs.replace(flow, transform=None), route.turned()
        for cluster, right in rules.rights_needed(flow, route):
            needed.setdefault(cluster, []).append(right)
    kept = True
    for cluster, copy in run.replica.copies.items():
        if copy.exact and cluster in needed:
            missing = rules.lacking(run.replica, cluster, needed[cluster])
            essential = [str(right) for right in missing if right.essential]
            others = [str(right) for right in missing if not right.essential]
            measured = f"it lacks {', '.join(essential)}" if essential else "all that copying needs"
            if others:
                measured += f"; what it may not do stands in the flow's notes: {', '.join(others)}"
            what = "the failback needs" if failback else "the flows need"
            kept &= run.promise(
                f"the jobs' principal {copy.declared or ''} has the rights at {cluster} that {what}",
                "all that copying needs",
                measured,
                _DECLARE,
                kept=not essential,
            )
    return kept


def transformed(run: ScenarioRun, flow: str) -> bool:
    """The transform of a flow took each record: it let it through or left it out, and none was bad."""
    view = next(view for view in run.status().flows if view.name == flow)
    arrived = sum(partition.records for partition in view.partitions)
    return run.promise(
        f"the transform of {flow} takes each record",
        "0 bad",
        f"{view.quarantined:,} bad, {arrived:,} arrived, {view.dropped:,} left out by where",
        "their values do not match the format, or an expression fails on them: look at repl try",
        kept=not view.quarantined,
    )


def protected(run: ScenarioRun, cluster: str) -> None:
    """Promises that no other principal can write the protected mirrors of a cluster's flows."""
    routes = [route for route in run.routes(cluster) if route.protected]
    text = "{other} can't write the mirrors of {flow} at {cluster}, though a rule lets it"
    why = "protect: acl left a way to write: look at the warnings of repl plan"
    _promise_mirrors(run, routes, rules.writable, text, why, none=True)


def given_back(run: ScenarioRun, cluster: str) -> None:
    """Promises that the rules of these mirrors apply again after a failover."""
    routes = [route for route in run.routes(cluster) if route.protected]
    text = "after the failover, {other} may write the mirrors of {flow} at {cluster}"
    _promise_mirrors(run, routes, rules.writable, text, "protect: acl still denies it: look at repl plan")


def rules_synced(run: ScenarioRun, cluster: str) -> None:
    """Promises that rules on topics of a cluster are at their mirrors, where `acls.sync` is on."""
    routes = [route for route in run.routes(cluster) if route.rules_synced]
    why = "acls.sync did not bring them: look at repl plan and the notes of the flow"
    _promise_mirrors(run, routes, rules.readable, "rules on the topics of {flow} are at {cluster}", why)


def _promise_mirrors(
    run: ScenarioRun,
    routes: Iterable[DrillRoute],
    read: Callable[[Replica, str, set[str]], set[str]],
    text: str,
    why: str,
    *,
    none: bool = False,
) -> None:
    """Promises of each flow that brokers name all of its mirrors, or none, as soon as they do."""
    mirrors: dict[tuple[str, str], set[str]] = {}
    for route in routes:
        mirrors.setdefault((route.flow, route.destination), set()).add(route.mirror)
    for (flow, cluster), topics in sorted(mirrors.items()):
        wanted = set() if none else topics
        shown: set[str] = set()

        def differ(cluster: str = cluster, topics: set[str] = topics, wanted: set[str] = wanted) -> bool:
            nonlocal shown
            shown = read(run.replica, cluster, topics)
            return shown != wanted

        run.wait_while(differ, within_s=rules.WITHIN_S)
        run.promise(
            text.format(other=OTHER, flow=flow, cluster=cluster),
            f"{len(wanted)} of {len(topics)} topics",
            f"{len(shown)} of {len(topics)} topics",
            why,
            kept=shown == wanted,
        )


@demand("nothing is orphaned")
def no_orphans(run: ScenarioRun) -> bool:
    """No topic is at a cluster that the topology does not know, and no process is left where no flow runs."""
    topology = run.replica.topology
    declared = {(topic.cluster, topic.name) for topic in topology.topics}
    declared |= {(route.source, route.topic) for route in run.routes()}
    declared |= {(route.destination, route.mirror) for route in run.routes()}
    orphans = [
        f"topic {topic} at {cluster}"
        for cluster in topology.clusters
        for topic in run.topics(cluster)
        if not topic.startswith("__") and (cluster, topic) not in declared
    ]
    if not any(flow.runs for flow in run.replica.declared().flows.values()) and run.replica.processes():
        orphans.append("a job without a running flow")
    why = "no topology manages it any more"
    return run.promise("nothing is orphaned", "nothing", ", ".join(orphans) or "nothing", why)


@demand("salvage lists {count} records of {flow}")
def salvage(run: ScenarioRun, count: int, flow: str) -> bool:
    """`repl salvage` finds so many records at the source that never reached the destination."""
    done = run.run("", "salvage", flow, "--json")
    if done.returncode:
        raise DrillAborted(f"repl salvage {flow} failed: {printed(done)}")
    records = int(json.loads(done.stdout)["records"])
    why = "these records are at the source alone"
    return run.promise(f"records that repl salvage lists of {flow}", count, records, why)


@demand("the plan shows no changes")
def no_changes(run: ScenarioRun) -> bool:
    """`repl plan --detailed-exitcode` exits with 0."""
    done = run.run("", "plan", "--detailed-exitcode")
    why = "the clusters no longer match the topology: look at the plan"
    return run.promise("a plan shows no changes", "exit code 0", f"exit code {done.returncode}", why)


@demand('the plan shows "{text}"')
def plan_shows(run: ScenarioRun, text: str) -> bool:
    """`repl plan` prints this text."""
    done = run.run("", "plan")
    measured = "printed" if text in done.stdout else "not printed"
    return run.promise(f'repl plan says "{text}"', "printed", measured, f"it printed: {printed(done)}")


@demand("repl status shows {flow} as {state}")
def state(run: ScenarioRun, flow: str, state: str) -> bool:
    """The flow, or one of its partitions, comes to this state within four minutes."""
    shown: list[str] = []

    def missing() -> str:
        for view in run.status().flows:
            if view.name == flow:
                shown[:] = sorted({view.state, *(name for name, count in view.states.items() if count)})
        return "" if state in shown else f"{flow} is {', '.join(shown) or 'not shown'}"

    kept = run.wait_while(missing)
    measured = ", ".join(shown) or "no such flow"
    return run.promise(
        f"repl status shows {flow} as {state}", state, measured, "look at repl status", kept=kept
    )


@demand("no job is running")
def no_job(run: ScenarioRun) -> bool:
    """No process of a job is left."""
    run.wait_while(run.replica.processes)
    left = f"{run.replica.processes()} processes"
    return run.promise("no job is running", "0 processes", left, "look at repl status")


@demand("the exit code is {code}", judges=True)
def exit_code(run: ScenarioRun, code: int) -> None:
    """The last command ended with it."""
    done = run.last()
    _require(done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


@demand('the output says "{text}"', judges=True)
def output_says(run: ScenarioRun, text: str) -> None:
    """The last command printed this to stdout."""
    done = run.last()
    _require(text in done.stdout, f"stdout is {done.stdout!r}; stderr is {done.stderr!r}")


@demand('the output ends with "{text}"', judges=True)
def output_ends(run: ScenarioRun, text: str) -> None:
    """The last command printed this to stdout at its end."""
    done = run.last()
    _require(done.stdout.rstrip().endswith(text), f"stdout is {done.stdout!r}; stderr is {done.stderr!r}")


@demand('the message says "{text}"', judges=True)
def message_says(run: ScenarioRun, text: str) -> None:
    """The last command printed this to stderr."""
    done = run.last()
    _require(text in done.stderr, f"stderr is {done.stderr!r}; stdout is {done.stdout!r}")


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise AssertionError(why)
