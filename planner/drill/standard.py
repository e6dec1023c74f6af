"""The standard drill: each cluster that flows leave is lost, failed over, brought back and failed back to.

The steps are the commands that an operator types. Real producers write until the loss, and a consumer group
of each flow reads on both sides.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from planner.drill.replica import DrillRoute, Replica, clusters_to_lose, flows_out_of
from planner.drill.traffic import DrillConsumer, DrillProducer, values_at
from planner.graph.routes import reason_not_synced
from planner.model.diagnostic import Failure
from planner.model.drill import Promise, Scenario, Step, largest
from planner.model.topology import Flow
from planner.workflows.audit.reading import OffsetsRequest, ReplicationStatusRequest, offsets, status

RECORDS = 300  # of each topic, before the loss
RATE = 100.0  # records per second and topic, until the loss
_BEFORE_LOSS = 50  # records of each topic that are acknowledged while the flow copies, before the loss
_AFTER_LOSS = 100  # records of each topic that are written at the destination
_COPIED_WITHIN_S = 240.0
_REST_S = 30.0  # a group that skips records never reads them: so long it is waited for
_LOOK_S = 0.3
_OUTPUT = 4_000  # characters of a command's output that are kept


@dataclass(frozen=True, slots=True)
class DrillLimits:
    """What a drill must keep: None is no limit."""

    rto_s: float | None = None
    rpo_records: int | None = None


Progress = Callable[[str], None]


class DrillAborted(Exception):
    """A step failed, so that the scenario can't go on."""


@dataclass(slots=True)
class _Group:
    """A consumer group of one flow: what it read at the source, and at the destination after the failover."""

    flow: Flow
    routes: list[DrillRoute]
    unsynced: str
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    skipped: int = 0

    @property
    def name(self) -> str:
        return f"drill-{self.flow.name}"

    @property
    def again(self) -> int:
        return len(set(self.before) & set(self.after))


class StandardDrill:
    """Runs the scenarios of a topology one after the other on its copy."""

    def __init__(self, replica: Replica, limits: DrillLimits, progress: Progress) -> None:
        self._replica = replica
        self._limits = limits
        self._progress = progress
        self._numbers = count(1)

    def run(self) -> tuple[Scenario, ...]:
        """Returns a scenario for each cluster that running flows leave. The first problem ends the drill."""
        scenarios: list[Scenario] = []
        for cluster in clusters_to_lose(self._replica.topology):
            scenario = _ClusterLoss(self._replica, cluster, self._limits, self._progress, self._numbers)
            scenarios.append(scenario.run(first=not scenarios))
            if scenarios[-1].problem:
                break
        return tuple(scenarios)


class _ClusterLoss:
    """One cluster is lost and comes back."""

    def __init__(
        self,
        replica: Replica,
        cluster: str,
        limits: DrillLimits,
        progress: Progress,
        numbers: "count[int]",
    ) -> None:
        self._replica = replica
        self._cluster = cluster
        self._limits = limits
        self._progress = progress
        self._numbers = numbers
        self._routes = [one for one in replica.routes if one.source == cluster]
        self._compared = [one for one in self._routes if not one.transformed]
        self._topics = sorted({one.topic for one in self._routes})
        self._groups = [
            _Group(
                flow,
                [one for one in self._routes if one.flow == flow.name and not one.transformed],
                reason_not_synced(flow, f"drill-{flow.name}"),
            )
            for flow in flows_out_of(replica.topology, cluster)
        ]
        self._groups = [one for one in self._groups if one.routes]
        self._began = time.monotonic()
        self._steps: list[Step] = []
        self._promises: list[Promise] = []
        self._lost_at = 0.0
        self._rto_s: float | None = None
        self._missing: int | None = None
        self._acknowledged_while_lost: dict[str, list[bytes]] = {}
        self._written_there: dict[tuple[str, str], list[bytes]] = {}  # by destination and topic

    def run(self, *, first: bool) -> Scenario:
        """Carries the scenario out. A step that fails is its problem, and ends it."""
        problem = ""
        try:
            self._prepare(first=first)
            self._lose()
            self._fail_over()
            self._bring_back()
            self._fail_back()
        except DrillAborted as aborted:
            problem = str(aborted)
        except Failure as failure:
            problem = "; ".join(str(one) for one in failure.diagnostics)
        resumed = [one for one in self._groups if one.after]
        return Scenario(
            f"{self._cluster} is lost",
            self._cluster,
            tuple(self._steps),
            tuple(self._promises),
            rto_s=self._rto_s,
            rpo_records=self._missing,
            read_again=sum(one.again for one in resumed) if resumed else None,
            skipped=sum(one.skipped for one in resumed) if resumed else None,
            problem=problem,
        )

    # The steps

    def _prepare(self, *, first: bool) -> None:
        if first:
            self._command("the topology is applied", "apply", "--auto-approve")
        writer = self._writer(self._cluster, self._topics)
        with self._step(
            f"{RECORDS} records are written to each of {len(self._topics)} topics at {self._cluster}"
        ):
            writer.write(RECORDS)
        with self._step("a consumer group of each flow reads a third of them"):
            for group in self._groups:
                self._read_at_source(group)
        with self._step("the flows copy everything, and translate the groups"):
            self._until(self._is_copied, "the flows out of {cluster} did not catch up")
            for group in self._groups:
                if not group.unsynced:
                    self._until(partial(self._is_translated, group), f"group {group.name} was not translated")

    def _lose(self) -> None:
        writer = self._writer(self._cluster, self._topics)
        with self._step(f"producers write {RATE:g} records/s to each topic; then {self._cluster} is killed"):
            writer.start(RATE)
            try:
                self._until(
                    lambda: all(len(one) >= _BEFORE_LOSS for one in writer.acknowledged.values()),
                    "{cluster} acknowledged too few records",
                )
                self._lost_at = time.monotonic()
                self._replica.lose(self._cluster)
            finally:
                writer.stop()
        self._acknowledged_while_lost = writer.acknowledged

    def _fail_over(self) -> None:
        self._command(
            f"the operator fails over from {self._cluster}", "failover", self._cluster, "--auto-approve"
        )
        with self._step("the consumer groups go on at the destinations"):
            for group in self._groups:
                self._read_at_destination(group)
        self._missing = self._count_missing()
        self._promise_rpo_and_rto()
        for group in self._groups:
            self._promise_group(group)
        destinations = sorted({one.destination for one in self._routes})
        for destination in destinations:
            mirrors = sorted({one.mirror for one in self._routes if one.destination == destination})
            with self._step(f"producers write {_AFTER_LOSS} records to each topic at {destination}"):
                writer = self._writer(destination, mirrors)
                writer.write(_AFTER_LOSS)
                self._written_there |= {(destination, one): told for one, told in writer.acknowledged.items()}

    def _bring_back(self) -> None:
        with self._step(f"{self._cluster} comes back with its data"):
            self._replica.bring_back(self._cluster)
        if self._missing:
            for group in self._groups:
                name = group.flow.name
                self._command(
                    f"the records that {name} had not copied are salvaged",
                    "salvage",
                    name,
                    "--replay",
                    "--auto-approve",
                )

    def _fail_back(self) -> None:
        name = self._cluster
        self._command(
            f"what was written at the destinations is copied back to {name}",
            "failback",
            name,
            "--auto-approve",
        )
        self._command(
            f"the flows out of {name} run as before", "failback", name, "--switch", "--auto-approve"
        )
        with self._step(f"producers write to {name} again, and the flows copy it"):
            self._writer(self._cluster, self._topics).write(_AFTER_LOSS)
            self._until(self._is_copied, "the flows out of {cluster} did not catch up after the failback")
        with self._step("both sides are compared"):
            self._promise_home()
            self._promise_equal()
        done = self._replica.run("plan", str(self._replica.file), "--detailed-exitcode")
        self._promises.append(
            Promise(
                "a plan shows no changes in the end",
                "exit code 0",
                f"exit code {done.returncode}",
                done.returncode == 0,
                "the clusters no longer match the topology: look at the plan",
            )
        )

    # Reading and writing

    def _writer(self, cluster: str, topics: Sequence[str]) -> DrillProducer:
        return DrillProducer(cluster, self._replica.client(cluster), topics, self._numbers)

    def _read_at_source(self, group: _Group) -> None:
        topics = [one.topic for one in group.routes]
        member = DrillConsumer(self._replica.client(self._cluster), group.name, topics)
        try:
            group.before = member.read(lambda found: len(found) >= RECORDS * len(topics) // 3)
        finally:
            member.close()

    def _read_at_destination(self, group: _Group) -> None:
        """Reads what is left. Its end is known: everything that is in the mirror topics now."""
        client = self._replica.client(group.routes[0].destination)
        mirrors = {one.mirror for one in group.routes}
        wanted = {value for mirror in sorted(mirrors) for value in values_at(client, mirror)} - set(
            group.before
        )
        member = DrillConsumer(client, group.name, sorted(mirrors))
        try:
            group.after = member.read(lambda found: bool(found))
            if group.after:
                self._rto_s = largest([self._rto_s, time.monotonic() - self._lost_at])
            left = wanted - set(group.after)
            group.after += member.read(lambda found: left <= set(found), within_s=_REST_S)
            group.skipped = len(left - set(group.after))
        finally:
            member.close()

    def _is_copied(self) -> bool:
        view = status(ReplicationStatusRequest(self._replica.file, over_ms=0))
        names = {one.flow for one in self._routes}
        topics = {(one.flow, one.topic) for one in self._routes}
        found = {(flow.name, topic.topic) for flow in view.flows for topic in flow.topics}
        return topics <= found and all(one.lag_records == 0 for one in view.flows if one.name in names)

    def _is_translated(self, group: _Group) -> bool:
        view = offsets(OffsetsRequest(self._replica.file, flow=group.flow.name, group=group.name))
        places = [one for one in view.partitions if one.source is not None]
        return bool(places) and all(
            one.translation is not None and one.committed == one.translation for one in places
        )

    def _count_missing(self) -> int:
        """Returns how many acknowledged records of the lost cluster are not at the destinations."""
        missing = 0
        for route in self._compared:
            arrived = set(values_at(self._replica.client(route.destination), route.mirror))
            missing += sum(value not in arrived for value in self._acknowledged_while_lost[route.topic])
        return missing

    # The promises

    def _promise_rpo_and_rto(self) -> None:
        most, longest = self._limits.rpo_records, self._limits.rto_s
        self._promises.append(
            Promise(
                "records that were acknowledged and did not arrive (RPO)",
                "any number" if most is None else f"at most {most:,}",
                f"{self._missing:,}",
                most is None or (self._missing or 0) <= most,
                "the flows copy too slowly for this limit",
            )
        )
        self._promises.append(
            Promise(
                "time from the loss until a consumer of each flow read on (RTO)",
                "any time" if longest is None else f"at most {longest:g} s",
                "unknown" if self._rto_s is None else f"{self._rto_s:.1f} s",
                longest is None or (self._rto_s is not None and self._rto_s <= longest),
                "the failover takes too long for this limit",
            )
        )

    def _promise_group(self, group: _Group) -> None:
        why = (
            group.unsynced
            and f"{group.unsynced}, so its consumers start anew at {group.flow.destination_cluster}"
        )
        self._promises.append(
            Promise(
                f"group {group.name} goes on at {group.flow.destination_cluster} where it stopped",
                "0 read again, 0 skipped",
                f"{group.again:,} read again, {group.skipped:,} skipped",
                not group.again and not group.skipped,
                why or "its offsets were not translated exactly: look at repl offsets",
            )
        )

    def _promise_home(self) -> None:
        """Everything that was written at a destination meanwhile is at the cluster, once."""
        missing = 0
        for route in self._compared:
            home = set(values_at(self._replica.client(self._cluster), route.topic))
            told = self._written_there[route.destination, route.mirror]
            missing += sum(value not in home for value in told)
        self._promises.append(
            Promise(
                f"what was written at the destinations is at {self._cluster} after the failback",
                "0 missing",
                f"{missing:,} missing",
                not missing,
                "records of the time after the failover are only at the destination",
            )
        )

    def _promise_equal(self) -> None:
        """Both sides hold the same records, each as often."""
        different = 0
        for route in self._compared:
            here = Counter(values_at(self._replica.client(self._cluster), route.topic))
            there = Counter(values_at(self._replica.client(route.destination), route.mirror))
            different += sum((here - there).values()) + sum((there - here).values())
        self._promises.append(
            Promise(
                "both sides hold the same records, each once",
                "0 different",
                f"{different:,} different",
                not different,
                "compare the sides with repl verify",
            )
        )

    # One step

    def _until(self, holds: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + _COPIED_WITHIN_S
        while not holds():
            if time.monotonic() > deadline:
                raise DrillAborted(f"{problem.format(cluster=self._cluster)} within {_COPIED_WITHIN_S:g} s")
            time.sleep(_LOOK_S)

    @contextmanager
    def _step(self, text: str) -> Iterator[None]:
        self._progress(text)
        began = time.monotonic()
        failed = True
        try:
            yield
            failed = False
        finally:
            self._steps.append(Step(began - self._began, time.monotonic() - began, text, failed=failed))

    def _command(self, text: str, verb: str, *options: str) -> None:
        """Runs `repl VERB … TOPOLOGY`; a command that fails ends the scenario."""
        self._progress(f"{text}: repl {' '.join((verb, *options))}")
        named = [one for one in options if not one.startswith("-")]
        flags = [one for one in options if one.startswith("-")]
        began = time.monotonic()
        done = self._replica.run(verb, *named, str(self._replica.file), *flags)
        output = (done.stdout + done.stderr)[-_OUTPUT:]
        command = f"repl {' '.join((verb, *options))}"
        took_s = time.monotonic() - began
        self._steps.append(Step(began - self._began, took_s, text, command, output, bool(done.returncode)))
        if done.returncode:
            raise DrillAborted(f"{command} failed with exit code {done.returncode}: {output.strip()}")
