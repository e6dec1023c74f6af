"""A scenario on lab clusters: clients write and read, clusters are lost, commands run, and all is measured.

The standard drill and the sentences of features act through it, so a figure is measured in one way. A method
with a sentence is a step of features.
"""

import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import yaml
from confluent_kafka import OFFSET_END, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from planner.drill.client_run import ClientRun, DrillGroup
from planner.drill.replica import Replica
from planner.drill.routes import DrillRoute
from planner.drill.rules import grant_job_rights
from planner.drill.scenario_record import DrillAborted, Progress
from planner.drill.steps.language import matching, step
from planner.drill.traffic import Acknowledged
from planner.graph.routes import reason_not_synced
from planner.model.drill import RecoveryTime
from planner.workflows.audit.reading import offsets
from planner.workflows.audit.replication_status import status
from planner.workflows.requests import OffsetsRequest, ReplicationStatusRequest
from runtime.contract.records.group_records import CheckpointState
from runtime.contract.records.job_status import NEEDS_DECISION, PartitionState
from runtime.contract.results.status import FlowHealth, ReplicationStatus

_STOPPED_S = 20.0  # a partition that needs a decision for so long is waited for no more
_READABLE_S = 30.0
_REQUEST_S = 60.0
_APPROVED = {"apply", "failover", "promote", "failback", "cutover", "pause", "resume", "salvage"}
_APPROVED |= {"destroy", "restore"}
# Where a group stands behind all records, its offset may be beyond a translation of later: past a marker.
_SYNCED = {CheckpointState.TRANSLATED, CheckpointState.AHEAD, CheckpointState.OURS}
Stopped = Mapping[tuple[str, str, int], float]  # since when a flow's partition stops, by topic and number
_OUTPUT = 4_000  # characters of a command's output that are kept


class ScenarioRun(ClientRun):
    """Acts on a replica, and keeps what it did and measured."""

    def __init__(self, replica: Replica, progress: Progress, name: str = "", cluster: str = "") -> None:
        super().__init__(replica.endpoint, lambda: replica.routes, replica.load, progress, name, cluster)
        self.replica = replica
        self._lost: dict[str, float] = {}  # when each cluster was lost
        self._copied: dict[str, float] = {}  # when everything of a cluster was last copied
        self._failover_s = 0.0
        self._loss_pending = False
        self._before = ""  # the topology's text before the last command of the engineer
        self._last: subprocess.CompletedProcess[str] | None = None
        self._may_fail: subprocess.CompletedProcess[str] | None = None

    def resume_all(self, clusters: Mapping[str, str]) -> tuple[float, float] | None:
        """Lets each group read on, and measures the RTO: from the last loss until all got a record.

        The longest one of a scenario counts.
        """
        first = super().resume_all(clusters)
        if first is not None and self._lost:
            began_at, first_at = first
            lost_at = max(self._lost.values())
            if self.scenario.rto is None or first_at - lost_at > self.scenario.rto.total_s:
                failover_s = min(self._failover_s, began_at - lost_at)
                wait_s = began_at - lost_at - failover_s
                self.scenario.rto = RecoveryTime(failover_s, wait_s, first_at - began_at)
        return first

    def named(self, topic: str) -> str:
        """Returns the name of a topic at the clusters."""
        return topic

    # Waiting

    @step("the flows have copied everything")
    def await_copied(self, *clusters: str) -> None:
        """Waits until no active flow has lag, also into files, and the synced groups are translated."""
        # A failover does not change flows into files, so those out of a lost cluster are not waited for.
        declared = self.replica.declared()
        active = {
            name: flow
            for name, flow in {**declared.flows, **declared.file_flows}.items()
            if flow.state == "active"
            and (not clusters or flow.source_cluster in clusters)
            and (name in declared.flows or (not flow.from_files and flow.source_cluster not in self._lost))
        }
        topics = {(route.flow, route.topic) for route in self.routes() if route.flow in active}
        looked_at = 0.0
        stopped: Stopped = {}

        def missing() -> str:
            nonlocal looked_at, stopped
            looked_at = time.monotonic()
            flows = [flow for flow in self.status().flows if flow.name in active]
            stopped = stopped_partitions(flows, stopped, looked_at)
            shown = {(flow.name, topic.topic) for flow in flows for topic in flow.topics}
            return ", ".join(
                [
                    f"{flow.name} has not copied an unknown number of records"
                    if flow.lag_records is None
                    else f"{flow.name} has not copied {flow.lag_records:,} records"
                    for flow in flows
                    if flow.lag_records != 0
                ]
                + [f"{flow} does not show {topic} yet" for flow, topic in sorted(topics - shown)]
            )

        named = f"the flows {', '.join(sorted(active))}" if active else "the flows"
        self.wait_while(missing, f"{named} did not catch up")
        self._copied |= dict.fromkeys(clusters or self.replica.topology.clusters, looked_at)
        for group in self.groups.values():
            for name in sorted({route.flow for route in self.routes_of(group)} & active.keys()):
                if not reason_not_synced(active[name], group.name):
                    self._await_translated(name, group)

    def _await_translated(self, flow: str, group: DrillGroup) -> None:
        """Waits until a flow has translated each offset that a group has committed at the source."""

        def missing() -> str:
            view = offsets(OffsetsRequest(self.replica.file, flow=flow, group=group.name))
            committed = [place for place in view.partitions if place.source is not None]
            if not committed:
                topics = sorted({route.topic for route in self.routes_of(group) if route.flow == flow})
                self.progress(
                    f"group {group.name} has committed no offset of {', '.join(topics)} at {group.cluster},"
                    f" so {flow} has nothing to translate"
                )
            return "; ".join(
                f"{place.topic}-{place.partition} is {place.state} {place.why}".strip()
                for place in committed
                if place.state not in _SYNCED
            )

        self.wait_while(missing, f"group {group.name} was not translated by {flow}")

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
        self.replica.links[cluster].cut()

    @step("the link to {cluster} is {ms} ms slower")
    def slow_link(self, cluster: str, ms: int) -> None:
        """Jobs and commands get the cluster's answers later."""
        self.replica.links[cluster].slow(ms / 1000)

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
        ends: dict[TopicPartition, int] = {}
        for producer in self._producers:
            for topic, records in producer.acknowledged.items() if producer.cluster == cluster else ():
                for record in list(records.values()):  # a load may go on
                    place = TopicPartition(topic, record.partition)
                    ends[place] = max(ends.get(place, 0), record.offset + 1)
        admin = self.admin(cluster)

        def unreadable() -> bool:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            listed = admin.list_offsets(
                dict.fromkeys(ends, latest),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_READABLE_S,
            )
            try:
                return any(answer.result().offset < ends[place] for place, answer in listed.items())
            except KafkaException:
                return True

        if ends:
            self.wait_while(unreadable, within_s=_READABLE_S)

    @step("the machine of the jobs is lost")
    def lose_machine(self) -> None:
        """Every job is killed with its supervisor, and its folder is gone.
        Commands run on another machine."""
        self.replica.lose_machine()

    @step("retention deletes every record of {topics} at {cluster}")
    def delete_records(self, topics: Sequence[str], cluster: str) -> None:
        """The topics' logs start at their present ends, as where retention is shorter than an outage."""
        partitions, admin = self.topics(cluster), self.admin(cluster)
        ends = [
            TopicPartition(topic, number, OFFSET_END)
            for topic in self.topics_at(cluster, topics)
            for number in range(partitions[topic])
        ]
        for answer in admin.delete_records(ends).values():
            answer.result(_REQUEST_S)

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
        self.scenario.rpo_records, self.scenario.at_risk_records = len(missing), at_risk
        self.lost_for_s = max(missing, default=0.0)

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

    def before_sentence(self, sentence: str) -> None:
        """Counts the loss of a failover, unless a group goes on now, whose time is measured.

        Raises DrillAborted where a command failed and this sentence does not judge how it ended.
        """
        steps = [step for step, _ in matching(sentence)]
        done = self._last
        if any(step.judges for step in steps):
            self._may_fail = done
        if done is not None and done is not self._may_fail:
            _require_done(done)
        if not any(step.resumes for step in steps):
            self.count_loss()

    def command(self, text: str, *words: str) -> None:
        """Runs a command of repl. One that fails ends the scenario."""
        _require_done(self.run(text, *words))

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

    def status(self) -> ReplicationStatus:
        """Returns the status of the copy's flows."""
        return status(ReplicationStatusRequest(self.replica.file, over_ms=0))


def stopped_partitions(flows: Iterable[FlowHealth], before: Stopped, now: float) -> Stopped:
    """Returns since when partitions stop, by one look at the status after the other.

    DrillAborted where one can't go on by itself: its record is invalid, or it has stopped for some time.
    """
    stopped: dict[tuple[str, str, int], float] = {}
    for flow in flows:
        for place in flow.partitions:
            if place.state not in NEEDS_DECISION:
                continue
            key = flow.name, place.topic, place.partition
            stopped[key] = before.get(key, now)
            hint = "only a command of the engineer can change that"
            if place.state == PartitionState.RECORD_INVALID:
                hint = "declare the schema of its records, or record a sample of them for drill.samples"
            elif now - stopped[key] < _STOPPED_S:
                continue
            why = place.why or place.state
            raise DrillAborted(f"{flow.name} stops at {place.topic}-{place.partition}: {why}; {hint}")
    return stopped


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


def _require_done(done: "subprocess.CompletedProcess[str]") -> None:
    if done.returncode:
        command = f"repl {' '.join(done.args[3:])}"
        raise DrillAborted(f"{command} failed with exit code {done.returncode}: {printed(done)}")


def printed(done: "subprocess.CompletedProcess[str]") -> str:
    """Returns what a command printed, its end if it is long."""
    return (done.stdout + done.stderr).strip()[-_OUTPUT:]
