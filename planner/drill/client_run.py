"""A scenario's clients: producers that count what was acknowledged, consumer groups, and comparisons.

Drills on lab clusters and the canaries of a live drill act through it, so a figure is measured in one way. A
method with a sentence is a step of features.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from planner.drill.load import DrillLoad
from planner.drill.routes import DrillRoute
from planner.drill.scenario_record import DrillAborted, Progress, ScenarioRecord
from planner.drill.steps.language import step
from planner.drill.traffic import (
    WITHIN_S,
    Acknowledged,
    DrillConsumer,
    DrillProducer,
    DrillRecord,
    Ends,
    record_id,
)
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run_at
from planner.kafka.librdkafka import admin
from planner.kafka.log import read
from planner.model.diagnostic import Failure, error
from runtime.batch import Record
from runtime.kafka.protocol.metadata import AnyMetadataRequest


@dataclass(slots=True)
class DrillGroup:
    """A consumer group: the topics that it reads at its first cluster, and the records that it read so far.

    `flow` is the only one that it reads behind; empty where all flows count. `again` and `skipped` are
    records of its last resumption; None before.
    """

    name: str
    cluster: str
    topics: tuple[str, ...]
    flow: str = ""
    read: set[bytes] = field(default_factory=set)
    again: int | None = None
    skipped: int | None = None


class ClientRun(ScenarioRecord):
    """Writes and reads records at clusters, and keeps what it measured.

    `endpoint` returns how a cluster is reached, `every_route` what flows copy between the clusters now.
    """

    def __init__(
        self,
        endpoint: Callable[[str], ClusterEndpoint],
        every_route: Callable[[], Sequence[DrillRoute]],
        load: DrillLoad,
        progress: Progress,
        name: str = "",
        cluster: str = "",
    ) -> None:
        super().__init__(progress, name, cluster)
        self.endpoint = endpoint
        self.groups: dict[str, DrillGroup] = {}
        self._every_route = every_route
        self._load = load
        self._producers: list[DrillProducer] = []
        self._connected: dict[str, list[DrillConsumer]] = {}

    def close(self) -> None:
        """Ends the load and the consumers that stay connected."""
        self.stop_load()
        for group in list(self._connected):
            self.disconnect(group)

    def admin(self, cluster: str) -> AdminClient:
        """Returns a client of a cluster. It must live until its answers are there."""
        return admin(self.endpoint(cluster))

    def topics(self, cluster: str) -> dict[str, int]:
        """Returns the topics of a cluster by their names, each with the number of its partitions."""
        topics = self.admin(cluster).list_topics(timeout=WITHIN_S).topics
        return {name: len(topic.partitions) for name, topic in sorted(topics.items())}

    # Load

    @step("{count} records are written to {topics} at {cluster}")
    def write(self, count: int, topics: Sequence[str], cluster: str) -> None:
        """So many records are written to each topic and acknowledged.
        `every topic` is each that flows copy."""
        self.producer(cluster, topics).write(count)

    @step("producers write {rate} records/s to {topics} at {cluster}")
    def start_load(self, rate: float, topics: Sequence[str], cluster: str) -> None:
        """Producers write at this rate to each topic, until they are stopped or the cluster is lost."""
        self.producer(cluster, topics).start(rate)

    @step("the producers have written {count} records to each topic")
    def await_load(self, count: int) -> None:
        """Waits for so many acknowledged records."""
        written = {
            f"{topic} at {producer.cluster}": records
            for producer in self._writing()
            for topic, records in producer.acknowledged.items()
        }

        def missing() -> str:
            if all(len(records) >= count for records in written.values()):
                return ""
            return ", ".join(f"{len(records):,} to {topic}" for topic, records in written.items())

        self.wait_while(missing, f"the producers did not write {count:,} records to each topic")

    @step("the producers stop")
    def stop_load(self, cluster: str = "") -> None:
        """Ends the load at every cluster."""
        for producer in self._writing(cluster):
            producer.stop()

    def _writing(self, cluster: str = "") -> list[DrillProducer]:
        """Returns the producers at a cluster, or at all, that write until they are stopped."""
        return [
            producer for producer in self._producers if producer.writes and cluster in ("", producer.cluster)
        ]

    def topics_at(self, cluster: str, topics: Sequence[str]) -> list[str]:
        """Returns these topics, or those of the cluster that flows copy. DrillAborted if one is missing."""
        if not topics:
            return sorted({route.topic for route in self.routes(cluster)})
        existing = self.topics(cluster)
        if missing := [topic for topic in topics if topic not in existing]:
            others = ", ".join(name for name in existing if not name.startswith("__")) or "none"
            raise DrillAborted(f"there is no topic {', '.join(missing)} at {cluster}; there are: {others}")
        return list(topics)

    def acknowledged(self, cluster: str, topic: str) -> dict[bytes, Acknowledged]:
        """Returns the records of a topic that the cluster acknowledged, by their ids."""
        records: dict[bytes, Acknowledged] = {}
        for producer in self._producers:
            if producer.cluster == cluster:
                records |= producer.acknowledged.get(topic, {})
        return records

    def producer(self, cluster: str, topics: Sequence[str]) -> DrillProducer:
        """Returns a producer whose acknowledged records count as those of the cluster."""
        names = self.topics_at(cluster, topics)
        self._producers.append(DrillProducer(self.endpoint(cluster), names, self._load))
        return self._producers[-1]

    # Groups

    @step("the group {group} has read {count} records of {topics} at {cluster}")
    def read(self, group: str, count: int, topics: Sequence[str], cluster: str, flow: str = "") -> None:
        """A consumer of the group reads so many records, commits its offsets and ends. Of several topics, it
        reads about as many of each."""
        names = self.topics_at(cluster, topics)
        reader = self.groups.setdefault(group, DrillGroup(group, cluster, (), flow))
        reader.topics = tuple(sorted({*reader.topics, *names}))
        with DrillConsumer(self.endpoint(cluster), group, names) as member:
            self._take(member, reader, cluster, count)

    @step("the group {group} resumes at {cluster}", resumes=True)
    def resume(self, group: str, cluster: str) -> None:
        """A consumer of the group reads on, to the present end. The time since the loss is the RTO."""
        self.resume_all({group: cluster})

    def resume_all(self, clusters: Mapping[str, str]) -> tuple[float, float] | None:
        """A consumer of each group reads on at its cluster, to the end of its topics as it is now.

        All consumers start at the same time. Returns when the last of them that got a record was started, and
        when it got its first one, in monotonic time; None where there were no records.
        """

        def go_on(name: str) -> tuple[float, DrillConsumer, set[bytes]]:
            topics = self._topics_at(self._group(name), clusters[name])
            began_at = time.monotonic()
            with DrillConsumer(self.endpoint(clusters[name]), name, topics) as member:
                return began_at, member, set(member.read_to_end())

        with ThreadPoolExecutor(max(1, len(clusters)), "groups") as pool:
            members = dict(zip(clusters, pool.map(go_on, clusters), strict=True))
        for name, (_, member, ids) in members.items():
            group = self.groups[name]
            expected: set[bytes] = set()
            for topic in self._topics_at(group, clusters[name]):
                expected |= self.ids(clusters[name], topic, member.ends)
            group.again, group.skipped = len(group.read & ids), len(expected - group.read - ids)
            group.read |= ids
        resumed = [group for group in self.groups.values() if group.again is not None]
        self.scenario.read_again = sum(group.again or 0 for group in resumed)
        self.scenario.skipped = sum(group.skipped or 0 for group in resumed)
        firsts = [(began, member.first_at) for began, member, _ in members.values() if member.first_at]
        return max(firsts, key=lambda first: first[1], default=None)

    @step("a consumer of the group {group} reads {count} records at {cluster} and stays connected")
    def connect(self, group: str, count: int, cluster: str) -> None:
        """A consumer of the group reads so many further records, commits its offsets and does not leave."""
        reader = self._group(group)
        member = DrillConsumer(self.endpoint(cluster), group, self._topics_at(reader, cluster))
        self._connected.setdefault(group, []).append(member)
        self._take(member, reader, cluster, count)

    @step("the consumers of the group {group} leave")
    def disconnect(self, group: str) -> None:
        """Ends the consumers of the group that stayed connected."""
        for member in self._connected.pop(group, ()):
            member.close()

    def _take(self, member: DrillConsumer, group: DrillGroup, cluster: str, records: int) -> None:
        growing = bool(self._writing(cluster))
        taken = member.take(records, growing=growing)
        group.read.update(*taken.values())
        if (came := sum(map(len, taken.values()))) < records:
            counts = ", ".join(f"{len(ids):,} of {topic}" for topic, ids in sorted(taken.items()))
            why = "" if growing else "; no more are there, and no producers write"
            raise DrillAborted(
                f"group {group.name} read {came:,} records at {cluster}, not {records:,}: {counts}{why}"
            )

    def _group(self, name: str) -> DrillGroup:
        if name not in self.groups:
            names = ", ".join(self.groups) or "none"
            raise DrillAborted(f"group {name} has read nothing yet, so it can't go on; groups: {names}")
        return self.groups[name]

    def _topics_at(self, group: DrillGroup, cluster: str) -> list[str]:
        if cluster == group.cluster:
            return list(group.topics)
        mirrors = {route.mirror for route in self.routes_of(group) if route.destination == cluster}
        if not mirrors:
            raise DrillAborted(
                f"no flow copies {', '.join(group.topics)}, which {group.name} reads, to {cluster}"
            )
        return sorted(mirrors)

    # Comparing

    def routes(self, *clusters: str) -> list[DrillRoute]:
        """Returns the routes out of these clusters, or all."""
        return [route for route in self._every_route() if not clusters or route.source in clusters]

    def routes_of(self, group: DrillGroup) -> list[DrillRoute]:
        """Returns the routes that copy what the group reads at its first cluster."""
        return [
            route
            for route in self.routes(group.cluster)
            if route.topic in group.topics and group.flow in ("", route.flow)
        ]

    def compared(self, clusters: Iterable[str] = ()) -> list[DrillRoute]:
        """Returns the routes out of these clusters, or all, whose records arrive as they were written."""
        return [route for route in self.routes(*clusters) if not route.transformed]

    def values(self, cluster: str, topic: str) -> list[bytes]:
        """Returns the values of all committed records of a topic."""
        return [record.value or b"" for record in self.records(cluster, topic)]

    def ids(self, cluster: str, topic: str, ends: Ends | None = None) -> set[bytes]:
        """Returns what tells the committed records of a topic apart, up to its present end or these."""
        return {record.id for record in self.records(cluster, topic, ends)}

    def records(self, cluster: str, topic: str, ends: Ends | None = None) -> list[DrillRecord]:
        """Returns the committed records of a topic, up to its present end or these."""
        return [record for some in self.partitions(cluster, topic, ends).values() for record in some]

    def partitions(self, cluster: str, topic: str, ends: Ends | None = None) -> dict[int, list[DrillRecord]]:
        """Returns the committed records of each partition in their order, up to its present end or this."""

        async def logs(client: ClusterClient) -> dict[int, list[Record]]:
            (described,) = (await client.ask(AnyMetadataRequest([topic]))).topics
            return {number: await read(client, topic, number) for number in sorted(described.partitions)}

        try:
            partitions = run_at(self.endpoint(cluster), logs, WITHIN_S)
        except ClusterFailure as failure:
            raise Failure(error(f"{topic} can't be read: {failure.why}", failure.hint)) from None
        return {
            number: [
                DrillRecord(
                    record_id(topic, number, record.offset, record.value, record.headers), record.value
                )
                for record in records
                if ends is None or record.offset < ends.get((topic, number), record.offset + 1)
            ]
            for number, records in partitions.items()
        }
