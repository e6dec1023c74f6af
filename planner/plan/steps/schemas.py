"""Subjects of schema registries: what follows from a change, and the steps: configure and register."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import field

from planner.diff.schemas import COMPATIBILITY, SETTINGS
from planner.model.address import Address
from planner.model.change import Change, Facts
from planner.model.desired import DesiredSubject
from planner.model.observed import ObservedCluster, ObservedSubject, RegistryEntry
from planner.model.step import Milestone, PlannedSteps, Step
from planner.plan.object_kind import ObjectKind
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

    @property
    def left(self) -> Facts:
        return {(key,): value for key, value in sorted(self.set.items())}


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

    @property
    def left(self) -> Facts:
        versions = {("version", version.fingerprint): True for version in self.versions}
        return versions | ({(COMPATIBILITY,): self.compatibility} if self.compatibility else {})


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

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        """What the plan registers and sets is left out: the job of the flow may have done so meanwhile.

        A setting that is "" is not set, or was not read.
        """
        live = cluster.subjects.get(name, ObservedSubject())
        planned = {path for step in steps for path in step.left}
        versions = {("version", version.fingerprint): version for version in live.versions}
        others = frozenset(version for path, version in versions.items() if path not in planned)
        settings = {key: getattr(live, key) for key in SETTINGS if getattr(live, key)}
        for step in steps:
            if isinstance(step, ConfigureSubject):
                settings |= {key: step.old[key] for key in step.set if settings.get(key) == step.set[key]}
        shown: Facts = {(key,): value for key, value in settings.items()}
        return {("versions",): others, **dict.fromkeys(versions, True), **shown}
