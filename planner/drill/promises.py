"""What a scenario may promise. Each function measures it, adds it to the report, and tells if it was kept."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from msgspec import structs

from planner.drill import rules
from planner.drill.lab_copy import OTHER
from planner.drill.replica import DrillRoute
from planner.drill.scenario_record import DrillAborted, ScenarioRecord
from planner.drill.scenario_run import DrillGroup, ScenarioRun, printed
from planner.graph.job_rights import JobRight
from planner.graph.routes import reason_not_synced
from runtime.contract.spec.flow import RUNNING


def rpo(run: ScenarioRecord, most: int | None) -> bool:
    """Acknowledged records that did not arrive: at most so many; None is no limit."""
    records = None if run.loss is None else run.loss.records
    return run.promise(
        "records that were acknowledged and did not arrive (RPO)",
        "any number" if most is None else f"at most {most:,}",
        "unknown" if records is None else f"{records:,}",
        kept=most is None or (records is not None and records <= most),
        why="they were not copied yet when the cluster was lost: flows copy asynchronously",
    )


def rpo_s(run: ScenarioRun, most_s: float) -> bool:
    """Acknowledged records that did not arrive were written in the last so many seconds."""
    seconds = None if run.loss is None else run.loss.seconds
    return run.promise(
        "age of the oldest record that did not arrive (RPO)",
        f"at most {most_s:g} s",
        "unknown" if seconds is None else f"{seconds:.1f} s",
        kept=seconds is not None and seconds <= most_s,
        why="they were not copied yet when the cluster was lost: flows copy asynchronously",
    )


def rto(run: ScenarioRecord, longest_s: float | None) -> bool:
    """The time from the loss until consumers read on."""
    return run.promise(
        "time from the loss until a consumer of each group read on (RTO)",
        "any time" if longest_s is None else f"at most {longest_s:g} s",
        "unknown" if run.rto_s is None else f"{run.rto_s:.1f} s",
        kept=longest_s is None or (run.rto_s is not None and run.rto_s <= longest_s),
        why="the failover takes too long for this limit",
    )


def limits(run: ScenarioRecord, rto_s: float | None, rpo_records: int | None) -> None:
    """Limits hold for the figures that a scenario measured; a limit that is None is none."""
    if rpo_records is not None and run.loss is not None:
        rpo(run, rpo_records)
    if rto_s is not None and run.rto_s is not None:
        rto(run, rto_s)


def resumed(run: ScenarioRun, group: DrillGroup, cluster: str, again: int = 0, skipped: int = 0) -> bool:
    """The group goes on where it stopped."""
    return run.promise(
        f"group {group.name} goes on at {cluster} where it stopped",
        f"{again:,} read again, {skipped:,} skipped",
        f"{group.again:,} read again, {group.skipped:,} skipped",
        kept=(group.again, group.skipped) == (again, skipped),
        why=_reason(run, group, cluster),
    )


def equal(run: ScenarioRun, clusters: Iterable[str] = ()) -> bool:
    """Both sides of each flow hold the same records."""
    different = _different(run, clusters)
    return run.promise(
        "both sides hold the same records, each once",
        "0 different",
        f"{different:,} different",
        kept=not different,
        why="compare the sides with repl verify",
    )


def in_order(run: ScenarioRun, topic: str, cluster: str, other: str) -> bool:
    """A topic holds the records of its copy or source at another cluster: each once, in their order."""
    same = run.topic_at_other_side(cluster, topic, other)
    here, there = run.partitions(cluster, topic), run.partitions(other, same)
    wrong = sorted(
        number
        for number in here.keys() | there.keys()
        if [one.id for one in here.get(number, ())] != [one.id for one in there.get(number, ())]
    )
    return run.promise(
        f"{topic} at {cluster} holds the records of {other}, each once and in order",
        f"{sum(map(len, there.values())):,} records, 0 partitions different",
        f"{sum(map(len, here.values())):,} records, {len(wrong):,} partitions different",
        kept=not wrong,
        why=f"partitions {', '.join(map(str, wrong))} differ: compare the sides with repl verify",
    )


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
        flow, one = run.replica.topology.flows[route.flow], route
        if failback:
            flow, one = structs.replace(flow, transform=None), route.turned()
        for cluster, found in rules.rights_needed(flow, [one]).items():
            needed.setdefault(cluster, []).extend(found)
    kept = True
    for cluster, job in run.replica.job_logins.items():
        if job.exact and cluster in needed:
            missing = rules.lacking(run.replica, cluster, needed[cluster])
            kept &= _has_rights(run, job.declared or "", cluster, missing, failback=failback)
    return kept


def _has_rights(
    run: ScenarioRun, principal: str, cluster: str, missing: list[JobRight], *, failback: bool
) -> bool:
    essential = [str(one) for one in missing if one.essential]
    others = [str(one) for one in missing if not one.essential]
    measured = f"it lacks {', '.join(essential)}" if essential else "all that copying needs"
    if others:
        measured += f"; what it may not do stands in the flow's notes: {', '.join(others)}"
    what = "the failback needs" if failback else "the flows need"
    return run.promise(
        f"the jobs' principal {principal} has the rights at {cluster} that {what}",
        "all that copying needs",
        measured,
        kept=not essential,
        why="declare them under acls, or set drill.job_rights: documented if they are managed elsewhere",
    )


def transformed(run: ScenarioRun, flow: str) -> bool:
    """The transform of a flow took each record: it let it through or left it out, and none was bad."""
    view = next(one for one in run.status().flows if one.name == flow)
    arrived = sum(one.records for one in view.partitions)
    return run.promise(
        f"the transform of {flow} takes each record",
        "0 bad",
        f"{view.quarantined:,} bad, {arrived:,} arrived, {view.dropped:,} left out by where",
        kept=not view.quarantined,
        why="their values do not match the format, or an expression fails on them: look at repl try",
    )


def protected(run: ScenarioRun, cluster: str) -> bool:
    """Promises that no other principal can write the protected mirrors of a cluster's flows."""
    return _may_write(
        run,
        rules.protected_routes(run.replica, run.routes(cluster)),
        "{other} can't write the mirrors of {flow} at {cluster}, though a rule lets it",
        "protect: acl left a way to write: look at the warnings of repl plan",
        wanted=False,
    )


def given_back(run: ScenarioRun, cluster: str) -> bool:
    """Promises that the rules of these mirrors apply again after a failover."""
    return _may_write(
        run,
        rules.protected_routes(run.replica, run.routes(cluster)),
        "after the failover, {other} may write the mirrors of {flow} at {cluster}",
        "protect: acl still denies it: look at repl plan",
        wanted=True,
    )


def _may_write(run: ScenarioRun, routes: list[DrillRoute], text: str, why: str, *, wanted: bool) -> bool:
    kept = True
    for flow, at, mirrors in _mirrors_of(routes):
        read = partial(rules.writable, run.replica, at, mirrors)
        found = _awaited(run, read, mirrors if wanted else set())
        right = len(mirrors) if wanted else 0
        kept &= run.promise(
            text.format(other=OTHER, flow=flow, cluster=at),
            f"{right} of {len(mirrors)} topics",
            f"{len(found)} of {len(mirrors)} topics",
            kept=len(found) == right,
            why=why,
        )
    return kept


def rules_synced(run: ScenarioRun, cluster: str) -> bool:
    """Rules on topics of a cluster are at their mirrors, where `acls.sync` is on."""
    kept = True
    for flow, at, mirrors in _mirrors_of(rules.synced_routes(run.replica, run.routes(cluster))):
        found = _awaited(run, partial(rules.readable, run.replica, at, mirrors), mirrors)
        kept &= run.promise(
            f"rules on the topics of {flow} are at {at}",
            f"{len(mirrors)} of {len(mirrors)} topics",
            f"{len(found)} of {len(mirrors)} topics",
            kept=found == mirrors,
            why="acls.sync did not bring them: look at repl plan and the notes of the flow",
        )
    return kept


def _awaited(run: ScenarioRun, read: Callable[[], set[str]], wanted: set[str]) -> set[str]:
    """Returns what is read, as soon as it is as wanted, or after some time."""
    found: set[str] = set()

    def holds() -> bool:
        found.clear()
        found.update(read())
        return found == wanted

    with suppress(DrillAborted):
        run.until(holds, "", rules.WITHIN_S)
    return found


def _mirrors_of(routes: Iterable[DrillRoute]) -> list[tuple[str, str, set[str]]]:
    """Returns each flow with its destination and the mirrors there."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in routes:
        found.setdefault((one.flow, one.destination), set()).add(one.mirror)
    return [(flow, at, mirrors) for (flow, at), mirrors in sorted(found.items())]


def no_changes(run: ScenarioRun) -> bool:
    """A plan finds nothing to do."""
    done = run.run("", "plan", "--detailed-exitcode")
    return run.promise(
        "a plan shows no changes",
        "exit code 0",
        f"exit code {done.returncode}",
        kept=done.returncode == 0,
        why="the clusters no longer match the topology: look at the plan",
    )


def output(run: ScenarioRun, text: str, *words: str) -> bool:
    """A command prints a text."""
    done = run.run("", *words)
    return run.promise(
        f'repl {" ".join(words)} says "{text}"',
        "printed",
        "printed" if text in done.stdout else "not printed",
        kept=text in done.stdout,
        why=f"it printed: {printed(done)}",
    )


def salvage(run: ScenarioRun, flow: str, count: int) -> bool:
    """Salvage finds so many records of a flow."""
    done = run.run("", "salvage", flow, "--json")
    if done.returncode:
        raise DrillAborted(f"repl salvage {flow} failed: {printed(done)}")
    found = int(json.loads(done.stdout)["records"])
    return run.promise(
        f"records that repl salvage lists of {flow}",
        f"{count:,}",
        f"{found:,}",
        kept=found == count,
        why="these records are at the source alone",
    )


def state(run: ScenarioRun, flow: str, state: str) -> bool:
    """The flow, or one of its partitions, comes to a state."""
    seen: set[str] = set()

    def reached() -> bool:
        view = run.status()
        for one in view.flows:
            if one.name == flow:
                seen.clear()
                seen.update({one.state, *(name for name, count in one.states.items() if count)})
        return state in seen

    with suppress(DrillAborted):
        run.until(reached, "")
    return run.promise(
        f"repl status shows {flow} as {state}",
        state,
        ", ".join(sorted(seen)) or "no such flow",
        kept=state in seen,
        why="look at repl status",
    )


def no_job(run: ScenarioRun) -> bool:
    """No process of a job is left."""
    with suppress(DrillAborted):
        run.until(lambda: not run.replica.processes(), "")
    left = run.replica.processes()
    return run.promise(
        "no job is running", "0 processes", f"{left} processes", kept=not left, why="look at repl status"
    )


def no_orphans(run: ScenarioRun) -> bool:
    """Clusters hold no topics that the topology does not know, and no job runs where no flow does."""
    found = [f"topic {topic} at {cluster}" for cluster, topic in run.replica.unknown_topics()]
    if not any(one.state in RUNNING for one in run.replica.flows().values()) and run.replica.processes():
        found.append("a job without a running flow")
    return run.promise(
        "nothing is orphaned",
        "nothing",
        ", ".join(found) or "nothing",
        kept=not found,
        why="no topology manages it any more",
    )


def _different(run: ScenarioRun, clusters: Iterable[str] = ()) -> int:
    """Returns how many records are not at both sides of each flow, each as often."""
    found = 0
    for route in run.compared(clusters):
        one = Counter(run.records(route.source, route.topic))
        other = Counter(run.records(route.destination, route.mirror))
        found += sum((one - other).values()) + sum((other - one).values())
    return found


def _reason(run: ScenarioRun, group: DrillGroup, cluster: str) -> str:
    """Returns why the group can't go on at the cluster where it stopped."""
    flows = run.replica.flows()
    for name in sorted({one.flow for one in run.routes_of(group) if one.destination == cluster}):
        if reason := reason_not_synced(flows[name], group.name):
            return f"{reason}, so its consumers start anew at {cluster}"
    return "its offsets were not translated exactly: look at repl offsets"
