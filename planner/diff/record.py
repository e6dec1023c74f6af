"""Writes and reads what the registry remembers of an object (`RegistryEntry.spec`), and of jobs.

A topic: `partitions`, `replication`, `config.<key>` and `id` (the topic's id); a mirror topic also
`source.cluster` and `source.topic`; a declared one that a flow fills also `mirrored`; `before.<key>` while a
failback lifts a limit. An ACL: the fields of its rule, `announced` until it is made, and
`replaced` where `protect: acl` has taken it away. A quota: the parts of its entity and its limits, and
`announced` until it is made. The flows and jobs of a destination are what the registry there recorded, and
what runs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from planner.diff.compared import REMEMBERED, unknown, unreadable
from planner.model.address import Address, Kind, flow_address, job_address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import (
    Declared,
    Desired,
    DesiredAcl,
    DesiredJob,
    DesiredQuota,
    DesiredTopic,
    MirroredBy,
)
from planner.model.observed import (
    BEFORE,
    CONFIG,
    ID,
    MIRRORED,
    REPLACED,
    SOURCE_CLUSTER,
    SOURCE_TOPIC,
    LiveJob,
    Observed,
    ObservedCluster,
    RegistryEntry,
    quota_spec,
)
from runtime.contract.records.registry import ANNOUNCED
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec

PARTITIONS = "partitions"
REPLICATION = "replication"


def topic_spec(topic: DesiredTopic, topic_id: str | None) -> dict[str, str]:
    spec = {CONFIG + key: value for key, value in sorted(topic.config.items())}
    spec |= {BEFORE + key: value for key, value in sorted(topic.before.items())}
    if topic.partitions is not None:
        spec[PARTITIONS] = str(topic.partitions)
    if topic.replication is not None:
        spec[REPLICATION] = str(topic.replication)
    if topic_id:
        spec[ID] = topic_id
    match topic.origin:
        case MirroredBy(source_cluster=cluster, source_topic=name):
            spec[SOURCE_CLUSTER] = cluster
            spec[SOURCE_TOPIC] = name
        case Declared() if topic.mirrored:
            spec[MIRRORED] = ",".join(sorted(topic.mirrored))
    return spec


def topic_entry(topic: DesiredTopic, topology: str, topic_id: str | None, *, created: bool) -> RegistryEntry:
    return RegistryEntry(
        address=topic.address,
        topology=topology,
        spec=topic_spec(topic, topic_id),
        protect=topic.protect,
        on_remove=topic.on_remove,
        origin=topic.origin.text,
        created=created,
    )


def acl_entry(acl: DesiredAcl, topology: str, *, created: bool) -> RegistryEntry:
    return RegistryEntry(
        address=acl.address,
        topology=topology,
        spec=acl.rule.spec | ({REPLACED: "true"} if acl.replaced else {}),
        origin=acl.origin if isinstance(acl.origin, str) else acl.origin.text,
        created=created,
    )


def quota_entry(quota: DesiredQuota, topology: str, *, created: bool) -> RegistryEntry:
    return RegistryEntry(
        address=quota.address,
        topology=topology,
        spec=quota_spec(quota.entity, quota.values),
        origin=quota.origin.text,
        created=created,
    )


def announced(entry: RegistryEntry) -> RegistryEntry:
    """Marks the entry of an object that is about to be created: an interrupted apply leaves it owned."""
    return structs.replace(entry, spec={**entry.spec, ANNOUNCED: "true"})


JOB = "job"
STATE = "state"
SPEC = "spec"
LAUNCH = "launch"


def flow_entry(flow: FlowSpec, job: str, topology: str) -> RegistryEntry:
    """Returns the entry of a flow as it is applied now, for the registry at its destination."""
    spec = {JOB: job, STATE: flow.state, SPEC: _json(flow)}
    return RegistryEntry(flow_address(flow.name), topology, spec, created=True)


def job_entry(spec: JobSpec, topology: str) -> RegistryEntry:
    """Returns the entry of a job: that it is to run, and how it was started."""
    return RegistryEntry(
        job_address(spec.job), topology, {STATE: "running", LAUNCH: _json(spec.launch)}, created=True
    )


def recorded_flow(entry: RegistryEntry | None) -> FlowSpec | None:
    """Returns the recorded flow; None where there is none, or a newer release wrote it."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.spec.get(SPEC, ""), type=FlowSpec)
    except msgspec.DecodeError:
        return None


def recorded_launch(entry: RegistryEntry | None) -> LaunchSpec | None:
    """Returns how a job was started; None where a newer release wrote it."""
    if entry is None or LAUNCH not in entry.spec:
        return LaunchSpec()
    try:
        return msgspec.json.decode(entry.spec[LAUNCH], type=LaunchSpec)
    except (msgspec.DecodeError, RecursionError):
        return None


def _json(value: msgspec.Struct) -> str:
    """Returns the JSON of every field, with defaults, so that equal values have the same text."""
    return msgspec.json.encode(whole(value), order="deterministic").decode()


def whole(value: object) -> object:
    """Returns the plain tree of a value with every field, also where it holds its default."""
    match value:
        case msgspec.Struct():
            fields = {name: whole(getattr(value, name)) for name in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return fields if tag is None else {"type": tag, **fields}
        case dict():
            return {str(key): whole(part) for key, part in value.items()}
        case list() | tuple():
            return [whole(part) for part in value]
        case _:
            return value


JOBS = "jobs"  # the key of ObservedCluster.unreadable
REGISTRY = "registry"
DESTINATION = "destination"


class RecordedFlow(NamedTuple):
    """A flow as it is at its destination, and the name of its job."""

    spec: FlowSpec
    job: str


class DestinationJobs(Struct, frozen=True):
    """A destination with its registry's entries of flows and jobs, and with its jobs."""

    cluster: ObservedCluster
    entries: Mapping[Address, RegistryEntry]

    @staticmethod
    def at(cluster: ObservedCluster) -> "DestinationJobs":
        kinds = (Kind.FLOW, Kind.JOB)
        return DestinationJobs(
            cluster, {entry.address: entry for entry in cluster.owned if entry.address.kind in kinds}
        )

    def job(self, name: str) -> LiveJob | None:
        return self.cluster.job(name)

    def job_entry(self, name: str) -> RegistryEntry | None:
        return self.entries.get(job_address(name))

    def flow_entry(self, name: str) -> RegistryEntry | None:
        return self.entries.get(flow_address(name))

    def flow(self, name: str, job: str) -> RecordedFlow | None:
        """Returns the flow as it is now, with its job; `job` is its job where nothing is recorded.

        A job that runs is believed first, then the registry, then a job that no longer runs.
        """
        entry = self.flow_entry(name)
        owner = entry.spec.get(JOB, job) if entry is not None else job
        running = self.job(owner)
        runs = running.flow(name) if running is not None else None
        if runs is not None and running is not None and running.live:
            return RecordedFlow(runs, owner)
        recorded = recorded_flow(entry)
        if recorded is not None:
            return RecordedFlow(recorded, owner)
        return RecordedFlow(runs, owner) if runs is not None else None

    def holds(self, address: Address, topology: str) -> bool:
        """Returns whether the topology owns this object, by the registry or by a running job."""
        entry = self.entries.get(address)
        if entry is not None or address.kind is not Kind.JOB:
            return entry is not None and entry.topology == topology
        running = self.job(address.name)
        return running is not None and running.live and running.topology == topology

    def held(self, topology: str) -> list[Address]:
        """Returns the flows and jobs that the topology owns here."""
        jobs = (job_address(job.name) for job in self.cluster.jobs)
        return sorted(address for address in {*self.entries, *jobs} if self.holds(address, topology))

    def has(self, flow: str, job: str) -> bool:
        """Returns whether the flow is recorded here, or copied by its job."""
        running = self.job(job)
        copies = running is not None and running.live and running.flow(flow) is not None
        return copies or self.flow_entry(flow) is not None

    def runs(self, job: str) -> bool:
        """Returns whether the job's heartbeat is fresh."""
        running = self.job(job)
        return running is not None and running.live

    def foreign_owner(self, address: Address, topology: str) -> tuple[str, str] | None:
        """Returns how another topology has this object, "owned by" or "run by", and its name."""
        entry = self.entries.get(address)
        if entry is not None and entry.topology != topology:
            return "owned by", entry.topology
        live = self.job(address.name) if address.kind is Kind.JOB else None
        foreign = live is not None and live.live and live.topology not in ("", topology)
        return ("run by", live.topology) if live is not None and foreign else None


def destination_jobs(observed: Observed) -> dict[str, DestinationJobs]:
    """Returns the flows and jobs of every cluster that could be read, by its name."""
    return {name: DestinationJobs.at(cluster) for name, cluster in sorted(observed.live.items())}


def elsewhere(
    address: Address, destination: str, topology: str, jobs_by_destination: Mapping[str, DestinationJobs]
) -> tuple[DestinationJobs, ...]:
    """Returns the other destinations that hold the object. It ends at those: a flow has one destination."""
    return tuple(
        known_jobs
        for name, known_jobs in jobs_by_destination.items()
        if name != destination and known_jobs.holds(address, topology)
    )


def left_over(
    kind: Kind, wanted: Collection[str], topology: str, jobs_by_destination: Mapping[str, DestinationJobs]
) -> Iterator[tuple[Address, DestinationJobs]]:
    """Yields each object that is no longer desired, with the destination where it runs or is recorded."""
    places: dict[Address, list[DestinationJobs]] = {}
    for known_jobs in jobs_by_destination.values():
        for address in known_jobs.held(topology):
            if address.kind is kind and address.name not in wanted:
                places.setdefault(address, []).append(known_jobs)
    for address, holders in places.items():
        yield address, next((place for place in holders if place.runs(address.name)), holders[0])


def blocked(address: Address, job: str, known_jobs: DestinationJobs, topology: str) -> Change | None:
    """Returns the change of a job, or one of its flows, that another topology owns, or that could not be
    read; else None.
    """
    if foreign := known_jobs.foreign_owner(address, topology):
        return Change(address, Action.NO_OP, f"{foreign[0]} topology {foreign[1]!r}")
    return unreadable(address, known_jobs.cluster, JOBS, REGISTRY) or of_another_release(
        address, job, (known_jobs,)
    )


_OTHER_RELEASE = "plan and apply with the release that started the job; or stop the job with that release"


def of_another_release(address: Address, job: str, places: Iterable[DestinationJobs]) -> Change | None:
    """Returns the change of a job, or of a flow that it has or had, where this release can't read the job
    that runs there; else None.
    """
    for place in places:
        entry = place.entries.get(address)
        for name in dict.fromkeys((job, entry.spec.get(JOB, job) if entry is not None else job)):
            live = place.job(name)
            if live is not None and live.live and live.unreadable:
                change = unknown(address, f"job.{name} runs at {place.cluster.name}, and {live.unreadable}")
                return replace(change, hint=_OTHER_RELEASE)
    return None


def names_of(places: Iterable[DestinationJobs]) -> str:
    return " and ".join(place.cluster.name for place in places)


def forgotten_at_destination(change: Change, before: Sequence[DestinationJobs], destination: str) -> Change:
    """Adds to a change that other destinations forget the object, which an interrupted apply left undone."""
    note = f"no longer remembered at {names_of(before)}"
    field = FieldChange(("recorded", DESTINATION), names_of(before), destination, note=note)
    idle = change.action is Action.NO_OP
    return replace(
        change,
        action=Action.UPDATE if idle else change.action,
        reason=REMEMBERED if idle else change.reason,
        fields=(*change.fields, field),
    )


def wanted_jobs(desired: Desired) -> Iterator[tuple[DesiredJob, JobSpec]]:
    """Yields each job with its spec. A job without one is reported as an error elsewhere."""
    for job in desired.jobs:
        if job.spec is not None:
            yield job, job.spec
