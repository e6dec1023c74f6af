"""One scenario under way: clients write and read, clusters are lost, commands run, and all is measured.

The standard drill and the steps of features act through it, so a figure is measured in one way.
"""

import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from planner.drill.operator import TopicOperator
from planner.drill.replica import DrillRoute, Progress, Replica
from planner.drill.rules import grant_job_rights
from planner.drill.scenario_record import DrillAborted, DrillLoss, ScenarioRecord
from planner.drill.traffic import (
    DrillConsumer,
    DrillProducer,
    DrillRecord,
    partitions_at,
    records_at,
    shows,
)
from planner.graph.routes import reason_not_synced
from planner.model.drill import Scenario, Step
from planner.workflows.audit.reading import offsets
from planner.workflows.audit.replication_status import status
from planner.workflows.requests import OffsetsRequest, ReplicationStatusRequest
from runtime.contract.records.group_records import CheckpointState
from runtime.contract.records.job_status import PartitionState
from runtime.contract.views.status_view import StatusView

WITHIN_S = 240.0  # for what a job must have done
_LOOK_S = 0.3
_READABLE_S = 30.0
_APPROVED = {"apply", "failover", "promote", "failback", "pause", "resume", "salvage", "destroy", "restore"}
# Where a group stands behind all records, its offset may be beyond a translation of later: past a marker.
_SYNCED = {CheckpointState.TRANSLATED, CheckpointState.AHEAD, CheckpointState.OURS}
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


class ScenarioRun(ScenarioRecord):
    """Acts on a replica, and keeps what it did and found."""

    def __init__(self, replica: Replica, progress: Progress, numbers: "count[int] | None" = None) -> None:
        super().__init__(progress)
        self.replica = replica
        self.groups: dict[str, DrillGroup] = {}
        self.operator = TopicOperator(replica.client)
        self._numbers = count(1) if numbers is None else numbers
        self._written: dict[tuple[str, str], list[dict[bytes, float]]] = {}
        self._load: list[tuple[str, DrillProducer]] = []
        self._producers: list[DrillProducer] = []
        self._connected: dict[str, list[DrillConsumer]] = {}
        self._lost: dict[str, float] = {}
        self._before = ""  # the topology's text before the last command of the engineer
        self._last: subprocess.CompletedProcess[str] | None = None
        self._may_fail: subprocess.CompletedProcess[str] | None = None

    def result(self, name: str, cluster: str, problem: str = "") -> Scenario:
        """Returns the scenario as the report shows it."""
        resumed = [one for one in self.groups.values() if one.resumed]
        return replace(
            super().result(name, cluster, problem),
            read_again=sum(one.again for one in resumed) if resumed else None,
            skipped=sum(one.skipped for one in resumed) if resumed else None,
        )

    def close(self) -> None:
        """Ends the load and the consumers that stay connected."""
        for _, producer in self._load:
            producer.stop()
        self._load.clear()
        for group in list(self._connected):
            self.disconnect(group)

    # Commands and demands

    def command(self, text: str, *words: str) -> None:
        """Runs a command of repl. One that fails ends the scenario."""
        done = self.run(text, *words)
        if done.returncode:
            command = f"repl {' '.join(words)}"
            raise DrillAborted(f"{command} failed with exit code {done.returncode}: {printed(done)}")

    def run(self, text: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of repl, and measures the RPO after a failover."""
        command = f"repl {' '.join(words)}"
        self._progress(f"{text}: {command}" if text else command)
        began = time.monotonic()
        done = self.replica.run(*words)
        took_s = time.monotonic() - began
        output = (done.stdout + done.stderr)[-_OUTPUT:]
        failed = bool(done.returncode)
        self._steps.append(Step(began - self._began, took_s, text or command, command, output, failed))
        if words[0] == "failover" and not failed:
            self._measure_loss()
        return done

    def engineer(self, words: Sequence[str]) -> None:
        """Runs a command of repl as a person does, who approves. `last` has how it ended."""
        approves = words[0] in _APPROVED and not {"--auto-approve", "--rehearse", "--json"} & {*words}
        if words[0] == "salvage":
            approves = approves and "--replay" in words
        self._before = self.replica.read()
        self._last = self.run("", *words, *(["--auto-approve"] if approves else []))

    def undo_last(self) -> None:
        """Undoes what the last command of the engineer wrote into the topology."""
        self.last()
        self.replica.write(self._before)

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

    def noted(self, text: str, began: float, *, failed: bool) -> None:
        """Records a step that began at this monotonic time, unless a command has just recorded it."""
        if not self._steps or self._steps[-1].at_s + self._began < began:
            self._steps.append(Step(began - self._began, time.monotonic() - began, text, failed=failed))

    def change(self, kind: str, name: str, changes: Mapping[str, Any], cluster: str = "") -> None:
        """Edits the declaration of a flow or a topic, and gives the job rights of elsewhere on new topics."""
        self.replica.change(kind, name, changes, cluster)
        grant_job_rights(self.replica)

    # Writing

    def write(self, cluster: str, topics: Sequence[str], records: int) -> None:
        """Writes so many records to each topic, and returns when all were acknowledged."""
        self._producer(cluster, topics).write(records)

    def topics_at(self, cluster: str, topics: Sequence[str]) -> list[str]:
        """Returns these topics, or those of the cluster that flows copy. DrillAborted if one is missing."""
        if not topics:
            return sorted({one.topic for one in self.routes(cluster)})
        there = self.replica.topics(cluster)
        for topic in topics:
            if topic not in there:
                known = ", ".join(sorted(one for one in there if not one.startswith("__"))) or "none"
                raise DrillAborted(f"there is no topic {topic} at {cluster}; there are: {known}")
        return list(topics)

    def start_load(self, cluster: str, topics: Sequence[str], rate: float) -> None:
        """Writes so many records per second to each topic, until it is stopped or the cluster is lost."""
        producer = self._producer(cluster, topics)
        self._load.append((cluster, producer))
        producer.start(rate)

    def await_load(self, records: int) -> None:
        """Returns when the load has written so many records to each of its topics."""
        self.until(
            lambda: all(len(one) >= records for _, load in self._load for one in load.acknowledged.values()),
            f"{', '.join(sorted({cluster for cluster, _ in self._load}))} acknowledged too few records",
        )

    def stop_load(self, cluster: str | None = None) -> None:
        """Ends the load at a cluster, or all. Records that were not acknowledged are given up."""
        for entry in [one for one in self._load if cluster in (None, one[0])]:
            entry[1].stop()
            self._load.remove(entry)

    def written(self, cluster: str, topic: str) -> Collection[bytes]:
        """Returns the ids of the records that the cluster acknowledged."""
        return self._acknowledged(cluster, topic)

    def _acknowledged(self, cluster: str, topic: str) -> dict[bytes, float]:
        """Returns the same with the time at which each was acknowledged."""
        found: dict[bytes, float] = {}
        for told in self._written.get((cluster, topic), []):
            found |= told
        return found

    def _producer(self, cluster: str, topics: Sequence[str]) -> DrillProducer:
        producer = DrillProducer(
            cluster, self.replica.client(cluster), topics, self._numbers, self.replica.load.record
        )
        self._producers.append(producer)
        for topic, told in producer.acknowledged.items():
            self._written.setdefault((cluster, topic), []).append(told)
        return producer

    # Losses

    def lose(self, cluster: str, brokers: Sequence[int] = ()) -> None:
        """Kills every broker of a cluster at once, or these. The load ends with the whole cluster."""
        self._lost[cluster] = time.monotonic()
        self.replica.lose(cluster, brokers)
        if not brokers:
            self.stop_load(cluster)

    def cut_off(self, cluster: str) -> None:
        """Cuts the link: jobs and commands don't reach the cluster, its own clients do."""
        self._lost[cluster] = time.monotonic()
        self.replica.link(cluster).cut()

    def bring_back(self, cluster: str) -> None:
        """Starts the brokers that were lost on their data, and makes the link whole and quick.

        Then it waits until consumers can read what was acknowledged. A leader that was just elected shows a
        shorter log until it knows how far its followers are. What is still missing after a while is lost.
        """
        self.replica.bring_back(cluster)
        self._lost.pop(cluster, None)
        ends: dict[tuple[str, int], int] = {}
        for one in self._producers:
            if one.cluster == cluster:
                ends |= {at: max(end, ends.get(at, 0)) for at, end in one.ends().items()}
        with suppress(DrillAborted):
            client = self.replica.client(cluster)
            self.until(lambda: shows(client, ends), "acknowledged records can't be read", _READABLE_S)

    def _measure_loss(self) -> None:
        """Counts what the lost clusters acknowledged and is not at the destinations."""
        if not self._lost:
            return
        missing: list[float] = []
        routes = self.routes(*self._lost)
        filtering = self.status() if any(one.filtered for one in routes) else None
        for route in routes:
            told = self._acknowledged(route.source, route.topic)
            end = max([self._lost[route.source], *told.values()])
            if filtering is not None and route.filtered:
                arrived = self._passed(filtering, route, told)
            else:
                arrived = self.ids(route.destination, route.mirror)
            missing += [end - at for id_, at in told.items() if id_ not in arrived]
        self.loss = DrillLoss(len(missing), max(missing, default=0.0))

    def _passed(self, view: StatusView, route: DrillRoute, told: Iterable[bytes]) -> set[bytes]:
        """Returns the records that a flow copied or left out: those before its position at the source."""
        positions = {
            place.partition: place.position or 0
            for flow in view.flows
            if flow.name == route.flow
            for place in flow.partitions
            if place.topic == route.topic
        }
        places: dict[bytes, tuple[int, int]] = {}
        for one in self._producers:
            if one.cluster == route.source:
                places |= one.places
        return {
            id_ for id_ in told if (at := places.get(id_)) is not None and at[1] < positions.get(at[0], 0)
        }

    # Groups

    def read(self, name: str, cluster: str, topics: Sequence[str], records: int, flow: str = "") -> None:
        """A consumer of the group reads so many records, commits its place and ends."""
        group = self.groups.setdefault(name, DrillGroup(name, cluster, (), flow))
        group.topics = tuple(sorted({*group.topics, *topics}))
        member = DrillConsumer(self.replica.client(cluster), name, topics)
        try:
            group.read += _read_by(member, name, cluster, records)
        finally:
            member.close()

    def connect(self, name: str, cluster: str, records: int) -> None:
        """A consumer of the group reads so many further records at a cluster, commits and stays connected."""
        group = self._group(name)
        member = DrillConsumer(self.replica.client(cluster), name, self._topics_at(group, cluster))
        self._connected.setdefault(name, []).append(member)
        group.read += _read_by(member, name, cluster, records)

    def disconnect(self, name: str) -> None:
        """The consumers of the group that stayed connected leave it."""
        for member in self._connected.pop(name, ()):
            member.close()

    def resume(self, name: str, cluster: str) -> DrillGroup:
        """A consumer of the group reads on at a cluster, to the end of its topics as it is now.

        The RTO is the time from the last loss until it got its first record.
        """
        group = self._group(name)
        topics = self._topics_at(group, cluster)
        before = set(group.read)
        wanted = {id_ for topic in topics for id_ in self.ids(cluster, topic)} - before
        first: list[float] = []
        member = DrillConsumer(self.replica.client(cluster), name, topics)
        try:
            found = member.read_to_end(lambda: first.append(time.monotonic()))
        finally:
            member.close()
        if first and self._lost:
            self.rto_s = max(self.rto_s or 0.0, first[0] - max(self._lost.values()))
        group.resumed = True
        group.again = len(before & set(found))
        group.skipped = len(wanted - set(found))
        group.read += found
        return group

    def _group(self, name: str) -> DrillGroup:
        if name not in self.groups:
            raise DrillAborted(f"group {name} has read nothing yet, so it can't go on")
        return self.groups[name]

    def _topics_at(self, group: DrillGroup, cluster: str) -> list[str]:
        if cluster == group.cluster:
            return list(group.topics)
        found = [one.mirror for one in self.routes_of(group) if one.destination == cluster]
        if not found:
            raise DrillAborted(f"no flow copies the topics of group {group.name} to {cluster}")
        return sorted(set(found))

    # Waiting and comparing

    def routes(self, *clusters: str) -> list[DrillRoute]:
        """Returns the routes out of these clusters, or all."""
        return [one for one in self.replica.routes if not clusters or one.source in clusters]

    def compared(self, clusters: Iterable[str] = ()) -> list[DrillRoute]:
        """Returns the routes out of these clusters, or all, whose records arrive as they were written."""
        return [one for one in self.routes(*clusters) if not one.transformed]

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
        return [one.value or b"" for one in self.records(cluster, topic)]

    def ids(self, cluster: str, topic: str) -> set[bytes]:
        """Returns what tells the committed records of a topic apart."""
        return {one.id for one in self.records(cluster, topic)}

    def records(self, cluster: str, topic: str) -> list[DrillRecord]:
        """Returns all committed records of a topic."""
        return records_at(self.replica.client(cluster), topic)

    def partitions(self, cluster: str, topic: str) -> dict[int, list[DrillRecord]]:
        """Returns the committed records of each partition of a topic in their order."""
        return partitions_at(self.replica.client(cluster), topic)

    def topic_at_other_side(self, cluster: str, topic: str, other: str) -> str:
        """Returns the name at another cluster of a topic that a flow copies from or to there."""
        for one in self.routes():
            if (one.destination, one.mirror, one.source) == (cluster, topic, other):
                return one.topic
            if (one.source, one.topic, one.destination) == (cluster, topic, other):
                return one.mirror
        raise DrillAborted(f"no flow copies {topic} between {cluster} and {other}")

    def await_copied(self, *clusters: str) -> None:
        """Returns when active flows out of these clusters, or all, have no lag and synced their groups.

        A failover does not change flows into files, so those out of a lost cluster are not waited for.
        """
        into_files = self.replica.flows_into_files()
        into_files = {name: one for name, one in into_files.items() if one.source_cluster not in self._lost}
        active = {
            name: flow
            for name, flow in {**self.replica.flows(), **into_files}.items()
            if flow.state == "active" and (not clusters or flow.source_cluster in clusters)
        }
        where = f" out of {', '.join(clusters)}" if clusters else ""
        self.until(lambda: self._is_copied(active), f"the flows{where} did not catch up")
        for group in self.groups.values():
            for name in sorted({one.flow for one in self.routes_of(group)} & active.keys()):
                if not reason_not_synced(active[name], group.name):
                    self._await_translated(name, group.name)

    def _await_translated(self, flow: str, group: str) -> None:
        states: dict[str, str] = {}

        def translated() -> bool:
            view = offsets(OffsetsRequest(self.replica.file, flow=flow, group=group))
            places = [one for one in view.partitions if one.source is not None]
            states.update(
                {f"{one.topic}-{one.partition}": f"{one.state} {one.why}".strip() for one in places}
            )
            return bool(places) and all(one.state in _SYNCED for one in places)

        try:
            self.until(translated, f"group {group} was not translated")
        except DrillAborted as aborted:
            shown = "; ".join(f"{place}: {state}" for place, state in sorted(states.items()))
            raise DrillAborted(f"{aborted} ({shown or 'it has no offsets at the source'})") from None

    def until(self, holds: Callable[[], bool], problem: str, within_s: float = WITHIN_S) -> None:
        """Waits until it holds. `problem` is what is wrong if it never does."""
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                raise DrillAborted(f"{problem} within {within_s:g} s")
            time.sleep(_LOOK_S)

    def routes_of(self, group: DrillGroup) -> list[DrillRoute]:
        """Returns the routes that copy what the group reads at its first cluster."""
        return [
            one
            for one in self.routes(group.cluster)
            if one.topic in group.topics and group.flow in ("", one.flow)
        ]

    def status(self) -> StatusView:
        """Returns the status of the copy's flows."""
        return status(ReplicationStatusRequest(self.replica.file, over_ms=0))

    def _is_copied(self, names: Collection[str]) -> bool:
        view = self.status()
        for one in view.flows:
            for place in one.partitions:
                if one.name in names and place.state == PartitionState.RECORD_INVALID:
                    raise DrillAborted(
                        f"{one.name} stops at {place.topic}-{place.partition}: {place.why}; declare the"
                        " schema of its records, or record a sample of them for drill.samples"
                    )
        topics = {(one.flow, one.topic) for one in self.replica.routes if one.flow in names}
        found = {(flow.name, topic.topic) for flow in view.flows for topic in flow.topics}
        return topics <= found and all(one.lag_records == 0 for one in view.flows if one.name in names)


def _read_by(member: DrillConsumer, group: str, cluster: str, records: int) -> list[bytes]:
    found = member.read(lambda read: len(read) >= records)
    if len(found) < records:
        raise DrillAborted(f"group {group} read {len(found):,} records at {cluster}, not {records:,}")
    return found


def printed(done: "subprocess.CompletedProcess[str]") -> str:
    """Returns what a command printed, its end if it is long."""
    return (done.stdout + done.stderr).strip()[-_OUTPUT:]
