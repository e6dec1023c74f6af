"""Compares desired jobs with those that run, and returns which are started, changed or stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import msgspec

from planner.diff.compare import changed_fields
from planner.diff.compared import (
    ADOPTED,
    AS_APPLIED,
    OUTSIDE,
    REMEMBERED,
    ComparedKind,
    unreachable,
)
from planner.diff.record import (
    DESTINATION,
    JOBS,
    LAUNCH,
    REGISTRY,
    STATE,
    DestinationJobs,
    blocked,
    destination_jobs,
    elsewhere,
    forgotten_at_destination,
    job_entry,
    left_over,
    names_of,
    of_another_release,
    wanted_jobs,
)
from planner.diff.typed_values import (
    flow_states,
    job_values,
    launch_values,
    metrics_values,
    reached_values,
    running_values,
    same_flow,
    same_job,
)
from planner.model.address import Kind, job_address
from planner.model.change import Action, Change, FieldChange, Value
from planner.model.desired import Desired, DesiredJob
from planner.model.observed import LiveJob, Observed, ObservedCluster, RegistryEntry
from planner.model.times import utc
from runtime.contract.client.stores import Setting
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.restarts import regrouped

EXACTLY = "every partition resumes exactly where its ledger says"


class ComparedJobs(ComparedKind):
    """Jobs, at their destination."""

    parts = (JOBS, REGISTRY)

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        """Returns a change for every job that is desired, runs, or is recorded at a destination."""
        jobs_by_destination = destination_jobs(observed)
        changes: list[Change] = []
        wanted: set[str] = set()
        for job, spec in wanted_jobs(desired):
            wanted.add(job.job.name)
            known_jobs = jobs_by_destination.get(spec.destination)
            if known_jobs is None:
                changes.append(unreachable(job.address, spec.destination, observed))
            else:
                before = elsewhere(job.address, spec.destination, desired.topology, jobs_by_destination)
                change = (
                    blocked(job.address, job.job.name, known_jobs, desired.topology)
                    or of_another_release(job.address, job.job.name, before)
                    or _change(job, spec, known_jobs, before)
                )
                changes += (change,) if change is not None else ()
        for address, known_jobs in left_over(Kind.JOB, wanted, desired.topology, jobs_by_destination):
            changes.append(
                of_another_release(address, address.name, (known_jobs,))
                or _stopped(address.name, known_jobs, "no flow names it any more")
            )
        return changes

    def drift(self, entry: RegistryEntry, cluster: ObservedCluster) -> Change:
        live = cluster.job(entry.address.name)
        if live is not None and live.live:
            return Change(entry.address, Action.NO_OP, AS_APPLIED)
        field = FieldChange((STATE,), "running", "not running", note=_last_heartbeat(live))
        states = {STATE: "running"}, {STATE: "not running"}
        return Change(entry.address, Action.UPDATE, OUTSIDE, (field,), *states)


def _change(
    job: DesiredJob, spec: JobSpec, known_jobs: DestinationJobs, before: Sequence[DestinationJobs]
) -> Change | None:
    name = job.job.name
    if not job.needed:
        held = known_jobs.job_entry(name) is not None or known_jobs.runs(name)
        places = (known_jobs, *before) if held else before
        ended = "all its flows are promoted or failed over"
        return _stopped(name, places[0], ended) if places else None
    entry, live = known_jobs.job_entry(name), known_jobs.job(name)
    runs = live is not None and live.live
    change = (
        _running(job, spec, entry, live) if live is not None and runs else _started(job, spec, entry, live)
    )
    return _moved(change, spec, known_jobs, before) if before else change


def _started(job: DesiredJob, spec: JobSpec, entry: RegistryEntry | None, live: LiveJob | None) -> Change:
    """Returns the change of a job that is new, or that stopped without repl."""
    copies = ", ".join(f"flow.{name}" for name in job.flows)
    reason = f"copies {copies}"
    notes: tuple[str, ...] = ()
    if entry is not None:
        reason = f"not running: {_last_heartbeat(live)}; it copies {copies}"
        notes = (EXACTLY,)
    return Change(
        address=job.address,
        action=Action.CREATE,
        reason=reason,
        fields=tuple(
            FieldChange((key,), None, value)
            for key, value in {**launch_values(spec), **running_values(spec)}.items()
            if key in _SHOWN or (key in _SHOWN_IF_SET and value)
        ),
        after=_state(spec),
        notes=notes,
    )


_SHOWN = ("flows", "launcher", "master", "memory", "slots", "metrics")
_SHOWN_IF_SET = ("conf", "options")


def _last_heartbeat(live: LiveJob | None) -> str:
    """Says when a job was last heard of."""
    if live is None:
        return "it never sent a heartbeat"
    if live.unreadable:
        return live.unreadable
    at = utc(live.at_ms, "%Y-%m-%d %H:%M:%S UTC")
    return f"last heartbeat {at}" + (", when it said that it stopped" if live.state == "stopped" else "")


def _running(job: DesiredJob, spec: JobSpec, entry: RegistryEntry | None, live: LiveJob) -> Change:
    before = live.spec
    if before is None:
        forced: Sequence[FieldChange] = (FieldChange(("spec",), "another release's", "this release's"),)
        edits: Sequence[FieldChange] = ()
    else:
        spec = with_files_of(before, spec)
        forced = _forced(before, spec)
        edits = changed_fields(running_values(before), running_values(spec))
    action, reason = Action.NO_OP, "runs as declared"
    notes: tuple[str, ...] = ()
    if forced:
        action = Action.REPLACE
        reason = f"will be restarted: {_named(forced)}: a running job can't take that over"
        notes = (f"all its flows pause for seconds while it restarts{_lag(live)}; then {EXACTLY}",)
    elif before is not None and not same_job(before, spec):
        action = Action.UPDATE
        reason = _without_restart(before, spec)
    elif live.ending:
        action = Action.UPDATE
        reason = f"not complete yet: the end of {', '.join(f'flow.{name}' for name in live.ending)}"
    elif entry is None:
        reason = ADOPTED
    elif entry.spec != job_entry(spec, "").spec:
        action, reason = Action.UPDATE, REMEMBERED
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
        unchanged=len(launch_values(spec).keys() - {field.key for field in forced}) if fields else 0,
        adopted=entry is None,
        notes=notes,
    )


def _forced(before: JobSpec, after: JobSpec) -> tuple[FieldChange, ...]:
    """Returns the fields that take effect only after a restart of the job.

    These are the launch, the addresses and logins of clusters and schema registries, and the transforms,
    because a slot evaluates the same transform as long as it runs. A cluster that no flow names now is not
    compared.
    """
    names = after.clusters.keys() | after.registries.keys()
    return (
        *changed_fields(launch_values(before), launch_values(after)),
        *changed_fields(reached_values(before, names), reached_values(after)),
        *(
            FieldChange((f"{_fixed(before, after, name)} of flow.{name}",), "as it runs", "as declared")
            for name in regrouped(before, after)
        ),
    )


def _fixed(before: JobSpec, after: JobSpec, name: str) -> str:
    """Returns which setting that a job reads only at its start has changed."""
    flow = after.flow(name)
    if flow.schemas.sync and before.registries != after.registries:
        return "schema registries"
    same_files = flow.folder is None or flow.reached in [running.reached for running in before.flows]
    return "transform" if same_files else "files"


def _named(forced: Sequence[FieldChange]) -> str:
    """Returns the names of these fields, each once. A cluster that is new to the job is named as a whole."""
    keys = [field.key for field in forced]
    added = {
        name
        for field in forced
        if (name := field.key.removesuffix(".bootstrap")) != field.key
        and field.key.startswith("clusters.")
        and field.old is None
    }
    shown = [next((name for name in added if key.startswith(f"{name}.")), key) for key in keys]
    return ", ".join(dict.fromkeys(shown))


def _lag(live: LiveJob) -> str:
    behind = sum(live.lag.values())
    return f": {behind:,} records are waiting now, and what comes meanwhile" if behind else ""


def _without_restart(before: JobSpec, after: JobSpec) -> str:
    """Returns the reason of a change that the job takes over while it runs."""
    older = {flow.name: flow for flow in before.flows}
    newer = {flow.name: flow for flow in after.flows}
    gone_or_new = older.keys() ^ newer.keys()
    edited = {name for name in older.keys() & newer.keys() if not same_flow(older[name], newer[name])}
    names = sorted(gone_or_new | edited)
    if not names and before.routes != after.routes:
        return "reconfigured without a restart: it gets the routes of the other flows"
    about = f": {', '.join(f'flow.{name}' for name in names)}" if names else ""
    return f"reconfigured without a restart{about}"


def _moved(change: Change, spec: JobSpec, here: DestinationJobs, before: Sequence[DestinationJobs]) -> Change:
    """Returns the change of a job that leaves other destinations, those of `before`.

    `change` is what happens to it at its new destination, `here`.
    """
    there = next((place for place in before if place.runs(spec.job)), None)
    if here.runs(spec.job) and there is None:
        return forgotten_at_destination(change, before, spec.destination)
    old = there.job(spec.job) if there is not None else None
    old_spec = old.spec if old is not None else None
    fields = (
        FieldChange((DESTINATION,), names_of(before), spec.destination),
        *(changed_fields(_moved_values(old_spec), _moved_values(spec)) if old_spec is not None else ()),
    )
    return replace(
        change,
        action=Action.REPLACE,
        reason=f"moves from {names_of(before)} to {spec.destination}: stopped at {names_of(before)} first",
        fields=fields,
        before=_moved_state(old_spec) if old_spec is not None else {DESTINATION: names_of(before)},
        after=_moved_state(spec),
        unchanged=0,
        adopted=False,
    )


def _moved_values(spec: JobSpec) -> dict[str, Value]:
    return {**flow_states(spec), **launch_values(spec), **metrics_values(spec)}


def _moved_state(spec: JobSpec) -> dict[str, object]:
    return {DESTINATION: spec.destination, **_moved_values(spec)}


def _stopped(name: str, known_jobs: DestinationJobs, why: str) -> Change:
    live = known_jobs.job(name)
    runs = live is not None and live.live
    return Change(
        address=job_address(name),
        action=Action.DELETE,
        reason=f"stopped: {why}" if runs else f"not running any more: {why}",
        before=_state(live.spec) if live is not None and live.spec is not None else {STATE: "running"},
        notes=(f"leaves what is not copied{_lag(live)}",) if live is not None and runs and _lag(live) else (),
    )


def _state(spec: JobSpec) -> dict[str, object]:
    return dict(job_values(spec))


def with_files_of(running: JobSpec | None, wanted: JobSpec) -> JobSpec:
    """Returns the wanted spec with the paths by which the running job opens the files that it names.

    The same reference in another checkout is the same reference: the job goes on with the path it was started
    with, which exists on its machine.
    """
    if running is None:
        return wanted
    clusters = {
        name: msgspec.structs.replace(
            cluster, client=_files_of(running.clusters[name].client, cluster.client)
        )
        if name in running.clusters
        else cluster
        for name, cluster in wanted.clusters.items()
    }
    clients = {
        flow.endpoint.endpoint: flow.endpoint.client for flow in running.flows if flow.endpoint is not None
    }
    flows = [
        flow.with_endpoint(client=_files_of(clients[at.endpoint], at.client))
        if (at := flow.endpoint) is not None and at.endpoint in clients
        else flow
        for flow in wanted.flows
    ]
    return msgspec.structs.replace(wanted, clusters=clusters, flows=flows)


def _files_of(running: Mapping[str, Setting], wanted: Mapping[str, Setting]) -> dict[str, Setting]:
    return {
        key: running[key] if key in running and _same_file(running[key], value) else value
        for key, value in wanted.items()
    }


def _same_file(one: Setting, other: Setting) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict) or not one.keys() == other.keys() == {"file"}:
        return False
    paths = one["file"], other["file"]
    both_relative = all(jobspec.FROM_HERE in path for path in paths)
    # A job that an older release started has the path without its mark.
    return len(set(map(PurePath, paths))) == 1 or (
        both_relative and len(set(map(jobspec.written_path, paths))) == 1
    )
