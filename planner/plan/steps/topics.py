"""Topics: what follows from a change, and the steps: create, grow, configure, reassign and delete."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import field
from msgspec.structs import replace

from planner.diff.record import topic_entry
from planner.diff.typed_values import PARTITIONS, REPLICATION, explicit, given_back_after
from planner.diff.values import readable
from planner.model.address import Address
from planner.model.change import SENSITIVE, Action, Change, Facts
from planner.model.desired import DesiredTopic
from planner.model.observed import (
    ID,
    ObservedBroker,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
)
from planner.model.step import RESTORE, Milestone, PlannedSteps, Step
from planner.model.topology import looks_secret
from planner.plan.object_kind import EXISTS, UNREAD, ObjectKind, owner, removal
from planner.plan.steps.registry import Own

UNDECLARED_PARTITIONS = 10  # assumed for a topic without a number, for the size of a request


class TopicStep(Step, frozen=True):
    """A step about one topic."""

    topic: str


class CreateTopic(TopicStep, frozen=True):
    """Creates a topic. A number that is None is left to the cluster."""

    verb = "create"
    past = "created"
    checked = True
    outdated = "TOPIC_ALREADY_EXISTS"
    needed_right = "CREATE on the topic {topic}"

    partitions: int | None
    replication: int | None
    config: Mapping[str, str]

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield f"partitions {_or_default(self.partitions)}, replication {_or_default(self.replication)}"
        yield _settings(self.config, hidden)

    @property
    def metadata_records(self) -> int:
        return 1 + (self.partitions or UNDECLARED_PARTITIONS) + len(self.config)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.config)

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.address in topics

    @property
    def left(self) -> Facts:
        numbers = {PARTITIONS: self.partitions, REPLICATION: self.replication}
        chosen = {path: number for path, number in numbers.items() if number is not None}
        return {EXISTS: True, **chosen, **_settings_facts(self.config)}


class GrowPartitions(TopicStep, frozen=True):
    """Adds partitions to a topic."""

    verb = "grow"
    past = "grown"
    checked = True
    outdated = "INVALID_PARTITIONS"
    needed_right = "ALTER on the topic {topic}"
    not_undone = "partitions only grow", "for fewer, make a topic of another name and copy into it"

    old: int
    new: int

    @property
    def metadata_records(self) -> int:
        return self.new - self.old

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield f"{self.old} -> {self.new} partitions"

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.address in topics

    @property
    def left(self) -> Facts:
        return {EXISTS: True, PARTITIONS: self.new}


class AlterConfigs(TopicStep, frozen=True):
    """Changes only these keys: `set` to a value, `unset` back to the cluster's value."""

    verb = "configure"
    past = "configured"
    checked = True
    outdated = "UNKNOWN_TOPIC_OR_PARTITION"
    needed_right = "ALTER_CONFIGS on the topic {topic}"

    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    old: Mapping[str, str | None] = field(default_factory=dict)  # the values before, for a rollback

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield _settings(self.set, hidden)
        yield "back to the cluster's own: " + ", ".join(self.unset) if self.unset else ""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset({*self.set, *self.unset})

    @property
    def wanted(self) -> Mapping[str, str | None]:
        """Returns the value of each key after the step; None is the cluster's value."""
        return {**self.set, **dict.fromkeys(self.unset)}

    def waits_for(self, others: PlannedSteps) -> Iterable[str]:
        """Lifted limits are restored after the failback has ended."""
        return others.at(self.cluster, Milestone.FLOW_REGISTERED) if self.restores else ()

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        return self.address in topics and not self.restores

    @property
    def left(self) -> Facts:
        return {EXISTS: True, **_settings_facts(self.wanted)}


class Reassign(TopicStep, frozen=True):
    """Changes the replication factor: has the wanted replicas of every partition."""

    verb = "reassign"
    past = "reassigned"
    in_progress = "moving replicas"
    needed_right = "ALTER on the cluster"

    replicas: tuple[tuple[int, ...], ...]
    old: tuple[tuple[int, ...], ...]

    @property
    def metadata_records(self) -> int:
        return len(self.replicas)

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield f"{_counts(self.old)} -> {_counts(self.replicas)} replicas"

    @property
    def left(self) -> Facts:
        """Partitions that are added later were not moved."""
        return {EXISTS: True, **_replicas_facts(self.replicas)}


class DeleteTopic(TopicStep, frozen=True):
    """Deletes the topic with the planned `topic_id`, never another topic of the same name.

    Topics of clusters before Kafka 2.8 have no id (""): there the name alone decides.
    """

    verb = "delete"
    past = "deleted"
    needed_right = "DELETE on the topic {topic}"
    not_undone = "its records are gone", "declare it again for an empty one"

    topic_id: str

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield f"with its records (topic id {self.topic_id})"

    @property
    def left(self) -> Facts:
        return {EXISTS: False}


def _or_default(number: int | None) -> str:
    return "as the cluster has it" if number is None else str(number)


def _settings(values: Mapping[str, str], hidden: Collection[str]) -> str:
    return ", ".join(
        f"{key}={SENSITIVE if key in hidden or looks_secret(key) else readable(key, value)}"
        for key, value in sorted(values.items())
    )


def _counts(replicas: Sequence[Sequence[int]]) -> str:
    return ", ".join(str(factor) for factor in sorted({len(partition) for partition in replicas}))


def _settings_facts(values: Mapping[str, str | None]) -> Facts:
    return {("config", key): value for key, value in sorted(values.items())}


def _replicas_facts(replicas: Sequence[Sequence[int]]) -> Facts:
    return {("replicas", str(number)): frozenset(brokers) for number, brokers in enumerate(replicas)}


def topic_facts(live: ObservedTopic | None, keys: Iterable[str]) -> Facts:
    """Returns what is known of a live topic, with the settings of its own among these."""
    if live is None:
        return {EXISTS: False}
    own = {key: explicit(live, key) for key in sorted(keys)}
    return {
        EXISTS: True,
        ("id",): live.id,
        PARTITIONS: live.partitions,
        REPLICATION: live.replication_factors,
        **_replicas_facts(live.replicas),
        **{
            ("config", key): None if value is None else UNREAD if value.sensitive else value.value
            for key, value in own.items()
        },
    }


class TopicKind(ObjectKind):
    """Topics, declared ones and mirrors."""

    def steps(
        self,
        change: Change,
        desired: DesiredTopic,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        topology: str,
    ) -> list[Step]:
        """The topic is created or altered, then registered."""
        live = cluster.topics.get(desired.name)
        created = live is None or (entry is not None and entry.created)
        steps: list[Step] = (
            [_create(desired)] if live is None else _update(change, desired, live, cluster, entry)
        )
        record = topic_entry(desired, topology, None if live is None else live.id, created=created)
        return [*steps, Own.of(record, desired.cluster, tuple(step.id for step in steps))]

    def removal(self, change: Change, entry: RegistryEntry, cluster: ObservedCluster) -> list[Step]:
        live, address = cluster.topics.get(entry.address.name), entry.address
        if live is None or change.action is not Action.DELETE:
            return []
        topic_id = entry.spec.get(ID, live.id)
        return [DeleteTopic(f"delete:{address}", address, cluster.name, address.name, topic_id)]

    def keys(self, change: Change) -> frozenset[str]:
        configs = [state.get("config") for state in (change.before, change.after) if state is not None]
        return frozenset(key for config in configs if isinstance(config, Mapping) for key in config)

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        """Replicas may move, unless the plan moves them."""
        moves = not steps or any(isinstance(step, Reassign) for step in steps)
        hidden = () if moves else ("replicas", "replication")
        live = topic_facts(cluster.topics.get(name), keys)
        shown = {path: fact for path, fact in live.items() if path[0] not in hidden}
        return {**owner(entry), **shown, **removal(entry)}


def _create(topic: DesiredTopic) -> CreateTopic:
    return CreateTopic(
        id=f"create:{topic.address}",
        address=topic.address,
        cluster=topic.cluster,
        topic=topic.name,
        partitions=topic.partitions,
        replication=topic.replication,
        config=dict(sorted(topic.config.items())),
    )


def _update(
    change: Change,
    topic: DesiredTopic,
    live: ObservedTopic,
    cluster: ObservedCluster,
    entry: RegistryEntry | None,
) -> list[Step]:
    alter = _alter(change, topic, entry)
    reassign: list[Reassign] = []
    grow: list[GrowPartitions] = []
    where = topic.address, topic.cluster, topic.name
    if change.field("replication") is not None:
        replicas = wanted_replicas(live.replicas, topic.replication or 0, cluster.brokers)
        if replicas is not None:
            reassign = [Reassign(f"reassign:{topic.address}", *where, replicas, live.replicas)]
    if (
        change.field("partitions") is not None
        and topic.partitions is not None
        and topic.partitions > live.partitions
    ):
        grow = [GrowPartitions(f"grow:{topic.address}", *where, live.partitions, topic.partitions)]
    if alter and reassign:
        if _replicas_first(topic, live):
            alter = [replace(alter[0], needs=(reassign[0].id,))]
        else:
            reassign = [replace(reassign[0], needs=(alter[0].id,))]
    if grow and reassign:
        # New partitions take the replication of existing ones, and a reassignment names existing ones only.
        grow = [replace(grow[0], needs=(reassign[0].id,))]
    return [*alter, *reassign, *grow]


def _replicas_first(topic: DesiredTopic, live: ObservedTopic) -> bool:
    """Returns whether replicas change before min.insync.replicas does.

    min.insync.replicas must never exceed the number of replicas of any partition.
    """
    wanted = topic.replication or 0
    if all(len(partition) <= wanted for partition in live.replicas):
        return True
    least = topic.config.get("min.insync.replicas", "")
    return least.isdecimal() and int(least) > live.replication


def _alter(change: Change, topic: DesiredTopic, entry: RegistryEntry | None) -> list[AlterConfigs]:
    """Returns one step for all settings. Its id says if it restores limits that a failback lifted."""
    configs = [setting for setting in change.fields if setting.path[0] == "config"]
    if not configs:
        return []
    values = {**topic.restored, **topic.config}
    restores = given_back_after(topic, entry) & {setting.key for setting in configs}
    return [
        AlterConfigs(
            id=f"{RESTORE if restores else 'alter:'}{topic.address}",
            address=topic.address,
            cluster=topic.cluster,
            topic=topic.name,
            set={setting.key: values[setting.key] for setting in configs if setting.new is not None},
            unset=tuple(setting.key for setting in configs if setting.new is None),
            old={
                setting.key: SENSITIVE
                if setting.sensitive
                else None
                if setting.old is None
                else str(setting.old)
                for setting in configs
            },
        )
    ]


def wanted_replicas(
    replicas: Sequence[tuple[int, ...]], replication: int, brokers: Sequence[ObservedBroker]
) -> tuple[tuple[int, ...], ...] | None:
    """Returns the new replicas of each partition; None if there are fewer live brokers than replicas.

    As few replicas as possible move. Replicas that stay keep their place, and the preferred leader stays
    first. A new replica goes to the broker with the fewest replicas of this topic, on an unused rack if one
    is left.
    """
    if replication < 1 or replication > len(brokers):
        return None
    racks = {broker.id: broker.rack for broker in brokers}
    load = Counter({broker.id: 0 for broker in brokers})
    kept = [tuple(broker for broker in partition if broker in racks)[:replication] for partition in replicas]
    for partition in kept:
        load.update(partition)
    wanted = []
    for partition in kept:
        chosen = list(partition)
        while len(chosen) < replication:
            used_racks = {racks[number] for number in chosen if racks[number] is not None}
            broker = min(
                (number for number in racks if number not in chosen),
                key=lambda number: (racks[number] in used_racks, load[number], number),
            )
            load[broker] += 1
            chosen.append(broker)
        wanted.append(tuple(chosen))
    return tuple(wanted)
