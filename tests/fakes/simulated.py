"""What apply does to the clusters, done to the values that stand for them: steps × Observed → Observed.

It keeps apply's side of the contract: it decides nothing, it stamps the id of a topic that it made into the
registry entry, and a step whose object is not as planned is a failed assertion.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.model.address import Address, Kind
from planner.model.observed import (
    ConfigSource,
    ConfigValue,
    LiveJob,
    Observed,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
)
from planner.model.step import Step
from planner.model.topology import AclRule
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob, StopJob
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Disown, Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from runtime.contract.spec.jobspec import JobSpec
from tests.fakes.replacing import replace


@dataclass
class SimulatedCluster:
    """One cluster, changeable, made from what was observed of it."""

    seen: ObservedCluster
    topics: dict[str, ObservedTopic]
    acls: set[AclRule] | None
    owned: dict[Address, RegistryEntry]
    jobs: dict[str, LiveJob]
    quotas: dict[str, Mapping[str, float]]

    @staticmethod
    def of(seen: ObservedCluster) -> "SimulatedCluster":
        acls = None if seen.acls is None else set(seen.acls)
        owned = {one.address: one for one in seen.owned}
        jobs = {one.name: one for one in seen.jobs}
        return SimulatedCluster(seen, dict(seen.topics), acls, owned, jobs, dict(seen.quotas))

    def runs(self, job: str) -> bool:
        return job in self.jobs and self.jobs[job].live

    def observed(self) -> ObservedCluster:
        return replace(
            self.seen,
            topics=self.topics,
            acls=None if self.acls is None else tuple(sorted(self.acls)),
            owned=tuple(self.owned[address] for address in sorted(self.owned)),
            jobs=tuple(self.jobs[name] for name in sorted(self.jobs)),
            quotas={entity: values for entity, values in self.quotas.items() if values},
        )

    def take(self, step: Step) -> None:  # noqa: C901, PLR0912 - one branch for each step
        match step:
            case CreateTopic():
                assert step.topic not in self.topics, step.id
                self.topics[step.topic] = self._created(step)
            case GrowPartitions():
                topic = self.topics[step.topic]
                assert topic.partitions == step.old < step.new, step.id
                added = tuple(topic.replicas[0] for _ in range(step.new - step.old))
                self.topics[step.topic] = replace(topic, replicas=topic.replicas + added)
            case AlterConfigs():
                topic = self.topics[step.topic]
                config = _altered(topic.config, step, self.seen.defaults)
                self.topics[step.topic] = replace(topic, config=config)
            case Reassign():
                assert self.topics[step.topic].replicas == step.old, step.id
                self.topics[step.topic] = replace(self.topics[step.topic], replicas=step.replicas)
            case DeleteTopic():
                assert self.topics.pop(step.topic).id == step.topic_id, step.id
            case CreateAcl():
                assert self.acls is not None, step.id
                self.acls.add(step.rule)
            case DeleteAcl():
                assert self.acls is not None, step.id
                self.acls.remove(step.rule)
            case AlterQuota():
                limits = dict(self.quotas.get(step.entity.name, {}))
                assert {key: limits.get(key) for key in step.old} == step.old, step.id
                assert step.old.keys() == {*step.set, *step.unset} != set(), step.id
                kept = {key: value for key, value in limits.items() if key not in step.unset}
                self.quotas[step.entity.name] = {**kept, **step.set}
            case Own():
                self.owned[step.address] = self._stamped(step.entry)
            case Disown():
                assert self.owned.pop(step.address).topology == step.topology, step.id
            case LaunchJob():
                assert not self.runs(step.job), step.id
                spec = step.spec
                self.jobs[step.job] = running(spec, driver=f"made:{step.id}")
            case ReconfigureJob():
                assert self.runs(step.job), step.id
                self.jobs[step.job] = replace(self.jobs[step.job], spec=step.spec)
            case StopJob():
                if self.runs(step.job):
                    self.jobs[step.job] = replace(self.jobs[step.job], live=False, state="stopped")
            case _:
                raise AssertionError(f"{step.id}: no topology plans it")

    def _created(self, step: CreateTopic) -> ObservedTopic:
        partitions = step.partitions or self.seen.default_partitions or 1
        replication = step.replication or self.seen.default_replication or 1
        brokers = tuple(broker.id for broker in self.seen.brokers[:replication])
        assert len(brokers) == replication, step.id
        own = {key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in self.seen.defaults.items()}
        config = own | {key: ConfigValue(value) for key, value in step.config.items()}
        return ObservedTopic(step.topic, f"made:{step.id}", (brokers,) * partitions, config)

    def _stamped(self, entry: RegistryEntry) -> RegistryEntry:
        topic = self.topics.get(entry.address.name)
        if topic is None or "id" in entry.spec or entry.address.kind is not Kind.TOPIC:
            return entry
        return replace(entry, spec={**entry.spec, "id": topic.id})


def running(spec: JobSpec, *, driver: str = "a", live: bool = True, **more: object) -> LiveJob:
    """A job as its destination tells of it."""
    state = "running" if live else "stopped"
    job = LiveJob(spec.job, spec.destination, spec.topology, driver, state, 1_767_225_600_000, live, spec)
    return replace(job, **more)


def _altered(
    config: Mapping[str, ConfigValue], step: AlterConfigs, defaults: Mapping[str, str]
) -> dict[str, ConfigValue]:
    altered = {**config, **{key: ConfigValue(value) for key, value in step.set.items()}}
    for key in step.unset:
        altered.pop(key, None)
        if key in defaults:
            altered[key] = ConfigValue(defaults[key], ConfigSource.DEFAULT)
    return altered


def simulate(steps: Iterable[Step], observed: Observed) -> Observed:
    """The clusters after an apply in which everything went well, each step after those it needs."""
    live = {
        name: SimulatedCluster.of(one)
        for name, one in observed.clusters.items()
        if isinstance(one, ObservedCluster)
    }
    done: set[str] = set()
    for step in steps:
        assert done.issuperset(step.needs), f"{step.id} before {set(step.needs) - done}"
        live[step.cluster].take(step)
        done.add(step.id)
    after = {name: one.observed() for name, one in live.items()}
    return Observed({**observed.clusters, **after})
