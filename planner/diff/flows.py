"""Compares desired flows with the flows as they run, or as they were applied, and returns their changes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from planner.diff.compare import changed_fields
from planner.diff.compared import (
    ADOPTED,
    AS_APPLIED,
    NOT_DECLARED,
    OUTSIDE,
    ComparedKind,
    unreachable,
)
from planner.diff.fields import displayed
from planner.diff.record import (
    JOB,
    JOBS,
    REGISTRY,
    STATE,
    DestinationJobs,
    RecordedFlow,
    blocked,
    destination_jobs,
    elsewhere,
    flow_entry,
    forgotten_at_destination,
    left_over,
    names_of,
    of_another_release,
    recorded_flow,
    wanted_jobs,
)
from planner.diff.typed_values import flow_values, new_flow_values, same_flow
from planner.graph.messages import few
from planner.model.address import Kind, flow_address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Desired, DesiredFlow, DesiredJob
from planner.model.observed import Observed, ObservedCluster, RegistryEntry
from runtime.contract.spec.flow import ENDED, RUNNING, AtOffsets
from runtime.contract.spec.jobspec import FlowSpec, WithFiles
from runtime.contract.spec.selection import NamePatterns

RESUMES = "if it comes back it resumes from its ledger: nothing is lost or copied twice"
RESUMES_FROM_MANIFEST = "its files and their manifest stay: if it comes back it resumes from them"


class ComparedFlows(ComparedKind):
    """Flows, at their destination."""

    parts = (JOBS, REGISTRY)

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        """Returns a change for every flow that is desired, or that is still recorded at a destination."""
        jobs_by_destination = destination_jobs(observed)
        flows = {selected.flow.name: selected for selected in desired.flows}
        unselected = {
            selected.flow.name
            for selected in desired.flows
            if not selected.selection_known and selected.flow.runs
        }
        changes = [
            unreachable(flow_address(name), flows[name].flow.source_cluster, observed) for name in unselected
        ]
        wanted: set[str] = set()
        for job, spec in wanted_jobs(desired):
            wanted.update(job.flows)
            if spec.destination in jobs_by_destination:
                changes += (
                    _flow_change(flow, job, jobs_by_destination, desired.topology, flows.get(flow.name))
                    for flow in spec.flows
                    if flow.name not in unselected
                )
            else:
                changes += (
                    unreachable(flow_address(name), spec.destination, observed)
                    for name in job.flows
                    if name not in unselected
                )
        for address, known_jobs in left_over(Kind.FLOW, wanted, desired.topology, jobs_by_destination):
            changes.append(
                of_another_release(address, "", (known_jobs,))
                or _removed(known_jobs.entries[address], known_jobs)
            )
        return changes

    def drift(self, entry: RegistryEntry, cluster: ObservedCluster) -> Change:
        applied = recorded_flow(entry)
        now = DestinationJobs(cluster, {entry.address: entry}).flow(entry.address.name, "")
        if applied is None or now is None:
            return Change(entry.address, Action.NO_OP, AS_APPLIED)
        before, after = flow_values(applied), flow_values(now.spec)
        fields = changed_fields(before, after)
        return Change(
            entry.address,
            Action.UPDATE if fields else Action.NO_OP,
            OUTSIDE if fields else AS_APPLIED,
            fields,
            before=before,
            after=after,
            unchanged=len(before) - len(fields),
        )


def _flow_change(
    flow: FlowSpec,
    job: DesiredJob,
    jobs_by_destination: Mapping[str, DestinationJobs],
    topology: str,
    wanted: DesiredFlow | None,
) -> Change:
    known_jobs = jobs_by_destination[flow.destination]
    address = flow_address(flow.name)
    if (stopped_by := blocked(address, job.job.name, known_jobs, topology)) is not None:
        return stopped_by
    before = elsewhere(address, flow.destination, topology, jobs_by_destination)
    if (unread := of_another_release(address, job.job.name, before)) is not None:
        return unread
    if before and not known_jobs.has(flow.name, job.job.name):
        return _moved(_new(flow, job, known_jobs, wanted), flow, job.job.name, before)
    change = _compared(flow, job, known_jobs, topology, wanted)
    return forgotten_at_destination(change, before, flow.destination) if before else change


def _compared(
    flow: FlowSpec, job: DesiredJob, known_jobs: DestinationJobs, topology: str, wanted: DesiredFlow | None
) -> Change:
    address = flow_address(flow.name)
    entry = known_jobs.flow_entry(flow.name)
    after = flow_values(flow)
    recorded = known_jobs.flow(flow.name, job.job.name)
    if recorded is None:
        return _new(flow, job, known_jobs, wanted)
    before = recorded.spec
    fields = _with_provenance_reason(changed_fields(flow_values(before), after), wanted)
    if recorded.job != job.job.name:
        fields = (*fields, FieldChange(("job",), recorded.job, job.job.name))
    if not fields:
        fields = _recorded(entry, flow_entry(flow, job.job.name, topology))
    now_promoted = NamePatterns(promoted_patterns(fields)[0])
    promoted = [topic for topic in wanted.promoted if now_promoted.match(topic)] if wanted is not None else []
    if fields:
        moved = any(field.key == "state" for field in fields)
        reason = "its state changes" if moved else "the topology changed"
    else:
        reason = ADOPTED if entry is None else "declared"
    return Change(
        address=address,
        action=Action.UPDATE if fields else Action.NO_OP,
        reason=f"promoted topics: {few(promoted, _SHOWN)}" if promoted else reason,
        fields=fields,
        before=dict(flow_values(before)),
        after=after,
        unchanged=len(after) - len(fields),
        adopted=entry is None,
        notes=(*_promoted_notes(fields, wanted, promoted), *_notes(fields, flow)),
    )


def _moved(change: Change, flow: FlowSpec, job: str, before: Sequence[DestinationJobs]) -> Change:
    """Returns the change of a flow that leaves other destinations; `change` creates it at the new one."""
    old = before[0]
    recorded = old.flow(flow.name, job)
    after = flow_values(flow)
    fields: tuple[FieldChange, ...] = (FieldChange(("to",), old.cluster.name, flow.destination),)
    if recorded is not None:
        fields = changed_fields(flow_values(recorded.spec), after)
        if recorded.job != job:
            fields = (*fields, FieldChange(("job",), recorded.job, job))
    start = displayed(("start",), after["start"])
    begins = f"nothing of it is at {flow.destination}: it begins by its start, {start}"
    more = () if change.notes else (begins,)  # a note about its ledger says where it resumes
    return replace(
        change,
        action=Action.REPLACE,
        reason=f"moves from {names_of(before)} to {flow.destination}: it ends at {names_of(before)} first",
        fields=fields,
        before=dict(flow_values(recorded.spec)) if recorded is not None else {"to": old.cluster.name},
        unchanged=len(after) - len(fields) if recorded is not None else 0,
        notes=(*change.notes, *_left_at_old_destinations(flow, recorded, before), *more),
    )


def _left_at_old_destinations(
    flow: FlowSpec, recorded: RecordedFlow | None, before: Sequence[DestinationJobs]
) -> tuple[str, ...]:
    owner = recorded.job if recorded is not None else ""
    notes = [
        f"at {place.cluster.name}: {note}"
        for place in before
        for note in _left_behind(flow.name, owner, place)
    ]
    return (
        *notes,
        f"its topics and its ledger stay at {names_of(before)}: moved back, it resumes from them",
    )


# By the end of the flow that is files.
_DONE: Mapping[WithFiles, str] = {"": "copied", "into": "written", "from": "read"}
_MOVED_BACK: Mapping[WithFiles, str] = {"": RESUMES, "into": RESUMES_FROM_MANIFEST, "from": RESUMES}
_RESUMES: Mapping[WithFiles, str] = {
    "": "its ledger is there (generation {generation}): every partition that it knows resumes where it stood,"
    " and start is for others alone",
    "into": "where {folder} has its manifest, it resumes from that, and not by start",
    "from": "its ledger is there (generation {generation}): every file that it knows resumes where it stood",
}


def _new(flow: FlowSpec, job: DesiredJob, known_jobs: DestinationJobs, wanted: DesiredFlow | None) -> Change:
    return Change(
        flow_address(flow.name),
        Action.CREATE,
        f"{_DONE[flow.with_files]} by job.{job.job.name}",
        _new_fields(flow, wanted),
        after=dict(flow_values(flow)),
        notes=_resuming(flow, known_jobs),
    )


_NEVER = frozenset({"origin_commits"})  # the language gives every flow one
_UNDONE = frozenset({"topics.include", "topics.exclude", "rename"})  # a failback shows the topics instead


def _new_fields(flow: FlowSpec, wanted: DesiredFlow | None) -> tuple[FieldChange, ...]:
    """Returns the fields of a new flow, with the reason for its provenance and the topics of a failback."""
    names = wanted.topics if wanted is not None and flow.reverse_of is not None else ()
    fields = []
    for name, value in new_flow_values(flow).items():
        if name == "provenance" and names:
            fields.append(FieldChange(("topics",), None, dict(names)))
        if name not in _NEVER and not (names and name in _UNDONE):
            fields.append(FieldChange((name,), None, value))
    return _with_provenance_reason(tuple(fields), wanted)


def _with_provenance_reason(
    fields: tuple[FieldChange, ...], wanted: DesiredFlow | None
) -> tuple[FieldChange, ...]:
    """Adds to the field `provenance` why `auto` came to its value."""
    if wanted is None or not wanted.provenance_reason:
        return fields
    note = f"auto: {wanted.provenance_reason}"
    return tuple(replace(field, note=note) if field.key == "provenance" else field for field in fields)


def _resuming(flow: FlowSpec, known_jobs: DestinationJobs) -> tuple[str, ...]:
    """Returns the note about a flow that has a ledger: it resumes from it, and `start` does not apply."""
    generation = known_jobs.cluster.generations.get(flow.name)
    if generation is None or flow.restart_from is not None:
        return ()
    return (_RESUMES[flow.with_files].format(folder=flow.folder, generation=generation.number),)


def _recorded(entry: RegistryEntry | None, wanted: RegistryEntry) -> tuple[FieldChange, ...]:
    """Returns a field if the flow runs as wanted and an apply was cut short before it wrote that down."""
    if entry is None or entry.spec == wanted.spec:
        return ()
    then, now = recorded_flow(entry), recorded_flow(wanted)
    alike = all(entry.spec.get(key) == wanted.spec[key] for key in (JOB, STATE))
    if alike and then is not None and now is not None and same_flow(then, now):
        return ()
    return (FieldChange(("recorded", "spec"), "as before", "as it runs", note="remembered at the cluster"),)


def _notes(fields: Iterable[FieldChange], flow: FlowSpec) -> tuple[str, ...]:
    keys = {field.key for field in fields}
    notes = []
    if "restart_from" in keys and flow.restart_from is not None:
        start = displayed(("restart_from",), flow_values(flow)["restart_from"])
        notes.append(
            f"starts over at {start}: what was copied from there on is copied a"
            " second time, behind what is there"
        )
        if isinstance(flow.restart_from, AtOffsets):
            notes.append("partitions that restart_from does not name stay where they are")
    if "start" in keys:
        notes.append(
            "start is meant for topics that come new to the flow; those it copies go on where they are"
        )
    if any(_may_leave_topics(field) for field in fields):
        notes.append("mirror topics that it no longer fills stay as they are")
    return tuple(notes)


def _may_leave_topics(field: FieldChange) -> bool:
    """Returns whether the flow may copy fewer topics, or other ones, because this field changed."""
    gained, lost = set(_patterns(field.new)), set(_patterns(field.old))
    match field.key:
        case "topics.include":
            return not lost <= gained
        case "topics.exclude":
            return not gained <= lost
        case "topics.default_exclude":
            return field.new is True
        case key:
            return key in ("from", "rename")


def _removed(entry: RegistryEntry, known_jobs: DestinationJobs) -> Change:
    name = entry.address.name
    recorded = known_jobs.flow(name, "")
    before = flow_values(recorded.spec) if recorded is not None else None
    if recorded is not None and not recorded.spec.runs:
        notes: tuple[str, ...] = (f"it ended before: {recorded.spec.state}",)
    else:
        moved_back = _MOVED_BACK[recorded.spec.with_files if recorded is not None else ""]
        notes = (*_left_behind(name, recorded.job if recorded is not None else "", known_jobs), moved_back)
    return Change(
        address=entry.address,
        action=Action.DELETE,
        reason=NOT_DECLARED,
        before=before,
        notes=notes,
    )


def _left_behind(flow: str, job: str, known_jobs: DestinationJobs) -> tuple[str, ...]:
    """Returns the notes about records that are not copied yet, and about groups that are no longer synced."""
    notes = []
    live = known_jobs.job(job)
    if live is not None and (lag := live.lag.get(flow)) is not None:
        as_of = "" if live.live else ", as its job last said"
        records = "1 record" if lag == 1 else f"{lag:,} records"
        notes.append(f"leaves {records} uncopied at the source{as_of}" if lag else f"it is caught up{as_of}")
    else:
        notes.append(
            "the records that it leaves uncopied at the source are not known: no slot reports it now"
        )
    spec = live.flow(flow) if live is not None else None
    if spec is not None and spec.groups.sync:
        which = ", ".join(spec.groups.include)
        notes.append(f"offsets of the consumer groups {which} are no longer translated")
    return tuple(notes)


_SHOWN = 5  # names of promoted topics


def promoted_patterns(change_fields: Iterable[FieldChange]) -> tuple[list[str], list[str]]:
    """Returns the patterns that a flow's change adds to `promoted`, and those that it takes out of it."""
    for field in change_fields:
        if field.path == ("promoted",):
            old, new = _patterns(field.old), _patterns(field.new)
            return [word for word in new if word not in old], [word for word in old if word not in new]
    return [], []


def _patterns(value: object) -> Collection[str]:
    return value if isinstance(value, tuple) else ()


def _promoted_notes(
    fields: Iterable[FieldChange], flow: DesiredFlow | None, promoted: Collection[str]
) -> tuple[str, ...]:
    """Returns the consequences for topics that are promoted on their own; `promoted` are those of now."""
    if flow is None:
        return ()
    destination = flow.flow.destination_cluster
    if promoted:
        end = f"then their groups are moved a last time; from then on they are {destination}'s own to write"
        return (
            f"what is left of them is copied first, {end}",
            "the flow's other topics go on being copied; one that appears later and matches is not",
        )
    moved = next(((str(field.old), str(field.new)) for field in fields if field.path == ("state",)), None)
    if flow.promoted and moved is not None and moved[0] in ENDED and moved[1] in RUNNING:
        return (
            f"stays promoted, and is not copied to {destination} again: {few(flow.promoted, _SHOWN)}",
            "to have that copied again, take it out of promoted with this very change; later it is refused",
        )
    return ()
