"""`repl drill --against live --canaries`: canary records cross live clusters in scratch topics.

Each active flow gets a short-lived copy (`planner.drill.scratch`), which a job of its own runs on this
machine. Canaries are written to the scratch topic at the source and read at the destination. A scratch group
stops in the middle, is translated, and goes on at the destination after the copy was promoted. What is
production's is never written: no topic, no group, no flow, no job.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from confluent_kafka import KafkaException, TopicPartition
from msgspec import structs

from planner.drill.rehearsal import DrillRequest, now
from planner.drill.scenario_record import DrillAborted, Progress, ScenarioRecord, problem_of
from planner.drill.scratch import (
    PARTITIONS,
    ScratchRecord,
    ScratchRemoval,
    ScratchRun,
    apply_scratch,
    canary_flows,
    left_at,
    left_runs,
    refuse_touching,
    scratch_plan,
    scratch_topology,
    translated,
)
from planner.drill.traffic import PATIENCE_S, DrillConsumer, DrillProducer, partitions_at
from planner.graph.acl_protection import job_principal
from planner.kafka import ClusterEndpoint, run_at
from planner.kafka.librdkafka import client_settings, consumer, explain
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import CanaryFigures, Scenario
from planner.model.topology import Flow, Topology
from planner.observe.disk_space import disk_space, too_little, unknown_space
from planner.observe.rights import missing_on_existing, missing_rights
from planner.workflows.audit.access import endpoints_of
from planner.workflows.requests import ChangeRequest

CANARIES = 200
PARTITION_ROOM = (
    24 * 2**20
)  # two indexes of 10 MiB that Kafka allocates, the canaries and the ledger's records
LEAST_ROOM = 256 * 2**20  # what a disk must keep beside them
_NAME = "canary records cross the flows in scratch topics"
_LOOK_S = 0.2
_BATCH = 500


@dataclass(slots=True)
class _Canary:
    """One flow's canaries: how they arrived, and what its scratch group read."""

    flow: Flow
    topic: str
    source: ClusterEndpoint
    destination: ClusterEndpoint
    written: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    again: int = 0
    skipped: int = 0

    @property
    def figures(self) -> CanaryFigures:
        return canary_figures(self.flow.name, self.written, self.latencies_ms)

    def send(self, run: ScenarioRecord) -> None:
        """Writes the canaries, each after the one before was acknowledged, and promises their arrival.

        The latency is the time from the record's timestamp, which its producer on this machine gave it, until
        a consumer here, which reads committed records, got it.
        """
        producer = DrillProducer(
            self.flow.source_cluster, client_settings(self.source), [self.topic], count(1)
        )
        times: Counter[bytes] = Counter()
        reader = consumer(self.destination)
        try:
            reader.assign([TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])

            def drain(wait_s: float) -> None:
                messages = [each for each in reader.consume(_BATCH, wait_s) if each.error() is None]
                at_ms = time.time() * 1000
                times.update(message.value() or b"" for message in messages)
                self.latencies_ms += [max(0.0, at_ms - message.timestamp()[1]) for message in messages]

            for _ in range(CANARIES):
                producer.write(1)
                drain(0)
            written = producer.acknowledged[self.topic].keys()
            self.written = len(written)
            deadline = time.monotonic() + PATIENCE_S
            while not written <= times.keys() and time.monotonic() < deadline:
                drain(_LOOK_S)
        finally:
            reader.close()
        figures = self.figures
        arrived, doubled = len(written & times.keys()), times.total() - len(times)
        measured = f"{arrived} of {figures.records}"
        if figures.p50_ms is not None:
            measured += f", p50 {figures.p50_ms:.0f} ms, longest {figures.max_ms:.0f} ms"
        run.promise(
            f"canaries of {self.flow.name} arrive at {self.flow.destination_cluster}",
            f"{figures.records} within {PATIENCE_S:g} s, each once",
            f"{measured}, {doubled} doubled" if doubled else measured,
            kept=arrived == figures.records and not doubled,
            why="the way of this flow copies nothing now: look at repl status",
        )

    def stop_in_the_middle(self) -> None:
        """The scratch group reads half of the canaries at the source and stops. It is translated."""
        half = CANARIES // 2
        with DrillConsumer(client_settings(self.source), self.topic, [self.topic]) as member:
            self.read = member.take(half)
        if len(self.read) < half:
            raise DrillAborted(
                f"group {self.topic} read {len(self.read)} records at {self.flow.source_cluster}, not {half}"
            )
        committed = translated(self.source, self.topic).keys()
        deadline = time.monotonic() + PATIENCE_S
        while committed - translated(self.destination, self.topic).keys():
            if time.monotonic() > deadline:
                raise DrillAborted(
                    f"group {self.topic} was not translated to {self.flow.destination_cluster} "
                    f"in {PATIENCE_S:g} s: look at repl status"
                )
            time.sleep(_LOOK_S)

    def go_on(self, run: ScenarioRecord) -> None:
        """The group reads on at the destination to the end, and must have stopped exactly there."""
        settings = client_settings(self.destination)
        with DrillConsumer(settings, self.topic, [self.topic]) as member:
            ids = set(member.read_to_end().ids)
        before = set(self.read)
        partitions = partitions_at(settings, self.topic).values()
        self.again = len(before & ids)
        self.skipped = len({record.id for records in partitions for record in records} - before - ids)
        run.promise(
            f"a scratch group of {self.flow.name} goes on at {self.flow.destination_cluster}",
            "0 read again, 0 skipped",
            f"{self.again} read again, {self.skipped} skipped",
            kept=not self.again and not self.skipped,
            why="its offsets were not translated exactly",
        )


def canary_figures(flow: str, records: int, latencies_ms: Sequence[float]) -> CanaryFigures:
    """Returns the figures of one flow; the latencies are None where no canary arrived."""
    ordered = sorted(latencies_ms)
    p50, longest = (ordered[(len(ordered) - 1) // 2], ordered[-1]) if ordered else (None, None)
    return CanaryFigures(flow, records, p50, longest)


class CanaryDrill:
    """The canaries of one live drill. `check` changes nothing of production and comes first."""

    def __init__(self, request: DrillRequest, topology: Topology, progress: Progress) -> None:
        if not topology.drill.canaries:
            raise Failure(
                error(
                    "this topology does not allow canary records at its clusters",
                    "declare drill: {canaries: true}, or leave --canaries out",
                    exit=ExitCode.REFUSED,
                )
            )
        if not canary_flows(topology):
            raise Failure(error("no flow between clusters is active, so no canary can cross", "resume one"))
        self.run = ScratchRun.new(now())
        self._topology = topology
        self._scratch = scratch_topology(topology, self.run)
        self._request = ChangeRequest(request.path, request.var_files, request.timeout_ms)
        self._progress = progress
        self._endpoints = endpoints_of(self._scratch.clusters.values())
        self.notes: list[str] = []

    def check(self) -> None:
        """Refuses where a flow would copy scratch topics, or rights or room lack; removes what drills left.

        The caller holds the lock of this machine's drills. Nothing is made before every check has passed.
        """
        refuse_touching(self._topology, self.run)
        timeout_s = self._request.timeout_ms / 1000
        self._progress("the rights to make, write, read and delete scratch topics are checked")
        rights: list[str] = []
        for name, endpoint in self._endpoints.items():
            topics = self._topics_at(name)
            principal = job_principal(self._scratch.clusters[name]) or ""
            asking = partial(
                missing_rights, topics=topics, groups=topics, principal=principal, timeout_s=timeout_s
            )
            rights += [f"{right} at {name}" for right in run_at(endpoint, asking, timeout_s)]
        _refuse(rights)
        self._progress("the room on the disks is checked")
        lacking: list[str] = []
        for name, endpoint in self._endpoints.items():
            needed = LEAST_ROOM + PARTITIONS * len(self._topics_at(name)) * PARTITION_ROOM
            brokers = run_at(endpoint, partial(disk_space, timeout_s=timeout_s), timeout_s)
            lacking += too_little(name, brokers, needed)
            self.notes += unknown_space(name, brokers)
        for note in self.notes:
            self._progress(note)
        if lacking:
            hint = "make room, or leave --canaries out"
            raise Failure([error(what, hint, exit=ExitCode.REFUSED) for what in lacking])
        for run in left_runs(self._topology, self._request.path, now()):
            self._progress(f"what the drill of {run.began:%Y-%m-%d %H:%M} left is removed: {run.prefix}*")
            ScratchRemoval(self._topology, run, self._request).carry_out()
        scratch_plan(self._scratch, self._request.timeout_ms)

    def rehearse(self) -> Scenario:
        """Sends the canaries, and removes everything that was made. What goes wrong is the problem."""
        run = ScenarioRecord(self._progress)
        canaries = [
            _Canary(
                flow,
                self.run.topic(flow.name),
                self._endpoints[flow.source_cluster],
                self._endpoints[flow.destination_cluster],
            )
            for flow in canary_flows(self._topology)
        ]
        problems: list[str] = []
        ScratchRecord(self._request.path, self.run).write(self._scratch)
        try:
            with _gathering(problems):
                self._cross(run, canaries)
        finally:
            with _gathering(problems):
                self._remove(run)
        result = run.result(_NAME, ", ".join(self._scratch.clusters), "; ".join(problems))
        return replace(
            result,
            read_again=sum(canary.again for canary in canaries),
            skipped=sum(canary.skipped for canary in canaries),
            canaries=tuple(canary.figures for canary in canaries),
        )

    def _cross(self, run: ScenarioRecord, canaries: Sequence[_Canary]) -> None:
        flows = ", ".join(canary.flow.name for canary in canaries)
        with run.step(f"scratch topics are made, and copies start: {flows}"):
            apply_scratch(self._scratch, self._request)
            for name, endpoint in self._endpoints.items():
                asking = partial(missing_on_existing, topics=self._topics_at(name))
                missing = run_at(endpoint, asking, self._request.timeout_ms / 1000)
                _refuse([f"{right} at {name}" for right in missing])
        for canary in canaries:
            with run.step(f"{CANARIES} canaries are written for {canary.flow.name}, and arrive"):
                canary.send(run)
            with run.step(f"a scratch group of {canary.flow.name} stops in the middle and is translated"):
                canary.stop_in_the_middle()
        with run.step("the copies are promoted"):
            flows_ = {
                name: structs.replace(flow, state="promoted") for name, flow in self._scratch.flows.items()
            }
            apply_scratch(replace(self._scratch, flows=flows_), self._request)
        for canary in canaries:
            with run.step(f"the scratch group of {canary.flow.name} goes on at the destination"):
                canary.go_on(run)

    def _remove(self, run: ScenarioRecord) -> None:
        """Removes what the drill made, and promises that nothing is left."""
        with run.step("scratch topics, groups, jobs and their records are removed"):
            used = replace(self._topology, clusters=self._scratch.clusters)
            ScratchRemoval(used, self.run, self._request).carry_out()
            left = [
                what
                for endpoint in self._endpoints.values()
                for what in left_at(endpoint, self.run, self._topology.name)
            ]
        run.promise(
            "nothing of the drill is left",
            "nothing",
            ", ".join(left) or "nothing",
            kept=not left,
            why="the next drill with canaries removes it",
        )

    def _topics_at(self, cluster: str) -> list[str]:
        return sorted({topic.name for topic in self._scratch.topics if topic.cluster == cluster})


@contextmanager
def _gathering(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except (DrillAborted, Failure) as wrong:
        problems.append(problem_of(wrong))
    except (KafkaException, TimeoutError) as wrong:
        problems.append(explain(wrong))


def _refuse(missing: Sequence[str]) -> None:
    """Failure with every right that is missing."""
    if missing:
        hint = "grant it on names with the prefix __drill. (docs/drill.md), or leave --canaries out"
        raise Failure([error(f"no right to {right}", hint, exit=ExitCode.REFUSED) for right in missing])
