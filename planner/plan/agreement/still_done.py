"""Checks that the results of an earlier apply of the same plan still hold, so that its steps are skipped."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.diff.destination_jobs import DestinationJobs
from planner.diff.differ import owned_by_address
from planner.diff.display import displayed
from planner.diff.topic_values import REPLICATION, explicit
from planner.diff.values import readable, same_value
from planner.model.address import Address
from planner.model.diagnostic import Diagnostic
from planner.model.observed import LiveJob, Observed, ObservedCluster, ObservedTopic
from planner.model.owned import RegistryEntry
from planner.model.step import (
    AlterConfigs,
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
from planner.plan.agreement.fingerprint import stale_diagnostic
from runtime.contract.spec import jobspec


def no_longer_done(
    steps: Sequence[Step], done: Collection[str], observed: Observed
) -> tuple[Diagnostic, ...]:
    """Returns, for each object, the first difference from what the steps in `done` left: the plan is stale.

    Of several steps about one registry entry or one job, only the last one is compared, once it is done.
    """
    entries = owned_by_address(observed)
    final = {_subject(step): step.id for step in steps}
    found: dict[Address, str] = {}
    for step in steps:
        if step.id not in done or final[_subject(step)] != step.id or step.address in found:
            continue
        cluster = observed.reachable(step.cluster)
        if cluster is None:
            continue
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
                yield from ("was made again since",) if step.topic in self.cluster.topics else ()
            case CreateAcl():
                gone = self.cluster.acls is not None and step.rule not in self.cluster.acls
                yield from ("was deleted since",) if gone else ()
            case DeleteAcl():
                again = self.cluster.acls is not None and step.rule in self.cluster.acls
                yield from ("was made again since",) if again else ()
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


def _shown(key: str, value: str | None) -> str:
    return "not set" if value is None else readable(key, value)


def _entry_differences(step: Own | Disown, entry: RegistryEntry | None) -> Iterator[str]:
    match step:
        case Disown() if entry is not None and entry.topology == step.topology:
            yield "is managed again since"
        case Own() if entry is None:
            yield "is not managed any more"
        case Own() if entry is not None and entry.topology != step.entry.topology:
            yield f"owned by topology {entry.topology!r} now"
        case Own() if entry is not None and _settings_of(entry) != _settings_of(step.entry):
            yield "was applied otherwise since"
        case Own() if entry is not None and not step.entry.spec.items() <= entry.spec.items():
            yield "was applied otherwise since"
        case _:
            pass


def _settings_of(entry: RegistryEntry) -> tuple[object, ...]:
    return (entry.protect, entry.on_remove, entry.origin)


def _job_differences(step: LaunchJob | ReconfigureJob | StopJob, live: LiveJob | None) -> Iterator[str]:
    runs = live is not None and live.live
    match step:
        case StopJob():
            yield from ("runs again since",) if runs else ()
        case _ if not runs:
            yield "does not run any more"
        case _ if live is not None and live.spec != jobspec.decode(step.spec):
            yield "was reconfigured since"
        case _:
            pass
