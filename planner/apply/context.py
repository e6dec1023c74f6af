"""What a handler uses at one cluster: clients, registry, timeouts, launchers, and requests with retries.

A batch of requests is sent, and what failed for a moment is sent again until a deadline. A request that a
policy refuses is never repeated. The guard is asked before every request.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata

from planner.kafka import ClusterEndpoint, admin, explain, is_transient
from planner.model.address import Address
from planner.model.observed import RegistryEntry
from planner.model.step import DONE, RequestResult, Result, Step, failed
from planner.plan.steps.restores import RestoreOffsets, RestoreRecords
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec

S = TypeVar("S", bound=Step)

REQUEST_SECONDS = 30.0
DEADLINE_SECONDS = 120.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


@dataclass(slots=True)
class RequestGuard:
    """Is asked before every request. `stop_reason` returns why nothing more may be sent to this cluster."""

    stop_reason: Callable[[], str | None]
    requests: int = 0

    def before_request(self) -> str | None:
        """Counts the request and returns the reason not to send it."""
        self.requests += 1
        return self.stop_reason()


# Sends one request for all the steps and returns a future for each, by the step's id.
Sender = Callable[[Sequence[S]], Mapping[str, "Future[Any]"]]

# Classifies a final error: the cluster may be as wanted, since an earlier answer was lost, for example.
ErrorClassifier = Callable[[S, KafkaException], RequestResult]


def error_is_final(_step: Step, failure: KafkaException) -> RequestResult:
    """Fails the step: for requests that are idempotent by themselves."""
    return failed(explain(failure))


def send_with_retries(
    steps: Sequence[S],
    send: Sender[S],
    classify_error: ErrorClassifier[S],
    guard: RequestGuard,
    within: float = DEADLINE_SECONDS,
) -> dict[str, RequestResult]:
    """Sends the batch and repeats what failed for a moment, with growing pauses.

    Returns a result for every step's id.
    """
    deadline = time.monotonic() + within
    results: dict[str, RequestResult] = {}
    left = list(steps)
    pause = _FIRST_PAUSE
    while left:
        if (stop_reason := guard.before_request()) is not None:
            results.update({step.id: RequestResult(Result.NOT_STARTED, stop_reason) for step in left})
            break
        again: list[tuple[S, str]] = []
        for step, failure in _send_once(left, send):
            match failure:
                case None:
                    results[step.id] = DONE
                case _ if is_transient(failure):
                    again.append((step, explain(failure)))
                case KafkaException():
                    results[step.id] = classify_error(step, failure)
                case _:
                    results[step.id] = failed(explain(failure))
        if again and time.monotonic() + pause > deadline:
            results.update({step.id: failed(f"given up after {within:.0f} s: {why}") for step, why in again})
            break
        left = [step for step, _ in again]
        if left:
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads retries, guards nothing
            pause = min(pause * 2, _LONGEST_PAUSE)
    return results


def _send_once(steps: Sequence[S], send: Sender[S]) -> list[tuple[S, BaseException | None]]:
    """Sends one request and returns the exception of each step, or None."""
    try:
        futures = send(steps)
    except (KafkaException, TimeoutError) as failure:
        return [(step, failure) for step in steps]
    outcomes: list[tuple[S, BaseException | None]] = []
    for step in steps:
        try:
            futures[step.id].result(timeout=REQUEST_SECONDS * 2)
        except (KafkaException, TimeoutError) as failure:
            outcomes.append((step, failure))
        else:
            outcomes.append((step, None))
    return outcomes


class LaunchFailed(Exception):
    """A job could not be started, updated or stopped. `log` holds the last lines of its own log."""

    def __init__(self, what: str, way_out: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.log = tuple(log)


class JobLauncher(Protocol):
    """Starts and stops jobs. Every method may raise LaunchFailed."""

    def launch(self, spec: JobSpec) -> str:
        """Starts the job in the background and returns where it runs, for the user."""
        ...

    def update(self, spec: JobSpec) -> None:
        """Stores the spec for the next start. The running job is not changed."""
        ...

    def runs(self, job: str) -> bool | None:
        """Returns whether the job's processes or its application exist; None if that is unknown."""
        ...

    def stop(self, job: str, grace_s: float) -> None:
        """Asks the job to stop, waits, then kills it. A job that is gone already is a success."""
        ...

    def tail(self, job: str) -> Sequence[str]:
        """Returns the last lines of the job's log."""
        ...


Launchers = Callable[[LaunchSpec], JobLauncher]


def no_launchers(launch: LaunchSpec) -> JobLauncher:
    """Refuses every launch, for applies that start no job."""
    raise LaunchFailed(f"nothing here can start a job with launcher {launch.launcher}")


class BackupRestorer(Protocol):
    """Restores records and group offsets of a backup into a cluster."""

    def records(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]
    ) -> dict[str, RequestResult]: ...

    def offsets(
        self, endpoint: ClusterEndpoint, steps: Sequence[RestoreOffsets]
    ) -> dict[str, RequestResult]: ...


class NoRestorer:
    """Refuses every restore, for applies without such steps."""

    def records(
        self, _endpoint: ClusterEndpoint, steps: Sequence[RestoreRecords]
    ) -> dict[str, RequestResult]:
        return {step.id: failed("nothing here can restore a backup") for step in steps}

    def offsets(
        self, _endpoint: ClusterEndpoint, steps: Sequence[RestoreOffsets]
    ) -> dict[str, RequestResult]:
        return {step.id: failed("nothing here can restore a backup") for step in steps}


class OwnershipRegistry(Protocol):
    """Writes the registry entries of one cluster."""

    def write(self, own: Sequence[RegistryEntry] = ..., disown: Sequence[Address] = ...) -> None: ...


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
    failing_s: float = 8.0  # until a flow whose attempts to start fail counts as one that can't start


def ignore_waits(_step: Step, _what: str) -> None:
    """Ignores what a step waits for."""


@dataclass(slots=True)
class ApplyContext:
    """One cluster during one apply."""

    endpoint: ClusterEndpoint
    registry: OwnershipRegistry
    guard: RequestGuard
    plan_digest: str
    now_ms: Callable[[], int]
    launchers: Launchers = no_launchers
    restorer: BackupRestorer = field(default_factory=NoRestorer)
    wait: bool = True  # whether to wait until launched jobs copy
    timeouts: JobTimeouts = field(default_factory=JobTimeouts)
    on_wait: Callable[[Step, str], None] = ignore_waits  # called with what a long step waits for
    client: AdminClient = field(init=False)
    _by_broker: dict[int, AdminClient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = admin(self.endpoint)

    def each_broker(self) -> dict[int, AdminClient]:
        """Returns a client for every live broker. Each client asks its own broker only."""
        brokers: dict[Any, Any] = self.client.list_topics(timeout=10).brokers
        for broker_id, broker in brokers.items():
            if broker_id not in self._by_broker:
                only = ClusterEndpoint(
                    self.endpoint.cluster, f"{broker.host}:{broker.port}", self.endpoint.settings
                )
                self._by_broker[broker_id] = admin(only)
        return {broker_id: self._by_broker[broker_id] for broker_id in brokers}


PROPAGATION_SECONDS = 120.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

VisibilityCheck = Callable[[str, TopicMetadata | None], bool]


def has_leaders(partitions: Mapping[str, int]) -> VisibilityCheck:
    """Returns a check that a topic has all its partitions and that each of them has a leader."""

    def is_visible(name: str, topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error is not None:
            return False
        known = topic.partitions
        return len(known) >= max(1, partitions.get(name, 1)) and all(
            one.leader >= 0 for one in known.values()
        )

    return is_visible


def is_gone(_name: str, topic: TopicMetadata | None) -> bool:
    """Returns whether the broker no longer shows the topic."""
    return topic is None or topic.error is not None


def wait_until_visible(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Waits until every live broker passes the check for every topic.

    Returns the topics that did not pass by the deadline, each with a reason. The deadline moves on with every
    topic that passes: a busy cluster is not given up.
    """
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    left = len(topics)
    while True:
        waiting = _invisible_topics(context, topics, is_visible)
        if not waiting or time.monotonic() > deadline or context.guard.stop_reason() is not None:
            return waiting
        if len(waiting) < left:
            left = len(waiting)
            deadline = time.monotonic() + PROPAGATION_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _invisible_topics(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Returns the topics that a broker does not show as wanted, each with a reason."""
    try:
        brokers = context.each_broker()
    except KafkaException:
        return dict.fromkeys(topics, "no broker answers")
    waiting: dict[str, str] = {}
    for broker_id, client in brokers.items():
        known = _metadata(client)
        if known is None:
            continue  # a broker that is down reads the metadata log when it starts again
        for name in topics:
            if not is_visible(name, known.get(name)):
                waiting[name] = f"broker {broker_id} does not show it yet"
    return waiting


def _metadata(client: AdminClient) -> Mapping[str, TopicMetadata] | None:
    try:
        return client.list_topics(timeout=5).topics
    except KafkaException:
        return None
