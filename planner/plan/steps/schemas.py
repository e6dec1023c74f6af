"""Subjects of schema registries: what follows from a change, and the steps: configure and register."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import field

from planner.diff.schemas import COMPATIBILITY, SETTINGS
from planner.model.address import Address
from planner.model.change import Change
from planner.model.desired import DesiredSubject
from planner.model.observed import ObservedCluster, ObservedSubject, RegistryEntry
from planner.model.step import Milestone, PlannedSteps, Step
from planner.plan.object_kind import ObjectKind, SeenObject, other_value
from runtime.schemas.versions import SchemaVersion

_HINT = "change it at the schema registry"


class SubjectStep(Step, frozen=True):
    """A step about one subject of the cluster's schema registry."""

    subject_name: str

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.cluster == destination


class ConfigureSubject(SubjectStep, frozen=True):
    """Sets the compatibility or the mode of a subject. `old`: the values before, "" where it had none."""

    verb = "configure"
    past = "configured"
    not_undone = "the settings of a subject are not taken back", _HINT

    set: Mapping[str, str] = field(default_factory=dict)
    old: Mapping[str, str] = field(default_factory=dict)
    releases: bool = False  # its flow has ended: producers register there from now on

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield ", ".join(f"{key}={value}" for key, value in sorted(self.set.items()))

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.set)

    def waits_for(self, others: PlannedSteps) -> Iterable[str]:
        """A subject takes producers' schemas again after its flow has ended."""
        return others.at(self.cluster, Milestone.FLOW_REGISTERED) if self.releases else ()

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return not self.releases and super().precedes_job(clusters, destination, topics)

    def no_longer_done(
        self, now: ObservedCluster, entry: RegistryEntry | None, superseded: Collection[str]
    ) -> Iterator[str]:
        live = now.subjects.get(self.subject_name, ObservedSubject())
        for key, value in sorted(self.set.items()):
            if key not in superseded and getattr(live, key) != value:
                yield f"{key} is {getattr(live, key) or 'not set'} now, the plan made it {value}"


class RegisterSchemas(SubjectStep, frozen=True):
    """Registers these versions of a subject of the source, and first the schemas that they refer to.

    `keep`: they keep their ids and numbers. `compatibility` is that of a new subject, "" for the registry's.
    """

    verb = "register"
    past = "registered"
    not_undone = "a registered schema stays: records may need it", "delete it at the schema registry"

    source_cluster: str
    source_subject: str
    versions: tuple[SchemaVersion, ...]
    keep: bool
    compatibility: str = ""

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        numbers = ", ".join(str(version.number) for version in self.versions)
        yield f"version {numbers} of {self.source_subject} at {self.source_cluster}"
        yield "ids kept" if self.keep else "ids of the destination"
        if self.compatibility:
            yield f"{COMPATIBILITY}={self.compatibility}"

    def no_longer_done(
        self, now: ObservedCluster, entry: RegistryEntry | None, superseded: Collection[str]
    ) -> Iterator[str]:
        live = now.subjects.get(self.subject_name, ObservedSubject())
        fingerprints = {version.fingerprint for version in live.versions}
        for version in self.versions:
            if version.fingerprint not in fingerprints:
                yield f"version {version.number} was deleted since"
        if (
            self.compatibility
            and live.compatibility != self.compatibility
            and COMPATIBILITY not in superseded
        ):
            now_is = live.compatibility or "not set"
            yield f"{COMPATIBILITY} is {now_is} now, the plan made it {self.compatibility}"


class SchemaKind(ObjectKind):
    """Subjects of schema registries."""

    def steps(
        self,
        change: Change,
        desired: DesiredSubject,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        topology: str,
    ) -> list[Step]:
        where, address, name = desired.cluster, desired.address, desired.name
        steps: list[Step] = []
        live = cluster.subjects.get(name)
        # Some registries take the compatibility of a subject only once it has a version.
        with_versions = (COMPATIBILITY,) if live is None else ()
        if settings := [
            moved for moved in change.fields if moved.key in SETTINGS and moved.key not in with_versions
        ]:
            configure = ConfigureSubject(
                f"configure:{address}",
                address,
                where,
                name,
                set={moved.key: str(moved.new) for moved in settings},
                old={moved.key: str(moved.old or "") for moved in settings},
                releases=not desired.versions,
            )
            steps.append(configure)
        if missing := desired.missing(live):
            register = RegisterSchemas(
                f"register:{address}",
                address,
                where,
                name,
                desired.origin.source_cluster,
                desired.subject,
                missing,
                desired.keep,
                desired.compatibility if live is None else "",
                needs=tuple(step.id for step in steps),
            )
            steps.append(register)
        return steps

    def difference(
        self, then: SeenObject, now: SeenObject, keys: Collection[str], steps: Sequence[Step]
    ) -> str:
        before, after = (
            seen.cluster.subjects.get(seen.address.name, ObservedSubject()) for seen in (then, now)
        )
        # The job of the flow may have registered meanwhile what the plan registers.
        planned = {
            version.fingerprint
            for step in steps
            if isinstance(step, RegisterSchemas)
            for version in step.versions
        }
        gained = [version for version in after.versions if version not in before.versions]
        lost = set(before.versions).difference(after.versions)
        if lost or any(version.fingerprint not in planned for version in gained):
            return "has other versions now than when the plan was made"
        wanted: dict[str, str] = {}
        for step in steps:
            if isinstance(step, ConfigureSubject):
                wanted |= step.set
        for key in SETTINGS:
            # "" also stands for a setting that the plan did not read
            if getattr(before, key) and getattr(after, key) not in (getattr(before, key), wanted.get(key)):
                return other_value(key, getattr(before, key) or "not set", getattr(after, key) or "not set")
        return ""
