"""What a handler may use at one cluster: its clients, its registry, its guard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

from planner.apply.launching import Launchers, nobody
from planner.apply.retry import RequestGuard
from planner.kafka import ClusterEndpoint, admin
from planner.model.address import Address
from planner.model.owned import RegistryEntry
from planner.model.step import Step


class OwnershipRegistry(Protocol):
    def write(self, own: Sequence[RegistryEntry] = ..., disown: Sequence[Address] = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class JobTimeouts:
    """For how many seconds what a job does is waited for."""

    copies: float = 120.0  # until one that was launched really copies
    heard: float = 60.0  # until one does what it was told
    goodbye: float = 45.0  # until one that was asked to stop has stopped
    grace: float = 20.0  # until one that its launcher asked to stop is killed
    silence: float = 15.0  # until one that was told something and says nothing counts as dead
    sign_of_life: float = 4.0  # a heartbeat comes every second


def tell_nothing(_step: Step, _what: str) -> None:
    """Says nothing of what a step waits for."""


@dataclass(slots=True)
class ApplyContext:
    """One cluster during one apply."""

    endpoint: ClusterEndpoint
    registry: OwnershipRegistry
    guard: RequestGuard
    plan_digest: str
    now_ms: Callable[[], int]
    launchers: Launchers = nobody
    wait: bool = True  # until launched jobs really copy
    patience: JobTimeouts = field(default_factory=JobTimeouts)
    waits: Callable[[Step, str], None] = tell_nothing  # told what a long step waits for
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
