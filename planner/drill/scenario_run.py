"""One scenario under way: clients write and read, clusters are lost, commands run, and all is measured.

The standard drill and the sentences of features act through it, so a figure is measured in one way. A method
with a sentence is a step of features.
"""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import yaml

from planner.drill.operator import TopicOperator
from planner.drill.replica import Replica
from planner.drill.routes import DrillRoute
from planner.drill.rules import grant_job_rights
from planner.drill.scenario_record import DrillAborted, DrillLoss, Progress, ScenarioRecord
from planner.drill.steps.language import step
from planner.drill.traffic import (
    Acknowledged,
    DrillConsumer,
    DrillProducer,
    DrillRecord,
    Ends,
    Passage,
    partitions_at,
    shows,
)
from planner.graph.routes import reason_not_synced
from planner.model.drill import RecoveryTime, Scenario
from planner.model.topology import Flow
from planner.workflows.audit.reading import offsets
from planner.workflows.audit.replication_status import status
from planner.workflows.requests import OffsetsRequest, ReplicationStatusRequest
from runtime.contract.records.group_records import CheckpointState
from runtime.contract.records.job_status import PartitionState
from runtime.contract.results.status import ReplicationStatus

WITHIN_S = 240.0  # for what a job must have done
_STOPPED_S = 20.0  # a partition that needs a decision for so long is waited for no more
_REPORT_S = 10.0  # between two lines of progress while something is waited for
_LOOK_S = 0.3
_READABLE_S = 30.0
_APPROVED = {"apply", "failover", "promote", "failback", "pause", "resume", "salvage", "destroy", "restore"}
# Where a group stands behind all records, its offset may be beyond a translation of later: past a marker.
_SYNCED = {CheckpointState.TRANSLATED, CheckpointState.AHEAD, CheckpointState.OURS}
_STOPPED = {state for state in PartitionState if state.needs_someone}
_OUTPUT = 4_000  # characters of a command's output that are kept


@dataclass(slots=True)
class DrillGroup:
    """A consumer group: the topics that it reads at its first cluster, and the records that it read so far.

    `again` and `skipped` are records of its last resumption.
    """

    name: str
    cluster: str
    topics: tuple[str, ...]
    flow: str = ""  # the only one that it reads behind; empty where all flows count
    read: list[bytes] = field(default_factory=list)
    resumed: bool = False
    again: int = 0
    skipped: int = 0


class _Resumption(NamedTuple):
    """How a group read on at a cluster. `began_at` is when its consumer was started, in monotonic time."""

    group: DrillGroup
    cluster: str
    topics: list[str]
    began_at: float
    passage: Passage


class ScenarioRun(ScenarioRecord):
    """Acts on a replica, and keeps what it did and measured."""

    def __init__(self, replica: Replica, progress: Progress, numbers: "count[int] | None" = None) -> None:
        super().__init__(progress)
        self.replica = replica
        self.groups: dict[str, DrillGroup] = {}
        self.operator = TopicOperator(replica.client)
        self._numbers = count(1) if numbers is None else numbers
        self._producers: list[DrillProducer] = []
        self._load: list[DrillProducer] = []  # those that write until they are stopped
        self._connected: dict[str, list[DrillConsumer]] = {}
        self._lost: dict[str, float] = {}  # when each cluster was lost
        self._copied: dict[str, float] = {}  # when everything of a cluster was last copied
        self._failover_s = 0.0
        self._loss_pending = False
        self._before = ""  # the topology's text before the last command of the engineer
        self._last: subprocess.CompletedProcess[str] | None = None
        self._may_fail: subprocess.CompletedProcess[str] | None = None

    def result(self, name: str, cluster: str, problem: str = "") -> Scenario:
        """Returns the scenario as the report shows it."""
        resumed = [group for group in self.groups.values() if group.resumed]
        return replace(
            super().result(name, cluster, problem),
            read_again=sum(group.again for group in resumed) if resumed else None,
            skipped=sum(group.skipped for group in resumed) if resumed else None,
        )

    def close(self) -> None:
        """Ends the load and the consumers that stay connected."""
        self.stop_load()
        for group in list(self._connected):
            self.disconnect(group)

    # Load

    @step("{count} records are written to {topics} at {cluster}")
    def write(self, count: int, topics: Sequence[str], cluster: str) -> None:
        """So many records are written to each topic and acknowledged.
        `every topic` is each that flows copy."""
        self._producer(cluster, topics).write(count)

    @step("producers write {rate} records/s to {topics} at {cluster}")
    def start_load(self, rate: float, topics: Sequence[str], cluster: str) -> None:
        """Producers write at this rate to each topic, until they are stopped or the cluster is lost."""
        producer = self._producer(cluster, topics)
        self._load.append(producer)
        producer.start(rate)

    @step("the producers have written {count} records to each topic")
    def await_load(self, count: int) -> None:
        """Waits for so many acknowledged records."""
        written = {
            f"{topic} at {producer.cluster}": records
            for producer in self._load
            for topic, records in producer.acknowledged.items()
        }

        def counts() -> str:
            return ", ".join(f"{len(records):,} to {topic}" for topic, records in written.items()) or "none"

        self.until(
            lambda: all(len(records) >= count for records in written.values()),
            f"the producers did not write {count:,} records to each topic",
            waiting=counts,
        )

    @step("the producers stop")
    def stop_load(self, cluster: str = "") -> None:
        """Ends the load at every cluster."""
        for producer in [one for one in self._load if cluster in ("", one.cluster)]:
            producer.stop()
            self._load.remove(producer)

    def topics_at(self, cluster: str, topics: Sequence[str]) -> list[str]:
        """Returns these topics, or those of the cluster that flows copy. DrillAborted if one is missing."""
        if not topics:
            return sorted({route.topic for route in self.routes(cluster)})
        existing = self.replica.topics(cluster)
        if missing := [topic for topic in topics if topic not in existing]:
            others = ", ".join(sorted(name for name in existing if not name.startswith("__"))) or "none"
            raise DrillAborted(f"there is no topic {', '.join(missing)} at {cluster}; there are: {others}")
        return list(topics)

    def acknowledged(self, cluster: str, topic: str) -> dict[bytes, Acknowledged]:
        """Returns the records of a topic that the cluster acknowledged, by their ids."""
        records: dict[bytes, Acknowledged] = {}
        for producer in self._producers:
            if producer.cluster == cluster:
                records |= producer.acknowledged.get(topic, {})
        return records

    def _producer(self, cluster: str, topics: Sequence[str]) -> DrillProducer:
        names = self.topics_at(cluster, topics)
        client, make = self.replica.client(cluster), self.replica.load.record
        self._producers.append(DrillProducer(cluster, client, names, self._numbers, make))
        return self._producers[-1]

    # Groups

    @step("the group {group} has read {count} records of {topics} at {cluster}")
    def read(self, group: str, count: int, topics: Sequence[str], cluster: str, flow: str = "") -> None:
        """A consumer of the group reads so many records, commits its offsets and ends. Of several topics, it
        reads about as many of each."""
        names = self.topics_at(cluster, topics)
        known = self.groups.setdefault(group, DrillGroup(group, cluster, (), flow))
        known.topics = tuple(sorted({*known.topics, *names}))
        with DrillConsumer(self.replica.client(cluster), group, names) as member:
            self._take(member, known, cluster, count)

    @step("the group {group} resumes at {cluster}", resumes=True)
    def resume(self, group: str, cluster: str) -> None:
        """A consumer of the group reads on, to the present end. The time since the loss is the RTO."""
        self.resume_all({group: cluster})

    def resume_all(self, clusters: Mapping[str, str]) -> None:
        """A consumer of each group reads on at its cluster, to the end of its topics as it is now.

        All consumers start at the same time. The RTO is the time from the last loss until the last of them
        got its first record.
        """

        def go_on(name: str) -> _Resumption:
            group, cluster = self._group(name), clusters[name]
            topics = self._topics_at(group, cluster)
            began_at = time.monotonic()
            with DrillConsumer(self.replica.client(cluster), name, topics) as member:
                return _Resumption(group, cluster, topics, began_at, member.read_to_end())

        with ThreadPoolExecutor(max(1, len(clusters)), "groups") as pool:
            resumptions = list(pool.map(go_on, clusters))
        for resumption in resumptions:
            group, passage = resumption.group, resumption.passage
            before, ids = set(group.read), set(passage.ids)
            wanted = {
                id_
                for topic in resumption.topics
                for id_ in self.ids(resumption.cluster, topic, passage.ends)
            }
            group.resumed = True
            group.again, group.skipped = len(before & ids), len(wanted - before - ids)
            group.read += passage.ids
            self._measure_rto(resumption)

    def _measure_rto(self, resumption: _Resumption) -> None:
        first_at = resumption.passage.first_at
        if first_at is None or not self._lost:
            return
        lost_at = max(self._lost.values())
        if self.rto is None or first_at - lost_at > self.rto.total_s:
            failover_s = min(self._failover_s, resumption.began_at - lost_at)
            wait_s = resumption.began_at - lost_at - failover_s
            self.rto = RecoveryTime(failover_s, wait_s, first_at - resumption.began_at)

    @step("a consumer of the group {group} reads {count} records at {cluster} and stays connected")
    def connect(self, group: str, count: int, cluster: str) -> None:
        """A consumer of the group reads so many further records, commits its offsets and does not leave."""
        known = self._group(group)
        member = DrillConsumer(self.replica.client(cluster), group, self._topics_at(known, cluster))
        self._connected.setdefault(group, []).append(member)
        self._take(member, known, cluster, count)

    @step("the consumers of the group {group} leave")
    def disconnect(self, group: str) -> None:
        """Ends the consumers of the group that stayed connected."""
        for member in self._connected.pop(group, ()):
            member.close()

    def _take(self, member: DrillConsumer, group: DrillGroup, cluster: str, records: int) -> None:
        def may_grow() -> bool:
            return any(producer.cluster == cluster for producer in self._load)

        ids = member.take(records, may_grow)
        group.read += ids
        if len(ids) < records:
            counts = ", ".join(f"{number:,} of {topic}" for topic, number in sorted(member.counts.items()))
            why = "" if may_grow() else "; no more are there, and no producers write"
            raise DrillAborted(
                f"group {group.name} read {len(ids):,} records at {cluster}, not {records:,}: {counts}{why}"
            )

    def _group(self, name: str) -> DrillGroup:
        if name not in self.groups:
            known = ", ".join(self.groups) or "none"
            raise DrillAborted(f"group {name} has read nothing yet, so it can't go on; groups: {known}")
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

    # Waiting

    @step("the flows have copied everything")
    def await_copied(self, *clusters: str) -> None:
        """Waits until no active flow has lag, also into files, and the synced groups are translated."""
        # A failover does not change flows into files, so those out of a lost cluster are not waited for.
        into_files = {
            name: flow
            for name, flow in self.replica.flows_into_files().items()
            if flow.source_cluster not in self._lost
        }
        active = {
            name: flow
            for name, flow in {**self.replica.flows(), **into_files}.items()
            if flow.state == "active" and (not clusters or flow.source_cluster in clusters)
        }
        lag = _Lag(
            active, {(route.flow, route.topic) for route in self.replica.routes if route.flow in active}
        )
        named = f"the flows {', '.join(sorted(active))}" if active else "the flows"

        def copied() -> bool:
            lag.looked_at = time.monotonic()
            return lag.is_gone(self.status())

        self.until(copied, f"{named} did not catch up", waiting=lambda: lag.waiting)
        self._copied |= dict.fromkeys(clusters or self.replica.topology.clusters, lag.looked_at)
        for group in self.groups.values():
            for name in sorted({route.flow for route in self.routes_of(group)} & active.keys()):
                if not reason_not_synced(active[name], group.name):
                    self._await_translated(name, group)

    def _await_translated(self, flow: str, group: DrillGroup) -> None:
        """Waits until a flow has translated each offset that a group has committed at the source."""
        waiting: list[str] = []

        def translated() -> bool:
            view = offsets(OffsetsRequest(self.replica.file, flow=flow, group=group.name))
            committed = [place for place in view.partitions if place.source is not None]
            waiting[:] = [
                f"{place.topic}-{place.partition} is {place.state} {place.why}".strip()
                for place in committed
                if place.state not in _SYNCED
            ]
            if not committed:
                topics = sorted({route.topic for route in self.routes_of(group) if route.flow == flow})
                self.progress(
                    f"group {group.name} has committed no offset of {', '.join(topics)} at {group.cluster},"
                    f" so {flow} has nothing to translate"
                )
            return not waiting

        self.until(
            translated, f"group {group.name} was not translated by {flow}", waiting=lambda: "; ".join(waiting)
        )

    def until(
        self,
        holds: Callable[[], bool],
        problem: str,
        within_s: float = WITHIN_S,
        waiting: Callable[[], str] = str,
    ) -> None:
        """Waits until it holds. `problem` is the error where it never does, `waiting` says what is missing.

        What is missing is reported every ten seconds.
        """
        began = reported = time.monotonic()
        while not holds():
            now = time.monotonic()
            missing = waiting()
            if now > began + within_s:
                raise DrillAborted(f"{problem} within {within_s:g} s{missing and f': {missing}'}")
            if missing and now > reported + _REPORT_S:
                reported = now
                self.progress(f"waiting for {now - began:.0f} s: {missing}")
            time.sleep(_LOOK_S)

    # Losses

    @step("{cluster} is lost")
    def lose(self, cluster: str, brokers: Sequence[int] = ()) -> None:
        """Every broker of the cluster is killed at once, as by a power cut. Its producers end."""
        self._lost[cluster] = time.monotonic()
        self.replica.lose(cluster, brokers)
        if not brokers:
            self.stop_load(cluster)

    @step("half of {cluster} is lost")
    def lose_half(self, cluster: str) -> None:
        """One of two brokers is killed. The cluster is started with two."""
        self.lose(cluster, [1])

    @step("{count} of {all} brokers of {cluster} are lost")
    def lose_brokers(self, count: int, all: int, cluster: str) -> None:  # noqa: A002 - a name of the sentence
        """So many brokers are killed. The cluster is started with the larger number."""
        self.lose(cluster, range(1, count + 1))

    @step("{cluster} is cut off")
    def cut_off(self, cluster: str) -> None:
        """Jobs and commands reach the cluster no more. Its own producers and consumers do."""
        self._lost[cluster] = time.monotonic()
        self.replica.link(cluster).cut()

    @step("the link to {cluster} is {ms} ms slower")
    def slow_link(self, cluster: str, ms: int) -> None:
        """Jobs and commands get the cluster's answers later."""
        self.replica.link(cluster).slow(ms / 1000)

    @step("the link to {cluster} is restored")
    def restore_link(self, cluster: str) -> None:
        """Ends a cut and a delay."""
        self.bring_back(cluster)

    @step("{cluster} is started again")
    def bring_back(self, cluster: str) -> None:
        """The brokers that were lost start on their data.

        Its link is made whole and quick. It returns when consumers can read what was acknowledged: a leader
        that was just elected shows a shorter log until it knows how far its followers are. What is still
        missing after a while is lost.
        """
        self.count_loss()
        self.replica.bring_back(cluster)
        self._lost.pop(cluster, None)
        ends: dict[tuple[str, int], int] = {}
        for producer in self._producers:
            if producer.cluster == cluster:
                ends |= {at: max(end, ends.get(at, 0)) for at, end in producer.ends().items()}
        with suppress(DrillAborted):
            client = self.replica.client(cluster)
            self.until(lambda: shows(client, ends), "acknowledged records can't be read", _READABLE_S)

    @step("the machine of the jobs is lost")
    def lose_machine(self) -> None:
        """Every job is killed with its supervisor, and its folder is gone.
        Commands run on another machine."""
        self.replica.lose_machine()

    @step("retention deletes every record of {topics} at {cluster}")
    def delete_records(self, topics: Sequence[str], cluster: str) -> None:
        """The topics' logs start at their present ends, as where retention is shorter than an outage."""
        self.replica.delete_records(cluster, self.topics_at(cluster, topics))

    def count_loss(self) -> None:
        """Counts what the lost clusters acknowledged and is not at the destinations, once after a failover.

        Reading both sides takes seconds, so it waits until the consumers have gone on.
        """
        if not self._loss_pending:
            return
        self._loss_pending = False
        with self.step("what did not arrive is counted"):
            routes = self.routes(*self._lost)
            filtering = self.status() if any(route.filtered for route in routes) else None
            missing: list[float] = []
            at_risk = 0
            for route in routes:
                records = self.acknowledged(route.source, route.topic)
                end = max([self._lost[route.source], *(record.at for record in records.values())])
                if filtering is not None and route.filtered:
                    arrived = _passed(filtering, route, records)
                else:
                    arrived = self.ids(route.destination, route.mirror)
                missing += [end - record.at for id_, record in records.items() if id_ not in arrived]
                copied_at = self._copied.get(route.source, 0.0)
                at_risk += sum(record.at > copied_at for record in records.values())
        self.loss = DrillLoss(len(missing), max(missing, default=0.0), at_risk)

    # Changes of the topology, and commands

    @step("the flow {flow} is changed to {changes}")
    def change_flow(self, flow: str, changes: str) -> None:
        """Keys of the flow are edited in the topology, for example `{rate_limit: 1MB/s}`.
        Nothing is applied."""
        self.change("flows", flow, yaml.safe_load(changes))

    @step("the topic {topic} at {cluster} is changed to {changes}")
    def change_topic(self, topic: str, cluster: str, changes: str) -> None:
        """Keys of the declared topic are edited, or it is declared. Nothing is applied."""
        self.change("topics", topic, yaml.safe_load(changes), cluster)

    def change(self, kind: str, name: str, changes: Mapping[str, Any], cluster: str = "") -> None:
        """Edits the declaration of a flow or a topic, and gives the job rights of elsewhere on new topics."""
        self.replica.change(kind, name, changes, cluster)
        grant_job_rights(self.replica)

    @step("the topology is again as before the last command")
    def undo_last(self) -> None:
        """What the engineer's last command wrote into the topology is undone. Nothing is applied."""
        self.last()
        self.replica.write(self._before)

    @step("the engineer runs repl {command}")
    def engineer(self, command: str) -> None:
        """Runs the command on the topology and approves. If it fails, the next step must expect that."""
        words = shlex.split(command)
        approves = words[0] in _APPROVED and not {"--auto-approve", "--rehearse", "--json"} & {*words}
        if words[0] == "salvage":
            approves = approves and "--replay" in words
        self._before = self.replica.read()
        self._last = self.run("", *words, *(["--auto-approve"] if approves else []))

    def last(self) -> "subprocess.CompletedProcess[str]":
        """Returns the last command of the engineer."""
        if self._last is None:
            raise DrillAborted("the engineer has run no command yet")
        return self._last

    def expect_failure(self) -> None:
        """The last command of the engineer may have failed: a step looks at how it ended."""
        self._may_fail = self._last

    def failed_command(self) -> str:
        """Returns how the last command of the engineer failed; "" if it did not, or was expected to."""
        done = self._last
        if done is None or not done.returncode or done is self._may_fail:
            return ""
        return f"repl {' '.join(done.args[3:])} failed with exit code {done.returncode}: {printed(done)}"

    def command(self, text: str, *words: str) -> None:
        """Runs a command of repl. One that fails ends the scenario."""
        done = self.run(text, *words)
        if done.returncode:
            command = f"repl {' '.join(words)}"
            raise DrillAborted(f"{command} failed with exit code {done.returncode}: {printed(done)}")

    def run(self, text: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of repl, as a step of its own where it has a text."""
        self.count_loss()
        command = f"repl {' '.join(words)}"
        if not text:
            self.progress(command)
        with self.step(text, f"{text}: {command}") if text else nullcontext():
            began = time.monotonic()
            done = self.replica.run(*words)
            self._commands.append((command, (done.stdout + done.stderr)[-_OUTPUT:]))
        if words[0] == "failover" and not done.returncode and "--rehearse" not in words and self._lost:
            self._failover_s += time.monotonic() - began
            self._loss_pending = True
        return done

    # Comparing

    def routes(self, *clusters: str) -> list[DrillRoute]:
        """Returns the routes out of these clusters, or all."""
        return [route for route in self.replica.routes if not clusters or route.source in clusters]

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

    def flows_with_uncopied(self, cluster: str) -> list[str]:
        """Returns the flows out of a cluster which holds records that their destinations lack.

        They may be records that no producer got an acknowledgement for: those are in no loss.
        """
        uncopied = {
            route.flow
            for route in self.compared([cluster])
            if self.ids(cluster, route.topic) - self.ids(route.destination, route.mirror)
        }
        return sorted(uncopied)

    def values(self, cluster: str, topic: str) -> list[bytes]:
        """Returns the values of all committed records of a topic."""
        return [record.value or b"" for record in self.records(cluster, topic)]

    def ids(self, cluster: str, topic: str, ends: Ends | None = None) -> set[bytes]:
        """Returns what tells the committed records of a topic apart, up to its present end or these."""
        records = partitions_at(self.replica.client(cluster), topic, ends).values()
        return {record.id for partition in records for record in partition}

    def records(self, cluster: str, topic: str) -> list[DrillRecord]:
        """Returns all committed records of a topic."""
        return [record for records in self.partitions(cluster, topic).values() for record in records]

    def partitions(self, cluster: str, topic: str) -> dict[int, list[DrillRecord]]:
        """Returns the committed records of each partition of a topic in their order."""
        return partitions_at(self.replica.client(cluster), topic)

    def topic_at_other_side(self, cluster: str, topic: str, other: str) -> str:
        """Returns the name at another cluster of a topic that a flow copies from or to there."""
        for route in self.routes():
            if (route.destination, route.mirror, route.source) == (cluster, topic, other):
                return route.topic
            if (route.source, route.topic, route.destination) == (cluster, topic, other):
                return route.mirror
        raise DrillAborted(f"no flow copies {topic} between {cluster} and {other}")

    def status(self) -> ReplicationStatus:
        """Returns the status of the copy's flows."""
        return status(ReplicationStatusRequest(self.replica.file, over_ms=0))


@dataclass(slots=True)
class _Lag:
    """What flows have not copied yet, by one look at the status after the other.

    `waiting` says what the last look showed, taken at `looked_at`.
    """

    flows: Mapping[str, Flow]
    topics: AbstractSet[tuple[str, str]]  # of each flow, those that its status must show
    looked_at: float = 0.0
    waiting: str = ""
    stopped_since: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def is_gone(self, view: ReplicationStatus) -> bool:
        """Returns whether nothing is left to copy. DrillAborted where a flow can't go on by itself."""
        flows = [flow for flow in view.flows if flow.name in self.flows]
        stopped: dict[tuple[str, str, int], float] = {}
        for flow in flows:
            for place in flow.partitions:
                if place.state in _STOPPED:
                    key = flow.name, place.topic, place.partition
                    stopped[key] = self.stopped_since.get(key, self.looked_at)
                    if place.state == PartitionState.RECORD_INVALID:
                        hint = (
                            "declare the schema of its records, or record a sample of them for drill.samples"
                        )
                    elif self.looked_at - stopped[key] < _STOPPED_S:
                        continue
                    else:
                        hint = "only a command of the engineer can change that"
                    why = place.why or place.state
                    raise DrillAborted(f"{flow.name} stops at {place.topic}-{place.partition}: {why}; {hint}")
        self.stopped_since = stopped
        behind = [flow for flow in flows if flow.lag_records != 0]
        missing = self.topics - {(flow.name, topic.topic) for flow in flows for topic in flow.topics}
        self.waiting = ", ".join(
            [
                *(f"{flow.name} has not copied {_records(flow.lag_records)}" for flow in behind),
                *(f"{flow} does not show {topic} yet" for flow, topic in sorted(missing)),
            ]
        )
        return not behind and not missing


def _records(lag: int | None) -> str:
    return "an unknown number of records" if lag is None else f"{lag:,} records"


def _passed(view: ReplicationStatus, route: DrillRoute, records: Mapping[bytes, Acknowledged]) -> set[bytes]:
    """Returns the records that a flow copied or left out: those before its position at the source."""
    positions = {
        place.partition: place.position or 0
        for flow in view.flows
        if flow.name == route.flow
        for place in flow.partitions
        if place.topic == route.topic
    }
    return {id_ for id_, record in records.items() if record.offset < positions.get(record.partition, 0)}


def printed(done: "subprocess.CompletedProcess[str]") -> str:
    """Returns what a command printed, its end if it is long."""
    return (done.stdout + done.stderr).strip()[-_OUTPUT:]
