"""What a handler may use at one cluster: its clients, its registry, its guard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

from planner.apply.retry import RequestGuard
from planner.kafka import ClusterEndpoint, admin
from planner.model.address import Address
from planner.model.owned import RegistryEntry
from planner.model.step import Step
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec


class LaunchFailed(Exception):
    """A job could not be started, told or stopped; `log` are the last lines of its own log."""

    def __init__(self, what: str, way_out: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.log = tuple(log)


class JobLauncher(Protocol):
    """Every method may raise LaunchFailed."""

    def launch(self, spec: JobSpec) -> str:
        """Starts it, detached; where it runs, in a person's words."""
        ...

    def update(self, spec: JobSpec) -> None:
        """The spec that the next start goes by; the running job is not touched."""
        ...

    def runs(self, job: str) -> bool | None:
        """Whether its processes, or its application at the master, are there; None: that can't be told."""
        ...

    def stop(self, job: str, grace_s: float) -> None:
        """Asks, waits, then kills. Gone already is success."""
        ...

    def tail(self, job: str) -> Sequence[str]:
        """The last lines of its log."""
        ...


Launchers = Callable[[LaunchSpec], JobLauncher]


def no_launchers(launch: LaunchSpec) -> JobLauncher:
    """Where no job is ever started."""
    raise LaunchFailed(f"nothing here can start a job with launcher {launch.launcher}")


class OwnershipRegistry(Protocol):
    def write(self, own: Sequence[RegistryEntry] = ..., disown: Sequence[Address] = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class JobTimeouts:
    """For how many seconds what a job does is waited for."""

    copying_s: float = 120.0  # until one that was launched really copies
    acknowledged_s: float = 60.0  # until one does what it was told
    stopped_s: float = 45.0  # until one that was asked to stop has stopped
    kill_after_s: float = 20.0  # until one that its launcher asked to stop is killed
    silent_s: float = 15.0  # until one that was told something and says nothing counts as dead
    heartbeat_s: float = 4.0  # a heartbeat comes every second


def ignore_waits(_step: Step, _what: str) -> None:
    """Says nothing of what a step waits for."""


@dataclass(slots=True)
class ApplyContext:
    """One cluster during one apply."""

    endpoint: ClusterEndpoint
    registry: OwnershipRegistry
    guard: RequestGuard
    plan_digest: str
    now_ms: Callable[[], int]
    launchers: Launchers = no_launchers
    wait: bool = True  # until launched jobs really copy
    timeouts: JobTimeouts = field(default_factory=JobTimeouts)
    on_wait: Callable[[Step, str], None] = ignore_waits  # told what a long step waits for
    client: AdminClient = field(init=False)
    _by_broker: dict[int, AdminClient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = admin(self.endpoint)

    def each_broker(self) -> dict[int, AdminClient]:
        """A client for every broker that lives now, which asks that broker and no other."""
        brokers: dict[Any, Any] = self.client.list_topics(timeout=10).brokers
        for broker_id, broker in brokers.items():
            if broker_id not in self._by_broker:
                only = ClusterEndpoint(
                    self.endpoint.cluster, f"{broker.host}:{broker.port}", self.endpoint.settings
                )
                self._by_broker[broker_id] = admin(only)
        return {broker_id: self._by_broker[broker_id] for broker_id in brokers}
