"""What a handler uses at one cluster: its client, registry, timeouts, launchers, and requests with retries.

A batch of requests is sent, and what failed for a moment is sent again until a deadline. A request that a
policy refuses is never repeated. The guard is asked before every request.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from planner.kafka.changes import change_request, refusals_of
from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import ClusterFailure, NoConnection, RequestRefused
from planner.kafka.log import LogWriter
from planner.kafka.topics import topic_id_text
from planner.model.address import Address
from planner.model.observed import RegistryEntry
from planner.model.step import DONE, Result, Step, StepResult, failed
from planner.plan.steps.restores import RestoreStep
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.launching import Launcher
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import AnyMetadataRequest, TopicMetadata
from runtime.schemas.client import SchemaRegistry

S = TypeVar("S", bound=Step)

REQUEST_SECONDS = 30.0
SILENCE_SECONDS = 35.0  # of a broker, which takes up to REQUEST_SECONDS for a change
BROKER_SECONDS = 5.0
DEADLINE_SECONDS = 120.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


@dataclass(slots=True)
class RequestGuard:
    """Is asked before every request. `stop_reason` returns why nothing more may be sent to this cluster.

    `requests` counts those that change something.
    """

    stop_reason: Callable[[], Awaitable[str | None]]
    requests: int = 0

    async def before_request(self) -> str | None:
        """Counts the request and returns the reason not to send it."""
        self.requests += 1
        return await self.stop_reason()


# Sends one request for all the steps. Returns the failures by the step's id, and raises ClusterFailure.
Sender = Callable[[Sequence[S]], Awaitable[Mapping[str, ClusterFailure]]]

# Classifies a final refusal: the cluster may be as wanted, since an earlier answer was lost, for example.
RefusalClassifier = Callable[[S, RequestRefused], Awaitable[StepResult]]


async def refusal_is_final(_step: Step, refused: RequestRefused) -> StepResult:
    """Fails the step: for requests that are idempotent by themselves."""
    return failed(refused.why)


async def send_with_retries(
    steps: Sequence[S],
    send: Sender[S],
    classify: RefusalClassifier[S],
    guard: RequestGuard,
    within: float = DEADLINE_SECONDS,
    check: Sender[S] | None = None,
) -> dict[str, StepResult]:
    """Sends the batch and repeats what failed for a moment, with growing pauses.

    `check` returns the failures of steps that must not be sent. It runs before each attempt, and the guard is
    asked after it. Returns a result for every step's id.
    """
    deadline = time.monotonic() + within
    results: dict[str, StepResult] = {}
    left = list(steps)
    again: list[tuple[S, ClusterFailure]] = []
    pause = _FIRST_PAUSE
    while left:
        failures = await _failures(check, left) if check is not None else {}
        if (stop_reason := await guard.before_request()) is not None:
            results.update({step.id: StepResult(Result.NOT_STARTED, stop_reason) for step in left})
            results.update(
                {
                    step.id: failed(f"{failure.why}; it was not sent again: {stop_reason}")
                    for step, failure in again
                    if _may_be_done(failure)
                }
            )
            break
        failures |= await _failures(send, [step for step in left if step.id not in failures])
        again = []
        for step in left:
            match failures.get(step.id):
                case None:
                    results[step.id] = DONE
                case ClusterFailure(transient=True) as passing:
                    again.append((step, passing))
                case RequestRefused() as refused:
                    results[step.id] = await classify(step, refused)
                case final:
                    results[step.id] = failed(final.explained)
        if again and time.monotonic() + pause > deadline:
            results.update(
                {step.id: failed(f"given up after {within:.0f} s: {failure.why}") for step, failure in again}
            )
            break
        left = [step for step, _ in again]
        if left:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads retries, guards nothing
            pause = min(pause * 2, _LONGEST_PAUSE)
    return results


async def _failures(send: Sender[S], steps: Sequence[S]) -> dict[str, ClusterFailure]:
    """Returns the failures by the step's id; the failure of the request is that of each step."""
    try:
        return dict(await send(steps)) if steps else {}
    except ClusterFailure as failure:
        return {step.id: failure for step in steps}


def _may_be_done(failure: ClusterFailure) -> bool:
    """Returns whether the cluster may have carried out a request that failed so: its answer was lost."""
    if isinstance(failure, RequestRefused):
        return failure.code is ErrorCode.REQUEST_TIMED_OUT
    return not isinstance(failure, NoConnection)


Launchers = Callable[[LaunchSpec, str], Launcher]
"""Returns the launcher of a job whose destination has this cluster id."""


Restore = Callable[[ClusterEndpoint, Sequence[RestoreStep]], Awaitable[dict[str, StepResult]]]
"""Restores records, group offsets or schemas of a backup into a cluster."""


WriteRegistry = Callable[[Sequence[RegistryEntry], Sequence[Address]], Awaitable[None]]
"""Writes the registry entries of objects that are owned from now on, and removes those of others."""


@dataclass(frozen=True, slots=True)
class JobTimeouts:
    """Timeouts in seconds for what a job does during an apply."""

    copying_s: float = 120.0  # until a launched job copies, or makes progress towards it
    acknowledged_s: float = 60.0  # until a job has carried out a command, or makes progress
    stopped_s: float = 45.0  # until a job that was asked to stop has stopped
    kill_after_s: float = 20.0  # until a job that its launcher asked to stop is killed
    silent_s: float = 15.0  # until a job without a heartbeat counts as dead
    heartbeat_s: float = 4.0  # a heartbeat comes every second
    denied_s: float = 8.0  # until a missing right counts as missing: new ACLs reach brokers within seconds
    queued_s: float = 30.0  # until a job that gets no resources of its cluster counts as one that can't start
    failing_s: float = 8.0  # until a flow whose attempts to start fail counts as one that can't start


@dataclass(frozen=True, slots=True)
class ApplyTools:
    """What the steps of an apply use beside Kafka, and what they do while they wait.

    `registries` are the schema registries, by cluster. `wait`: for launched jobs, until they copy. `on_wait`
    is called with what a long step waits for.
    """

    launchers: Launchers
    restore: Restore
    registries: Mapping[str, RegistrySpec]
    wait: bool
    on_wait: Callable[[Step, str], None]


@dataclass(slots=True)
class ApplyContext:
    """One cluster during one apply."""

    endpoint: ClusterEndpoint
    write_registry: WriteRegistry
    guard: RequestGuard
    plan_digest: str
    now_ms: Callable[[], int]
    cluster_id: str
    tools: ApplyTools
    timeouts: JobTimeouts = field(default_factory=JobTimeouts)
    client: ClusterClient = field(init=False)
    log: LogWriter = field(init=False)
    _brokers: dict[int, BrokerConnection] = field(default_factory=dict)
    _schemas: dict[str, SchemaRegistry] = field(default_factory=dict)
    _dialing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.client = ClusterClient(self.endpoint, SILENCE_SECONDS)
        self.log = LogWriter(self.client)

    def launcher(self, launch: LaunchSpec) -> Launcher:
        """Returns the launcher of a job of this cluster. Raises LaunchError."""
        return self.tools.launchers(launch, self.cluster_id)

    def close(self) -> None:
        """Closes the connections to the cluster."""
        for connection in self._brokers.values():
            connection.close()
        for registry in self._schemas.values():
            registry.close()
        self.log.close()
        self.client.close()

    def schema_registry(self, cluster: str) -> SchemaRegistry:
        """Returns the client of a cluster's schema registry."""
        if cluster not in self._schemas:
            self._schemas[cluster] = SchemaRegistry(self.tools.registries[cluster])
        return self._schemas[cluster]

    async def send(self, steps: Sequence[Step]) -> Mapping[str, RequestRefused]:
        """Sends one request for steps of one kind, and returns the refused ones. Raises ClusterFailure."""
        request = change_request(steps, int(REQUEST_SECONDS * 1000))
        try:
            refused = refusals_of(steps, await self.client.ask_controller(request))
        except ClusterFailure:
            self.client.forget_controller()
            raise
        if any(refusal.code is ErrorCode.NOT_CONTROLLER for refusal in refused.values()):
            self.client.forget_controller()
        return refused

    async def each_broker(self) -> dict[int, BrokerConnection]:
        """Returns a connection to every live broker. One that is down reads the changes when it starts.

        Raises NoConnection where none can be reached: then no broker shows anything.
        """
        listed = (await self.client.ask(AnyMetadataRequest(()))).brokers
        async with self._dialing:
            missing = {
                broker.node_id: (broker.host, broker.port)
                for broker in listed
                if broker.node_id not in self._brokers or self._brokers[broker.node_id].closed
            }
            reached = await self.client.dial_each(missing, BROKER_SECONDS)
            for connection in reached.connections.values():
                connection.set_timeout(BROKER_SECONDS)
            self._brokers |= reached.connections
            live = {broker.node_id for broker in listed}
            brokers = {
                node: connection
                for node, connection in self._brokers.items()
                if node in live and not connection.closed
            }
        if not brokers:
            raise NoConnection(f"no broker of {self.endpoint.cluster} can be reached")
        return brokers


PROPAGATION_SECONDS = 120.0
_FIRST_LOOK = 0.05
_LONGEST_LOOK = 1.0


async def wait_while_missing(
    context: ApplyContext, missing: Callable[[], Awaitable[dict[str, str]]]
) -> dict[str, str]:
    """Asks what is missing until nothing is, and returns what still is when time is up, each with a reason.

    The deadline moves on whenever less is missing: a busy cluster is not given up.
    """
    deadline, pause, least = 0.0, _FIRST_LOOK, -1
    while waiting := await missing():
        if least < 0 or len(waiting) < least:
            deadline, least = time.monotonic() + PROPAGATION_SECONDS, len(waiting)
        if time.monotonic() > deadline or await context.guard.stop_reason() is not None:
            break
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_LOOK)
    return waiting


VisibilityCheck = Callable[[str, TopicMetadata | None], bool]


def has_leaders(partitions: Mapping[str, int]) -> VisibilityCheck:
    """Returns a check that a topic has all its partitions and that each of them has a leader."""

    def is_visible(name: str, topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error:
            return False
        shown = topic.partitions
        return len(shown) >= max(1, partitions.get(name, 1)) and all(
            partition.leader >= 0 for partition in shown.values()
        )

    return is_visible


def is_gone(ids: Mapping[str, str]) -> VisibilityCheck:
    """Returns a check that the broker no longer shows the topic with this id."""

    def is_visible(name: str, topic: TopicMetadata | None) -> bool:
        return topic is None or bool(topic.error) or topic_id_text(topic.id) != ids[name]

    return is_visible


async def wait_until_visible(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Waits until every live broker passes the check for every topic. Returns those that did not pass."""

    async def missing() -> dict[str, str]:
        return await _invisible_topics(context, topics, is_visible) if topics else {}

    return await wait_while_missing(context, missing)


async def _invisible_topics(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Returns the topics that a broker does not show as wanted, each with a reason."""
    try:
        brokers = await context.each_broker()
    except ClusterFailure:
        return dict.fromkeys(topics, "no broker answers")
    names = sorted(topics)
    shown = await asyncio.gather(*(topics_at(connection, names) for connection in brokers.values()))
    if not any(metadata is not None for metadata in shown):
        return dict.fromkeys(topics, "no broker answers")
    return {
        name: f"broker {broker} does not show it yet"
        for broker, metadata in zip(brokers, shown, strict=True)
        if metadata is not None
        for name in names
        if not is_visible(name, metadata.get(name))
    }


async def topics_at(connection: BrokerConnection, names: Sequence[str]) -> dict[str, TopicMetadata] | None:
    """Returns the topics as this broker shows them; None if it does not answer."""
    try:
        return {topic.name: topic for topic in (await connection.call(AnyMetadataRequest(names))).topics}
    except ClusterFailure:
        connection.close()
        return None
