"""Jobs as they are wanted × as they run → started, told anew, started over, stopped, or left alone."""

from collections.abc import Sequence
from datetime import UTC, datetime

from planner.diff.destination_jobs import (
    DestinationJobs,
    blocked,
    destination_jobs,
    elsewhere,
    left_over,
    wanted_jobs,
)
from planner.diff.moving import moved_job
from planner.diff.record import LAUNCH, STATE, job_entry
from planner.diff.spec_fields import (
    NOT_SET,
    job_fields,
    launch_fields,
    moved,
    reached_fields,
    running_fields,
    with_files_of,
)
from planner.diff.topics import ADOPTED
from planner.model.address import Kind, job_address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Desired, DesiredJob
from planner.model.observed import LiveJob, Observed
from planner.model.owned import RegistryEntry
from runtime.contract.spec.jobspec import JobSpec

EXACTLY = "every partition resumes exactly where its ledger says"


def job_changes(desired: Desired, observed: Observed) -> list[Change]:
    """One for every job whose destination could be read, wanted or left over."""
    found = destination_jobs(observed)
    changes: list[Change] = []
    wanted: set[str] = set()
    for job, destination in wanted_jobs(desired):
        wanted.add(job.job.name)
        standing = found.get(destination)
        if standing is None:
            why = f"(unknown: {destination} unreachable)"
            changes.append(Change(job.address, Action.UNKNOWN, why))
        else:
            before = elsewhere(job.address, destination, desired.topology, found)
            change = blocked(job.address, standing, desired.topology) or _change(job, standing, before)
            changes += (change,) if change is not None else ()
    for address, standing in left_over(Kind.JOB, wanted, desired.topology, found):
        changes.append(_stopped(address.name, standing, "no flow names it any more"))
    return changes


def _change(job: DesiredJob, standing: DestinationJobs, before: Sequence[DestinationJobs]) -> Change | None:
    name = job.job.name
    if not job.needed:
        held = standing.job_entry(name) is not None or standing.runs(name)
        places = (standing, *before) if held else before
        ended = "all its flows are promoted or failed over"
        return _stopped(name, places[0], ended) if places else None
    change = _wanted(job, standing)
    return moved_job(change, job, standing, before) if before else change


def _wanted(job: DesiredJob, standing: DestinationJobs) -> Change:
    spec, name = job.spec, job.job.name
    assert spec is not None
    entry, live = standing.job_entry(name), standing.job(name)
    if live is None or not live.live:
        return _started(job, spec, entry, live)
    return _running(job, spec, entry, live)


def _started(job: DesiredJob, spec: JobSpec, entry: RegistryEntry | None, live: LiveJob | None) -> Change:
    """A new one, or one that died outside of repl."""
    copies = ", ".join(f"flow.{name}" for name in job.flows)
    reason = f"copies {copies}"
    notes: tuple[str, ...] = ()
    if entry is not None:
        reason = f"not running: {last_heartbeat(live)}; it copies {copies}"
        notes = (EXACTLY,)
    return Change(
        address=job.address,
        action=Action.CREATE,
        reason=reason,
        fields=tuple(
            FieldChange((key,), None, value)
            for key, value in {**launch_fields(spec), **running_fields(spec)}.items()
            if key in _SHOWN or (key in _SHOWN_IF_SET and value)
        ),
        after=_state(spec),
        notes=notes,
    )


_SHOWN = ("flows", "launcher", "master", "memory", "slots", "metrics")
_SHOWN_IF_SET = ("conf", "options")


def last_heartbeat(live: LiveJob | None) -> str:
    if live is None:
        return "it never told of itself"
    at = datetime.fromtimestamp(live.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"last heartbeat {at}" + (", when it said that it stopped" if live.state == "stopped" else "")


def _running(job: DesiredJob, spec: JobSpec, entry: RegistryEntry | None, live: LiveJob) -> Change:
    before = live.spec
    if before is None:
        forced: Sequence[FieldChange] = (FieldChange(("spec",), "another release's", "this release's"),)
        edits: Sequence[FieldChange] = ()
    else:
        spec = with_files_of(before, spec)
        forced = _forced(before, spec)
        edits = moved(running_fields(before), running_fields(spec)) if before != spec else ()
    action, reason = Action.NO_OP, "runs as declared"
    notes: tuple[str, ...] = ()
    if forced:
        action = Action.REPLACE
        reason = f"will be restarted: {_named(forced)}: a running job can't take that over"
        notes = (f"all its flows pause for seconds while it restarts{_lag(live)}; then {EXACTLY}",)
    elif before != spec:
        action = Action.UPDATE
        reason = _without_restart(before, spec)
    elif entry is None:
        reason = ADOPTED
    elif entry.spec != job_entry(spec, "").spec:
        action, reason = Action.UPDATE, "only what is remembered of it changes"
        edits = (
            FieldChange(("recorded", LAUNCH), "as before", "as it runs", note="remembered at the cluster"),
        )
    fields = (*forced, *edits)
    return Change(
        address=job.address,
        action=action,
        reason=reason,
        fields=fields,
        before=_state(before) if before is not None else None,
        after=_state(spec),
        unchanged=len(launch_fields(spec).keys() - {one.key for one in forced}) if fields else 0,
        adopted=entry is None,
        notes=notes,
    )


def _forced(before: JobSpec, after: JobSpec) -> tuple[FieldChange, ...]:
    """What only a new start brings: what Spark is started with, and how clusters are reached.

    A cluster that no flow names any more forces nothing.
    """
    names = after.clusters.keys()
    return (
        *moved(launch_fields(before), launch_fields(after)),
        *moved(reached_fields(before, names), reached_fields(after)),
    )


def _named(forced: Sequence[FieldChange]) -> str:
    """Each key once; of a cluster that is new to the job its name alone."""
    keys = [one.key for one in forced]
    added = {one.key.removesuffix(".bootstrap") for one in forced if _is_added(one)}
    shown = [next((name for name in added if key.startswith(f"{name}.")), key) for key in keys]
    return ", ".join(dict.fromkeys(shown))


def _is_added(field: FieldChange) -> bool:
    return field.key.startswith("clusters.") and field.key.endswith(".bootstrap") and field.old == NOT_SET


def _lag(live: LiveJob) -> str:
    behind = sum(live.lag.values())
    return f": {behind:,} records are waiting now, and what comes meanwhile" if behind else ""


def _without_restart(before: JobSpec | None, after: JobSpec) -> str:
    """What the job is told; the other flows do not notice."""
    older = {flow.name: flow for flow in before.flows} if before is not None else {}
    newer = {flow.name: flow for flow in after.flows}
    names = sorted(name for name in {*older, *newer} if older.get(name) != newer.get(name))
    if not names and before is not None and before.routes != after.routes:
        return "reconfigured without a restart: it is told what the topology's other flows take"
    about = f": {', '.join(f'flow.{name}' for name in names)}" if names else ""
    return f"reconfigured without a restart{about}"


def _stopped(name: str, standing: DestinationJobs, why: str) -> Change:
    live = standing.job(name)
    runs = live is not None and live.live
    return Change(
        address=job_address(name),
        action=Action.DELETE,
        reason=f"stopped: {why}" if runs else f"not running any more: {why}",
        before=_state(live.spec) if live is not None and live.spec is not None else {STATE: "running"},
        notes=(f"leaves what is not copied{_lag(live)}",) if live is not None and runs and _lag(live) else (),
    )


def _state(spec: JobSpec) -> dict[str, object]:
    return dict(job_fields(spec))
