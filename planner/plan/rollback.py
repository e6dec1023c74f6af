"""A rollback: the desired state before an apply, for the objects that the apply changed.

It is compared with the clusters as any desired state is. An object is rolled back only where it is still as
the apply left it, and so is each of its settings or limits: a later change is left alone. A job is stopped
with all of its flows, or not at all.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from msgspec import structs

from planner.diff.differ import diff
from planner.diff.record import JOB, PARTITIONS, REPLICATION
from planner.model.address import Address, Kind, job_address
from planner.model.change import SENSITIVE, Action, Change
from planner.model.desired import (
    Declared,
    Desired,
    DesiredAcl,
    DesiredQuota,
    DesiredTopic,
    MirroredBy,
    QuarantineOf,
)
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import (
    DECLARED,
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    replication_factors,
)
from planner.model.step import ApplyRecord, Result, Step
from planner.model.topology import OnRemove
from planner.plan.object_kind import differences
from planner.plan.staleness import Place, differences_since, entries_by_place, facts_now, read_request
from planner.plan.steps.acls import DeleteAcl
from planner.plan.steps.jobs import JobStep, LaunchJob, StopJob
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, Reassign
from runtime.contract.spec.transform import quarantine_origin

_LOST = "records that were written to it since are lost"


def rollback(
    applied: ApplyRecord, observed: Observed
) -> tuple[Desired, Observed, tuple[Change, ...], list[Diagnostic]]:
    """Returns the desired state before an apply, the clusters with the objects that are rolled back alone,
    the changes between both, and warnings about what is not undone.
    """
    before = _StateBefore(applied, observed)
    desired, seen = before.desired(), before.observed()
    changes = (before.limited(change) for change in diff(desired, seen))
    return desired, seen, tuple(change for change in changes if change is not None), before.diagnostics


def read_request_of(applied: ApplyRecord, required: frozenset[str]) -> dict[str, ClusterDetailsRequest]:
    """Returns what to read of the clusters for a rollback. `required` are settings that policies compare."""
    keys = {(step.cluster, step.address): step.keys for step in applied.steps}
    return read_request({cluster for cluster, _ in keys}, keys, required, explicit=True)


def rollback_steps(applied: ApplyRecord, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps of a rollback. Each partition goes back to the brokers that it had.

    Deletions of topics wait until every job has stopped, since a job may still fill one of them.
    """
    moved = {(step.cluster, step.address): step.old for step in applied.steps if isinstance(step, Reassign)}
    stops = tuple(step.id for step in steps if isinstance(step, StopJob))
    made: list[Step] = []
    for step in steps:
        match step:
            case DeleteTopic():
                made.append(structs.replace(step, needs=(*step.needs, *stops)))
            case Reassign() if len(old := moved.get((step.cluster, step.address), ())) == len(step.old):
                made.append(structs.replace(step, replicas=old))
            case _:
                made.append(step)
    return tuple(made)


class _StateBefore:
    """The objects of an apply as they were before it, without those that stay as they are."""

    def __init__(self, applied: ApplyRecord, live: Observed) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._applied = applied
        self._live = live
        self._topics: list[DesiredTopic] = []
        self._acls: list[DesiredAcl] = []
        self._quotas: list[DesiredQuota] = []
        self._on_remove: dict[Address, OnRemove] = {}
        # The objects that are rolled back, each with the settings that the apply changed.
        self._keys: dict[Place, frozenset[str]] = {}
        done: dict[Place, list[Step]] = {}
        for step in applied.steps:
            outcome = applied.outcomes.get(step.id)
            if outcome is not None and outcome.result is Result.DONE:
                done.setdefault((step.cluster, step.address), []).append(step)
        entries = entries_by_place(live)
        done = {
            place: [self._unchanged_since(step, entries.get(place)) for step in steps]
            for place, steps in done.items()
        }
        # A journal holds no job spec, so a job is compared by its flows alone. What a later apply registered
        # of a topic, a rule or a quota does not matter: their settings are compared. A topic that the apply
        # created goes, whatever its settings are by now, such as those that its flow keeps equal.
        compared = [
            step
            for steps in done.values()
            for step in steps
            if not isinstance(step, JobStep | CreateTopic)
            and not (step.registers and step.address.cluster is not None)
        ]
        changed = differences_since(compared, live)
        for place, steps in done.items():
            cluster, entry = live.reachable(place[0]), entries.get(place)
            if cluster is None:
                self._stays(steps[0], f"{place[0]} does not answer", "bring it back and plan again")
            elif place in changed:
                self._stays(*changed[place])
            elif entry is not None and entry.topology != applied.topology:
                self._stays(steps[0], f"owned by topology {entry.topology!r} now")
            elif place[1].kind is Kind.JOB:
                self._job(steps, cluster, done.keys() - changed.keys())
            elif place[1].kind is not Kind.FLOW:
                self._object(steps, cluster, entry)

    def desired(self) -> Desired:
        return Desired(
            self._applied.topology,
            topics=tuple(self._topics),
            acls=tuple(self._acls),
            quotas=tuple(self._quotas),
            on_remove=self._on_remove,
        )

    def observed(self) -> Observed:
        """Returns the clusters, which own and run only the objects that are rolled back."""
        clusters = {
            name: structs.replace(
                cluster,
                owned=tuple(entry for entry in cluster.owned if (name, entry.address) in self._keys),
                jobs=tuple(job for job in cluster.jobs if (name, job_address(job.name)) in self._keys),
            )
            for name in self._live.clusters
            if (cluster := self._live.reachable(name)) is not None
        }
        return Observed({**self._live.clusters, **clusters})

    def limited(self, change: Change) -> Change | None:
        """Returns the change without fields that the apply did not change; None where nothing is left."""
        reason = self._applied.undoing
        if change.action is Action.NO_OP and not change.adopted:
            return None
        if change.action is Action.UNKNOWN:
            return change
        if change.action is Action.DELETE and change.address.kind is Kind.TOPIC:
            return replace(change, reason=reason, notes=(*change.notes, _LOST))
        if change.action is not Action.UPDATE:
            return replace(change, reason=reason)
        keys = self._keys.get((change.address.cluster or "", change.address), frozenset())
        fields = tuple(part for part in change.fields if part.key in keys or part.path[0] == "recorded")
        return replace(change, reason=reason, fields=fields) if fields else None

    def _unchanged_since(self, step: Step, entry: RegistryEntry | None) -> Step:
        """Returns the step with the settings or limits that are still as it left them.

        It is returned whole where none is: then the object was changed.
        """
        cluster = self._live.reachable(step.cluster)
        if cluster is None or not isinstance(step, AlterConfigs | AlterQuota):
            return step
        now = facts_now(step, cluster, entry)
        changed = {
            key: difference
            for key in sorted(step.keys)
            if (difference := next(differences(_only(step, {key}).left, now, left=True), ""))
        }
        if len(changed) == len(step.keys):
            return step
        for difference in changed.values():
            self._stays(step, difference)
        return _only(step, step.keys - changed.keys())

    def _stays(self, step: Step, why: str, hint: str = "") -> None:
        summary = f"{step} is not undone: {why}"
        self.diagnostics.append(warning(summary, hint, address=str(step.address), code="not-undone"))

    def _irreversible(self, step: Step) -> bool:
        why, hint = step.irreversible
        if why:
            self._stays(step, why, hint)
        return bool(why)

    def _managed_before(self, steps: Sequence[Step]) -> RegistryEntry | None:
        """Returns the registry entry before the apply; None where the object was not managed."""
        entries = self._applied.before
        return next((entries[step.id] for step in steps if step.id in entries), None)

    def _job(self, steps: Sequence[Step], cluster: ObservedCluster, unchanged: Collection[Place]) -> None:
        # A launch that failed may have left a job, and its entry was written before.
        tried = (step for step in self._applied.steps if isinstance(step, LaunchJob))
        launch = next((step for step in tried if step.address == steps[0].address), None)
        if launch is None or self._managed_before(steps) is not None:
            for step in steps:
                self._irreversible(step)
            return
        flows = {
            (cluster.name, entry.address)
            for entry in cluster.owned
            if entry.address.kind is Kind.FLOW and entry.spec.get(JOB) == launch.job
        }
        if flows <= set(unchanged):
            self._keys |= dict.fromkeys([(cluster.name, launch.address), *flows], frozenset())
        else:
            self._stays(launch, "its flows were changed since", "remove them from the topology, then apply")

    def _object(self, steps: Sequence[Step], cluster: ObservedCluster, entry: RegistryEntry | None) -> None:
        """Adds a topic, a rule or a quota as it was before."""
        address, before = steps[0].address, self._managed_before(steps)
        left = [step for step in steps if not self._irreversible(step)]
        works = [step for step in left if not step.registers]
        registration = next((step for step in left if isinstance(step, Own)), None)
        if not works and len(left) < len(steps):
            return
        live = cluster.topics.get(address.name) if address.kind is Kind.TOPIC else None
        if why := (address.kind is Kind.TOPIC and _unlike(entry, live)) or _unregistered(left, entry, before):
            self._stays((works or left)[-1], *why)
            return
        if not works and before is not None and address.kind is not Kind.TOPIC:
            return  # only what is remembered of it changed
        self._keys[cluster.name, address] = frozenset(key for step in works for key in step.keys)
        base = entry or before
        for step in works:
            match step:
                case CreateTopic():
                    self._on_remove[step.address] = OnRemove.DELETE
                    return
                case DeleteAcl() if not step.replaces:
                    self._acls.append(DesiredAcl(step.rule, Declared() if before is None else before.origin))
                case AlterQuota() if base is not None:
                    self._quota(step, base)
        if address.kind is Kind.TOPIC and not works and before is None:
            self._on_remove[address] = OnRemove.KEEP
        elif address.kind is Kind.TOPIC and base is not None:
            later = registration is None or (registration.entry.protect, registration.entry.on_remove) != (
                base.protect,
                base.on_remove,
            )
            self._topics.append(self._topic(works, base, base if later else before or base))

    def _topic(self, steps: Sequence[Step], base: RegistryEntry, before: RegistryEntry) -> DesiredTopic:
        """Returns a topic with its settings of before. All others are those that were applied last."""
        address = base.address
        config: dict[str, str | None] = {**base.config}
        replication = base.number(REPLICATION)
        for step in steps:
            if isinstance(step, AlterConfigs):
                secret = sorted(key for key in step.wanted if step.old.get(key, SENSITIVE) == SENSITIVE)
                if secret:
                    self._stays(step, f"{', '.join(secret)}: the old value was never read")
                    self._keys[step.cluster, address] -= frozenset(secret)
                config |= {key: step.old[key] for key in step.wanted if key not in secret}
            elif isinstance(step, Reassign):
                factor = replication_factors(step.old)
                if isinstance(factor, int):
                    replication = factor
                    self._keys[step.cluster, address] |= {REPLICATION}
                else:
                    self._stays(step, "its partitions had different numbers of replicas")
        return DesiredTopic(
            cluster=address.cluster or "",
            name=address.name,
            origin=_origin(base),
            partitions=base.number(PARTITIONS),
            replication=replication,
            config={key: value for key, value in config.items() if value is not None},
            unset=frozenset(key for key, value in config.items() if value is None),
            protect=before.protect,
            on_remove=before.on_remove,
            mirrored=base.mirrored,
            lifted_by=base.flow or "" if base.before else "",
            before=base.before,
        )

    def _quota(self, step: AlterQuota, base: RegistryEntry) -> None:
        values = {**base.limits, **step.old}
        left = {key: value for key, value in values.items() if value is not None}
        origin = MirroredBy(base.flow, "") if base.flow is not None else Declared()
        if left or not base.created:  # a quota that was there before the topology is not deleted
            self._quotas.append(DesiredQuota(step.cluster, step.entity, left, origin))


Reason = tuple[str, str]  # why an object is not rolled back, and the way out


def _unlike(entry: RegistryEntry | None, live: ObservedTopic | None) -> Reason | None:
    """Returns why a topic is none that the apply changed; None if it is one."""
    if live is None:
        return "was deleted since", ""
    if entry is not None and entry.is_another(live.id):
        return "another topic has its name now", "delete that topic by hand if needed"
    return None


def _unregistered(
    steps: Sequence[Step], entry: RegistryEntry | None, before: RegistryEntry | None
) -> Reason | None:
    """Returns why what the registry has of an object does not go with these steps; None if it does."""
    registration = next((step for step in steps if isinstance(step, Own)), None)
    works = [step for step in steps if not step.registers]
    if entry is None and (registration is not None or not works):
        return "it is not managed any more", "declare it again: an object that exists is adopted"
    changed = any(isinstance(step, AlterConfigs | AlterQuota | Reassign | CreateTopic) for step in works)
    if entry is None and before is None and changed:
        return "it was not registered", "apply the topology again, then plan the rollback"
    if entry is not None and not entry.created and any(isinstance(step, CreateTopic) for step in works):
        # Who may write the history can say so, and the topic would be deleted.
        return "the registry says that it was adopted", "see repl history, and who may write __repl.history"
    adopted = not works and before is None
    if (
        adopted
        and registration is not None
        and entry is not None
        and _known_of(entry) != _known_of(registration.entry)
    ):
        return "it was changed since", "remove it from the topology, then apply"
    return None


def _known_of(entry: RegistryEntry) -> tuple[object, ...]:
    """Returns what is remembered of an object, without the id and the partitions of a topic."""
    number = entry.number(REPLICATION)
    return entry.config, entry.limits, entry.protect, entry.on_remove, entry.flow, number


def _only(step: AlterConfigs | AlterQuota, keys: Collection[str]) -> AlterConfigs | AlterQuota:
    """Returns the step for some of its settings or limits."""
    return structs.replace(
        step,
        set={key: value for key, value in step.set.items() if key in keys},
        unset=tuple(key for key in step.unset if key in keys),
        old={key: value for key, value in step.old.items() if key in keys},
    )


def _origin(entry: RegistryEntry) -> Declared | MirroredBy | QuarantineOf:
    if entry.flow is not None:
        return MirroredBy(entry.flow, *(entry.source or ("", "")))
    if entry.origin == DECLARED:
        return Declared()
    return QuarantineOf(entry.origin.removeprefix(quarantine_origin("")), "")
