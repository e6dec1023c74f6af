"""`repl drill --against live --canaries`: canary records cross live clusters in scratch topics.

Each active flow gets a short-lived copy (`planner.drill.scratch`), which a job of its own runs on this
machine. Canaries are written to the scratch topic at the source and read at the destination. A scratch group
stops in the middle, is translated, and goes on at the destination after the copy was promoted. What is
production's is never written: no topic, no group, no flow, no job.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from confluent_kafka import KafkaException, TopicPartition
from msgspec import structs

from planner.drill.rehearsal import DrillRequest, now
from planner.drill.replica import Progress
from planner.drill.scenario_record import DrillAborted, ScenarioRecord, problem_of
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
from planner.drill.traffic import PATIENCE_S, DrillConsumer, DrillProducer, records_at
from planner.graph.acl_protection import job_principal
from planner.kafka import ClusterEndpoint, run_at
from planner.kafka.librdkafka import client_settings, consumer, explain
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import CanaryFigures, Scenario
from planner.model.topology import Flow, Topology
from planner.observe.disk_space import disk_space, too_little, unknown_space
from planner.observe.rights import missing_on_existing, missing_rights
from planner.workflows.observing import endpoints_of
from planner.workflows.requests import ChangeRequest

CANARIES = 200
PARTITION_ROOM = (
    24 * 2**20
)  # two indexes of 10 MiB that Kafka allocates, the canaries and the ledger's records
LEAST_ROOM = 256 * 2**20  # what a disk must keep beside them
_NAME = "canary records cross the flows in scratch topics"
_LOOK_S = 0.2
_POLL_S = 0.05
_BATCH = 500


class CanaryReader:
    """Reads a scratch topic at the destination while canaries are written, and measures their latency.

    The latency is the time from the record's timestamp, which its producer on this machine gave it, until
    this reader, which reads committed records, got it.
    """

    def __init__(self, endpoint: ClusterEndpoint, topic: str) -> None:
        self.times: Counter[bytes] = Counter()
        self.latencies_ms: list[float] = []
        self._arrived = threading.Condition()
        self._failure: KafkaException | None = None
        self._stop = threading.Event()
        self._consumer = consumer(endpoint)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, name="canaries", daemon=True)
        self._thread.start()

    def __enter__(self) -> "CanaryReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def await_all(self, wanted: Iterable[bytes], within_s: float) -> int:
        """Waits until all these values have arrived, and returns how many have not. Raises KafkaException."""
        values = set(wanted)
        with self._arrived:
            self._arrived.wait_for(lambda: self._failure or values <= self.times.keys(), within_s)
            if self._failure is not None:
                raise self._failure
            return len(values - self.times.keys())

    def _read(self) -> None:
        try:
            self._read_on()
        except KafkaException as failure:
            with self._arrived:
                self._failure = failure
                self._arrived.notify_all()

    def _read_on(self) -> None:
        while not self._stop.is_set():
            found = [one for one in self._consumer.consume(_BATCH, _POLL_S) if one.error() is None]
            at_ms = time.time() * 1000
            with self._arrived:
                for one in found:
                    self.times[one.value() or b""] += 1
                    self.latencies_ms.append(max(0.0, at_ms - one.timestamp()[1]))
                if found:
                    self._arrived.notify_all()


@dataclass(slots=True)
class _Canary:
    """One flow's canaries: what was written, how they arrived, and what its scratch group read."""

    flow: Flow
    topic: str
    source: ClusterEndpoint
    destination: ClusterEndpoint
    written: list[bytes] = field(default_factory=list)
    missing: int = 0
    doubled: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    again: int = 0
    skipped: int = 0

    def send(self) -> None:
        """Writes the canaries, each after the one before was acknowledged, and waits until they arrive."""
        producer = DrillProducer(
            self.flow.source_cluster, client_settings(self.source), [self.topic], count(1)
        )
        with CanaryReader(self.destination, self.topic) as reader:
            for _ in range(CANARIES):
                producer.write(1)
            self.written = list(producer.acknowledged[self.topic])
            self.missing = reader.await_all(self.written, PATIENCE_S)
        self.doubled = sum(one - 1 for one in reader.times.values())
        self.latencies_ms = reader.latencies_ms

    def stop_in_the_middle(self) -> None:
        """The scratch group reads half of the canaries at the source, commits and stops there."""
        half = CANARIES // 2
        member = DrillConsumer(client_settings(self.source), self.topic, [self.topic])
        try:
            self.read = member.read(lambda found: len(found) >= half)
        finally:
            member.close()
        if len(self.read) < half:
            raise DrillAborted(
                f"group {self.topic} read {len(self.read)} records at {self.flow.source_cluster}, not {half}"
            )

    def await_translation(self) -> None:
        """Waits until the group has an offset at the destination for each partition that it committed."""
        wanted = set(translated(self.source, self.topic))
        deadline = time.monotonic() + PATIENCE_S
        while wanted - set(translated(self.destination, self.topic)):
            if time.monotonic() > deadline:
                raise DrillAborted(
                    f"group {self.topic} was not translated to {self.flow.destination_cluster} "
                    f"in {PATIENCE_S:g} s: look at repl status"
                )
            time.sleep(_LOOK_S)

    def go_on(self) -> None:
        """The group reads on at the destination to the end; what it read again or skipped is counted."""
        settings = client_settings(self.destination)
        before = set(self.read)
        wanted = {one.id for one in records_at(settings, self.topic)} - before
        member = DrillConsumer(settings, self.topic, [self.topic])
        try:
            found = set(member.read_to_end(lambda: None))
        finally:
            member.close()
        self.again = len(before & found)
        self.skipped = len(wanted - found)

    @property
    def figures(self) -> CanaryFigures:
        return canary_figures(self.flow.name, len(self.written), self.latencies_ms)

    def promise_arrival(self, run: ScenarioRecord) -> None:
        """Every canary arrived, each once."""
        found = self.figures
        measured = f"{found.records - self.missing} of {found.records}"
        if found.p50_ms is not None:
            measured += f", p50 {found.p50_ms:.0f} ms, longest {found.max_ms:.0f} ms"
        if self.doubled:
            measured += f", {self.doubled} doubled"
        run.promise(
            f"canaries of {self.flow.name} arrive at {self.flow.destination_cluster}",
            f"{found.records} within {PATIENCE_S:g} s, each once",
            measured,
            kept=not self.missing and not self.doubled,
            why="the way of this flow copies nothing now: look at repl status",
        )

    def promise_group(self, run: ScenarioRecord) -> None:
        """The scratch group went on at the destination exactly where it stopped."""
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
        self._progress("the rights to make, write, read and delete scratch topics are checked")
        self._require_rights()
        self._progress("the room on the disks is checked")
        self._require_room()
        for run in left_runs(self._topology, self._request.path, now()):
            self._progress(f"what the drill of {run.began:%Y-%m-%d %H:%M} left is removed: {run.prefix}*")
            ScratchRemoval(self._topology, run, self._request).carry_out()
        scratch_plan(self._scratch, self._request.timeout_ms)

    def _require_rights(self) -> None:
        missing: list[str] = []
        for name, endpoint in self._endpoints.items():
            topics = self._topics_at(name)
            principal = job_principal(self._scratch.clusters[name]) or ""
            timeout_s = self._request.timeout_ms / 1000
            asking = partial(
                missing_rights, topics=topics, groups=topics, principal=principal, timeout_s=timeout_s
            )
            missing += [f"{right} at {name}" for right in run_at(endpoint, asking, timeout_s)]
        _refuse(missing)

    def _require_room(self) -> None:
        """Refuses where a broker tells that a disk has too little room; what it does not tell is noted."""
        lacking: list[str] = []
        for name, endpoint in self._endpoints.items():
            needed = LEAST_ROOM + PARTITIONS * len(self._topics_at(name)) * PARTITION_ROOM
            timeout_s = self._request.timeout_ms / 1000
            spaces = run_at(endpoint, partial(disk_space, timeout_s=timeout_s), timeout_s)
            lacking += too_little(name, spaces, needed)
            self.notes += unknown_space(name, spaces)
        for one in self.notes:
            self._progress(one)
        if lacking:
            hint = "make room, or leave --canaries out"
            raise Failure([error(one, hint, exit=ExitCode.REFUSED) for one in lacking])

    def _topics_at(self, cluster: str) -> list[str]:
        return sorted({one.name for one in self._scratch.topics if one.cluster == cluster})

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
        record = ScratchRecord(self._request.path, self.run)
        record.write(self._scratch)
        with ExitStack() as removal:
            removal.callback(self._remove, run, problems)
            try:
                self._cross(run, canaries)
            except (DrillAborted, Failure) as wrong:
                problems.append(problem_of(wrong))
            except (KafkaException, TimeoutError) as wrong:
                problems.append(explain(wrong))
        found = run.result(_NAME, ", ".join(self._scratch.clusters), "; ".join(problems))
        return replace(
            found,
            read_again=sum(one.again for one in canaries),
            skipped=sum(one.skipped for one in canaries),
            canaries=tuple(one.figures for one in canaries),
        )

    def _cross(self, run: ScenarioRecord, canaries: Sequence[_Canary]) -> None:
        with run.step(
            f"scratch topics are made, and copies start: {', '.join(one.flow.name for one in canaries)}"
        ):
            apply_scratch(self._scratch, self._request)
        for name, endpoint in self._endpoints.items():
            asking = partial(missing_on_existing, topics=self._topics_at(name))
            missing = run_at(endpoint, asking, self._request.timeout_ms / 1000)
            _refuse([f"{right} at {name}" for right in missing])
        for one in canaries:
            with run.step(f"{CANARIES} canaries are written for {one.flow.name}, and arrive"):
                one.send()
            one.promise_arrival(run)
            with run.step(f"a scratch group of {one.flow.name} stops in the middle and is translated"):
                one.stop_in_the_middle()
                one.await_translation()
        with run.step("the copies are promoted"):
            apply_scratch(self._promoted(), self._request)
        for one in canaries:
            with run.step(f"the scratch group of {one.flow.name} goes on at the destination"):
                one.go_on()
            one.promise_group(run)

    def _promoted(self) -> Topology:
        flows = {name: structs.replace(one, state="promoted") for name, one in self._scratch.flows.items()}
        return replace(self._scratch, flows=flows)

    def _remove(self, run: ScenarioRecord, problems: list[str]) -> None:
        """Removes what the drill made, and promises that nothing is left."""
        left: list[str] = []
        try:
            with run.step("scratch topics, groups, jobs and their records are removed"):
                used = replace(self._topology, clusters=self._scratch.clusters)
                ScratchRemoval(used, self.run, self._request).carry_out()
            for endpoint in self._endpoints.values():
                left += left_at(endpoint, self.run, self._topology.name)
        except Failure as wrong:
            problems.append(problem_of(wrong))
        except (KafkaException, TimeoutError) as wrong:
            problems.append(explain(wrong))
        else:
            run.promise(
                "nothing of the drill is left",
                "nothing",
                ", ".join(left) or "nothing",
                kept=not left,
                why="the next drill with canaries removes it",
            )


def _refuse(missing: Sequence[str]) -> None:
    """Failure with every right that is missing."""
    if missing:
        hint = "grant it on names with the prefix __drill. (docs/drill.md), or leave --canaries out"
        raise Failure([error(f"no right to {one}", hint, exit=ExitCode.REFUSED) for one in missing])
