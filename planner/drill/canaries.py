"""`repl drill --against live --canaries`: canary records cross live clusters in scratch topics.

Each active flow gets a short-lived copy (`planner.drill.scratch`), which a job of its own runs on this
machine. Canaries are written to the scratch topic at the source and read at the destination. A scratch group
stops in the middle, is translated, and goes on at the destination after the copy was promoted. What is
production's is never written: no topic, no group, no flow, no job.
"""

import datetime
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median_low

from confluent_kafka import TopicPartition
from msgspec import structs

from planner.drill.client_run import ClientRun
from planner.drill.load import DrillLoad
from planner.drill.routes import routes_of
from planner.drill.scenario_record import Progress
from planner.drill.scratch import (
    PARTITIONS,
    ScratchRun,
    apply_scratch,
    canary_flows,
    committed_offsets,
    left_at,
    left_runs,
    record_of,
    refuse_touching,
    remove_scratch,
    scratch_plan,
    scratch_topology,
)
from planner.drill.traffic import WITHIN_S
from planner.graph.acl_protection import job_principal
from planner.kafka import run_at
from planner.kafka.librdkafka import consumer
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import CanaryFigures, Scenario
from planner.model.topology import Flow, Topology
from planner.observe.disk_space import disk_space, too_little, unknown_space
from planner.observe.rights import missing_on_existing, missing_rights
from planner.workflows.audit.access import endpoints_of
from planner.workflows.requests import ChangeRequest, DrillRequest

CANARIES = 200
# Two indexes of 10 MiB that Kafka allocates, the canaries and the ledger's records.
PARTITION_ROOM = 24 * 2**20
LEAST_ROOM = 256 * 2**20  # what a disk must keep beside them
_NAME = "canary records cross the flows in scratch topics"
_LOOK_S = 0.2
_BATCH = 500


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
        self.run = ScratchRun.new(datetime.datetime.now(datetime.UTC))
        self._topology = topology
        self._scratch = scratch_topology(topology, self.run)
        self._request = request.derive(ChangeRequest)
        self._progress = progress
        self._endpoints = endpoints_of(self._scratch.clusters.values())
        self.notes: list[str] = []

    def check(self) -> None:
        """Refuses where a flow would copy scratch topics, or rights or room lack; removes what drills left.

        The caller holds the lock of this machine's drills. Nothing is made before every check has passed.
        """
        refuse_touching(self._topology, self._scratch)
        timeout_s = self._request.timeout_s
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
            spaces = run_at(endpoint, partial(disk_space, timeout_s=timeout_s), timeout_s)
            lacking += too_little(name, spaces, needed)
            self.notes += unknown_space(name, spaces)
        for note in self.notes:
            self._progress(note)
        if lacking:
            hint = "make room, or leave --canaries out"
            raise Failure([error(what, hint, exit=ExitCode.REFUSED) for what in lacking])
        now = datetime.datetime.now(datetime.UTC)
        for run in left_runs(self._topology, self._request.path, now):
            self._progress(f"what the drill of {run.began:%Y-%m-%d %H:%M} left is removed: {run.topic('')}*")
            remove_scratch(self._topology, run, self._request)
        scratch_plan(self._scratch, self._request.timeout_s)

    def rehearse(self) -> Scenario:
        """Sends the canaries, and removes everything that was made. What goes wrong is the problem."""
        routes, clusters = routes_of(self._scratch), ", ".join(self._scratch.clusters)
        run = ClientRun(
            self._endpoints.__getitem__, lambda: routes, DrillLoad(), self._progress, _NAME, clusters
        )
        record = record_of(self._request.path, self.run)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()
        try:
            with run.recording_problem():
                self._cross(run)
        finally:
            with run.recording_problem():
                self._remove(run)
        return run.scenario

    def _cross(self, run: ClientRun) -> None:
        flows = canary_flows(self._topology)
        names = ", ".join(flow.name for flow in flows)
        with run.step(f"scratch topics are made, and copies start: {names}"):
            apply_scratch(self._scratch, self._request)
            for name, endpoint in self._endpoints.items():
                asking = partial(missing_on_existing, topics=self._topics_at(name))
                missing = run_at(endpoint, asking, self._request.timeout_s)
                _refuse([f"{right} at {name}" for right in missing])
        for flow in flows:
            with run.step(f"{CANARIES} canaries are written for {flow.name}, and arrive"):
                self._send(run, flow)
            with run.step(f"a scratch group of {flow.name} stops in the middle and is translated"):
                group = topic = self.run.topic(flow.name)
                source, destination = (
                    self._endpoints[name] for name in (flow.source_cluster, flow.destination_cluster)
                )
                run.read(group, CANARIES // 2, [topic], flow.source_cluster)
                committed = committed_offsets(source, group).keys()
                run.wait_while(
                    lambda destination=destination, group=group, committed=committed: (  # type: ignore[misc]
                        committed - committed_offsets(destination, group).keys()
                        and f"{group} is not translated yet: look at repl status"
                    ),
                    f"group {group} was not translated to {flow.destination_cluster}",
                    WITHIN_S,
                )
        with run.step("the copies are promoted"):
            copies = {
                name: structs.replace(copy, state="promoted") for name, copy in self._scratch.flows.items()
            }
            apply_scratch(replace(self._scratch, flows=copies), self._request)
        for flow in flows:
            group = self.run.topic(flow.name)
            with run.step(f"the scratch group of {flow.name} goes on at the destination"):
                run.resume_all({group: flow.destination_cluster})
            run.promise(
                f"a scratch group of {flow.name} goes on at {flow.destination_cluster}",
                "0 read again, 0 skipped",
                f"{run.groups[group].again} read again, {run.groups[group].skipped} skipped",
                "its offsets were not translated exactly",
            )

    def _send(self, run: ClientRun, flow: Flow) -> None:
        """Writes the canaries, each after the one before was acknowledged, and promises their arrival.

        The latency is the time from the record's timestamp, which its producer on this machine gave it, until
        a consumer here, which reads committed records, got it.
        """
        topic = self.run.topic(flow.name)
        producer = run.producer(flow.source_cluster, [topic])
        times: Counter[bytes] = Counter()
        latencies_ms: list[float] = []
        reader = consumer(self._endpoints[flow.destination_cluster])
        try:
            reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

            def drain(wait_s: float) -> None:
                messages = [message for message in reader.consume(_BATCH, wait_s) if message.error() is None]
                at_ms = time.time() * 1000
                times.update(message.value() or b"" for message in messages)
                latencies_ms.extend(max(0.0, at_ms - message.timestamp()[1]) for message in messages)

            for _ in range(CANARIES):
                producer.write(1)
                drain(0)
            written = producer.acknowledged[topic].keys()
            deadline = time.monotonic() + WITHIN_S
            while not written <= times.keys() and time.monotonic() < deadline:
                drain(_LOOK_S)
        finally:
            reader.close()
        p50_ms, longest_ms = (median_low(latencies_ms), max(latencies_ms)) if latencies_ms else (None, None)
        run.scenario.canaries.append(CanaryFigures(flow.name, len(written), p50_ms, longest_ms))
        arrived, doubled = len(written & times.keys()), times.total() - len(times)
        measured = f"{arrived} of {CANARIES}"
        if latencies_ms:
            measured += f", p50 {p50_ms:.0f} ms, longest {longest_ms:.0f} ms"
        run.promise(
            f"canaries of {flow.name} arrive at {flow.destination_cluster}",
            f"{CANARIES} within {WITHIN_S:g} s, each once",
            f"{measured}, {doubled} doubled" if doubled else measured,
            "the way of this flow copies nothing now: look at repl status",
            kept=arrived == CANARIES and not doubled,
        )

    def _remove(self, run: ClientRun) -> None:
        """Removes what the drill made, and promises that nothing is left."""
        with run.step("scratch topics, groups, jobs and their records are removed"):
            used = replace(self._topology, clusters=self._scratch.clusters)
            flows = {flow.name for flow in canary_flows(self._topology)}
            remove_scratch(used, self.run, self._request, flows)
            left = [
                what
                for endpoint in self._endpoints.values()
                for what in left_at(endpoint, self.run, self._topology.name)
            ]
        why = "the next drill with canaries removes it"
        run.promise("nothing of the drill is left", "nothing", ", ".join(left) or "nothing", why)

    def _topics_at(self, cluster: str) -> list[str]:
        return sorted({topic.name for topic in self._scratch.topics if topic.cluster == cluster})


def _refuse(missing: Sequence[str]) -> None:
    """Failure with every right that is missing."""
    if missing:
        hint = "grant it on names with the prefix __drill. (docs/drill.md), or leave --canaries out"
        raise Failure([error(f"no right to {right}", hint, exit=ExitCode.REFUSED) for right in missing])
