"""What a plan saw of each object that it touches, and whether the object is still the same.

Only what was read is compared: a setting that the plan never read may change without making the plan stale.
After an interrupted apply of the same plan, the steps that are done are compared with what they left behind.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.diff.differ import owned_by_address
from planner.diff.record import SPEC, STATE, DestinationJobs, digest
from planner.diff.typed_values import REPLICATION, explicit
from planner.diff.values import displayed, readable, same_value
from planner.model.address import Address, Kind, flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import LiveJob, Observed, ObservedCluster, ObservedTopic, RegistryEntry
from planner.model.plan import Fingerprint, Plan
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    Step,
    StopJob,
)
from planner.model.topology import QUOTA_KEYS
from planner.plan.quotas import quota_differences, quota_fingerprint, shown
from runtime.contract.spec import jobspec

DRIVER = "driver"
RECORDED = "recorded"  # a digest of what the registry holds of a flow or a job


def fingerprints(
    steps: Sequence[Step], observed: Observed, read: Mapping[Address, Iterable[str]]
) -> tuple[Fingerprint, ...]:
    """Returns one fingerprint for each object that a step touches.

    `read` are the config keys that were compared, by address.
    """
    keys: dict[Address, set[str]] = {}
    moved: set[Address] = set()
    jobs: dict[tuple[str, Address], None] = {}
    for step in steps:
        if step.address.cluster is None:
            jobs.setdefault((step.cluster, step.address))
            if isinstance(step, LaunchJob | ReconfigureJob):  # its spec follows from all of its flows
                flows = jobspec.decode(step.spec).flows
                jobs.update(((step.cluster, flow_address(flow.name)), None) for flow in flows)
            continue
        keys.setdefault(step.address, set(read.get(step.address, ())))
        match step:
            case AlterConfigs() | AlterQuota():
                keys[step.address].update(step.set, step.unset)
            case Reassign():
                moved.add(step.address)
            case _:
                pass
    index = _ClusterIndex.at(observed)
    found = [
        index.fingerprint_of(address, keys[address], with_replicas=address in moved)
        for address in sorted(keys)
    ]
    found += [index.fingerprint_of_job_or_flow(address, cluster) for cluster, address in sorted(jobs)]
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True, slots=True)
class _ClusterIndex:
    """The clusters as they are now, indexed by address."""

    observed: Observed
    owned: Mapping[Address, RegistryEntry]
    acls: Mapping[str, frozenset[str]]

    @staticmethod
    def at(observed: Observed) -> "_ClusterIndex":
        reachable = (observed.reachable(name) for name in observed.clusters)
        acls = {one.name: frozenset(acl.name for acl in one.acls or ()) for one in reachable if one}
        return _ClusterIndex(observed, owned_by_address(observed), acls)

    def fingerprint_of(
        self, address: Address, keys: Iterable[str], *, with_replicas: bool
    ) -> Fingerprint | None:
        """Returns the fingerprint of a topic, an ACL or a quota; None if its cluster can't be read."""
        cluster = self.observed.reachable(address.cluster or "")
        entry = self.owned.get(address)
        if cluster is None:
            return None
        match address.kind:
            case Kind.TOPIC:
                return _topic_fingerprint(address, cluster, keys, entry, with_replicas=with_replicas)
            case Kind.ACL:
                exists = address.name in self.acls[cluster.name]
                return Fingerprint(address, exists=exists, owner=_owner_of(entry))
            case Kind.QUOTA:
                return quota_fingerprint(address, cluster, keys, _owner_of(entry))
            case _:
                return None

    def fingerprint_of_job_or_flow(self, address: Address, cluster: str) -> Fingerprint | None:
        """Returns the fingerprint of a flow or a job at a destination.

        Both have their owner and what the registry holds of them, a flow its state. A job that runs has its
        driver and its spec.
        """
        live = self.observed.reachable(cluster)
        if live is None:
            return None
        known_jobs = DestinationJobs.at(live)
        entry = known_jobs.entries.get(address)
        owner = _owner_of(entry)
        if address.kind is not Kind.JOB:
            seen = {} if entry is None else {STATE: entry.spec.get(STATE), **_recorded(entry)}
            return Fingerprint(address, exists=entry is not None, config=seen, owner=owner, cluster=cluster)
        job = known_jobs.job(address.name)
        if job is None or not job.live:
            return Fingerprint(address, exists=False, config=_recorded(entry), owner=owner, cluster=cluster)
        spec = None if job.spec is None else digest(job.spec)
        seen = {DRIVER: job.driver, SPEC: spec, **_recorded(entry)}
        return Fingerprint(address, exists=True, config=seen, owner=owner, cluster=cluster)


def _recorded(entry: RegistryEntry | None) -> dict[str, str | None]:
    if entry is None:
        return {}
    held = json.dumps(dict(entry.spec), sort_keys=True).encode()
    return {RECORDED: hashlib.sha256(held).hexdigest()[:16]}


def _topic_fingerprint(
    address: Address,
    cluster: ObservedCluster,
    keys: Iterable[str],
    entry: RegistryEntry | None,
    *,
    with_replicas: bool,
) -> Fingerprint:
    live = cluster.topics.get(address.name)
    owner, removal = _owner_of(entry), _removal(entry)
    if live is None:
        return Fingerprint(address, exists=False, owner=owner, removal=removal)
    return Fingerprint(
        address=address,
        exists=True,
        topic_id=live.id,
        partitions=live.partitions,
        replicas=replicas_text(live.replicas) if with_replicas else None,
        config={key: _value(live, key) for key in sorted(keys)},
        owner=owner,
        removal=removal,
    )


def _owner_of(entry: RegistryEntry | None) -> str | None:
    return None if entry is None else entry.topology


def _removal(entry: RegistryEntry | None) -> str | None:
    if entry is None:
        return None
    return "protected" if entry.protect else entry.on_remove.value


def replicas_text(replicas: Iterable[Iterable[int]]) -> str:
    """Returns the brokers of each partition as a fingerprint holds them: `1,2;2,3`."""
    return ";".join(",".join(str(broker) for broker in partition) for partition in replicas)


def _value(live: ObservedTopic, key: str) -> str | None:
    value = explicit(live, key)
    return None if value is None else value.value


def other_clusters(plan: Plan, ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns an error for each cluster that is not the one the plan was made for.

    `ids` are the present cluster ids.
    """
    return [
        stale_diagnostic(name, f"the cluster is {ids[name]} now, the plan was made for {cluster_id}")
        for name, cluster_id in sorted(plan.clusters.items())
        if ids.get(name, cluster_id) != cluster_id
    ]


def stale(plan: Plan, observed: Observed) -> tuple[Diagnostic, ...]:
    """Returns an error with exit code 4 for each object that is no longer as the plan saw it."""
    live = (observed.reachable(name) for name in observed.clusters)
    problems = other_clusters(plan, {one.name: one.id for one in live if one is not None})
    index = _ClusterIndex.at(observed)
    ending = _jobs_that_end(plan.steps)
    for then in plan.fingerprints:
        if then.cluster is not None:
            now = index.fingerprint_of_job_or_flow(then.address, then.cluster)
        else:
            now = index.fingerprint_of(then.address, then.config, with_replicas=then.replicas is not None)
        if now is None:
            continue
        both = (_owner_alone(then), _owner_alone(now)) if then.address in ending else (then, now)
        if difference := difference_between(*both):
            problems.append(stale_diagnostic(str(then.address), difference))
    return tuple(problems)


def _jobs_that_end(steps: Sequence[Step]) -> set[Address]:
    """Returns the jobs that are stopped for good: it does not matter whether they run now."""
    begins = {step.address for step in steps if isinstance(step, LaunchJob | ReconfigureJob)}
    return {step.address for step in steps if isinstance(step, StopJob)} - begins


def _owner_alone(one: Fingerprint) -> Fingerprint:
    """Returns what matters of a job that ends: its owner, and how it is recorded to have been started."""
    return replace(one, exists=False, config={RECORDED: one.config.get(RECORDED)})


def difference_between(then: Fingerprint, now: Fingerprint) -> str:
    """Returns the difference in one clause; "" if there is none."""
    if then.address.kind is Kind.JOB and (difference := _job_difference(then, now)):
        return difference
    if then.owner != now.owner:
        return f"owned by {_owner_text(now)} now, by {_owner_text(then)} when the plan was made"
    if then.exists != now.exists:
        return "was created since the plan was made" if now.exists else "was deleted since the plan was made"
    if then.topic_id != now.topic_id:
        return "was deleted and created again since the plan was made"
    if then.partitions != now.partitions:
        return f"has {now.partitions} partitions now, {then.partitions} when the plan was made"
    if then.replicas != now.replicas:
        return "its replicas moved since the plan was made"
    if then.removal is not None and then.removal != now.removal:
        return f"removing it means {now.removal} now, {then.removal} when the plan was made"
    for key, value in then.config.items():
        if key == RECORDED:
            if value != now.config.get(key):
                return "was applied differently since the plan was made"
        elif not same_value(key, value, now.config.get(key)):
            found = _shown(key, now.config.get(key))
            return f"{key} is {found} now, {_shown(key, value)} when the plan was made"
    return ""


def _job_difference(then: Fingerprint, now: Fingerprint) -> str:
    if then.exists != now.exists:
        return "runs now, and did not run when the plan was made" if now.exists else "does not run any more"
    if then.config.get(DRIVER) != now.config.get(DRIVER):
        return "was started again since the plan was made"
    if then.config.get(SPEC) != now.config.get(SPEC):
        return "was reconfigured since the plan was made"
    return ""


def _shown(key: str, value: str | None) -> str:
    if key in QUOTA_KEYS:
        return shown(key, value)
    return "not set" if value is None else readable(key, value)


def _owner_text(one: Fingerprint) -> str:
    return "no topology" if one.owner is None else f"topology {one.owner!r}"


def stale_diagnostic(where: str, summary: str) -> Diagnostic:
    """Returns an error with exit code 4: an object is no longer as the plan saw it."""
    way_out = "make the plan again: repl plan --out FILE"
    return error(summary, way_out, address=where, code="stale", exit=ExitCode.STALE)


def no_longer_done(
    steps: Sequence[Step], done: Collection[str], observed: Observed
) -> tuple[Diagnostic, ...]:
    """Returns, for each object, the first difference from what the steps in `done` left: the plan is stale.

    Of several steps about one registry entry or one job, only the last one is compared, once it is done.
    """
    entries = owned_by_address(observed)
    final = {_subject(step): step.id for step in steps}
    altered = {step.address: step for step in steps if isinstance(step, AlterConfigs) and step.id in done}
    found: dict[Address, str] = {}
    for step in steps:
        if step.id not in done or final[_subject(step)] != step.id or step.address in found:
            continue
        cluster = observed.reachable(step.cluster)
        if cluster is None:
            continue
        if isinstance(step, CreateTopic) and step.address in altered:
            later = {*altered[step.address].set, *altered[step.address].unset}
            step = replace(step, config={key: one for key, one in step.config.items() if key not in later})
        state = _ClusterState(cluster, DestinationJobs.at(cluster), entries)
        if (difference := next(state.differences(step), "")) != "":
            found[step.address] = difference
    return tuple(stale_diagnostic(str(address), difference) for address, difference in sorted(found.items()))


def keys_of(step: Step) -> frozenset[str]:
    """Returns the topic settings that show whether the step is still done."""
    match step:
        case CreateTopic(config=config):
            return frozenset(config)
        case AlterConfigs():
            return frozenset({*step.set, *step.unset})
        case _:
            return frozenset()


def _subject(step: Step) -> tuple[str, str, Address]:
    """Returns what the step is about: steps with the same subject overwrite each other."""
    match step:
        case Own() | Disown():
            return ("entry", step.cluster, step.address)
        case LaunchJob() | ReconfigureJob() | StopJob():
            return ("job", step.cluster, step.address)
        case _:
            return (type(step).__name__, step.cluster, step.address)


@dataclass(frozen=True, slots=True)
class _ClusterState:
    """One cluster as it is now."""

    cluster: ObservedCluster
    known_jobs: DestinationJobs
    entries: Mapping[Address, RegistryEntry]

    def differences(self, step: Step) -> Iterator[str]:
        match step:
            case CreateTopic() | GrowPartitions() | AlterConfigs() | Reassign():
                yield from _topic_differences(step, self.cluster.topics.get(step.topic))
            case DeleteTopic():
                yield from ("was created again since",) if step.topic in self.cluster.topics else ()
            case CreateAcl():
                gone = self.cluster.acls is not None and step.rule not in self.cluster.acls
                yield from ("was deleted since",) if gone else ()
            case DeleteAcl():
                again = self.cluster.acls is not None and step.rule in self.cluster.acls
                yield from ("was created again since",) if again else ()
            case AlterQuota():
                yield from quota_differences(step, self.cluster)
            case Own() | Disown():
                yield from _entry_differences(step, self._entry(step.address))
            case LaunchJob() | ReconfigureJob() | StopJob():
                yield from _job_differences(step, self.known_jobs.job(step.job))

    def _entry(self, address: Address) -> RegistryEntry | None:
        """Returns the registry entry. Flows and jobs have theirs at their destination alone."""
        known = self.entries if address.cluster is not None else self.known_jobs.entries
        return known.get(address)


def _topic_differences(
    step: CreateTopic | GrowPartitions | AlterConfigs | Reassign, live: ObservedTopic | None
) -> Iterator[str]:
    if live is None:
        yield "was deleted since"
        return
    match step:
        case CreateTopic(partitions=int(wanted)) | GrowPartitions(new=wanted) if live.partitions != wanted:
            yield f"has {live.partitions} partitions now, the plan gave it {wanted}"
        case CreateTopic(replication=int(factor)) if live.replication_factors != factor:
            found = displayed(REPLICATION, live.replication_factors)
            yield f"its replication is {found} now, the plan gave it {factor}"
        case Reassign() if any(
            set(now) != set(planned) for now, planned in zip(live.replicas, step.replicas, strict=False)
        ):  # partitions that were added since were not moved
            yield "its replicas moved since"
        case _:
            pass
    wanted_values: Mapping[str, str | None] = {}
    match step:
        case CreateTopic():
            wanted_values = step.config
        case AlterConfigs():
            wanted_values = {**step.set, **dict.fromkeys(step.unset)}
        case _:
            pass
    for key, value in sorted(wanted_values.items()):
        found = explicit(live, key)
        now = found.value if found is not None else None
        if (found is None or not found.sensitive) and not same_value(key, value, now):
            yield f"{key} is {_shown(key, now)} now, the plan made it {_shown(key, value)}"


def _entry_differences(step: Own | Disown, entry: RegistryEntry | None) -> Iterator[str]:
    match step:
        case Disown() if entry is not None and entry.topology == step.topology:
            yield "is managed again"
        case Own() if entry is None:
            yield "is not managed any more"
        case Own() if entry is not None and entry.topology != step.entry.topology:
            yield f"owned by topology {entry.topology!r} now"
        case Own() if entry is not None and _settings_of(entry) != _settings_of(step.entry):
            yield "was applied differently since"
        case Own() if entry is not None and not step.entry.spec.items() <= entry.spec.items():
            yield "was applied differently since"
        case _:
            pass


def _settings_of(entry: RegistryEntry) -> tuple[object, ...]:
    return (entry.protect, entry.on_remove, entry.origin)


def _job_differences(step: LaunchJob | ReconfigureJob | StopJob, live: LiveJob | None) -> Iterator[str]:
    runs = live is not None and live.live
    match step:
        case StopJob():
            yield from ("runs again",) if runs else ()
        case _ if not runs:
            yield "does not run any more"
        case _ if live is not None and live.spec != jobspec.decode(step.spec):
            yield "was reconfigured since"
        case _:
            pass
