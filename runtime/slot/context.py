"""The context holds the clients, budgets and settings that the flows and lanes of a slot are given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from runtime.contract.records.control import SlotSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger, ProducerDirectory
from runtime.schemas.client import SchemaRegistry
from runtime.slot.budget import ByteBudget, SessionShares
from runtime.slot.idle_session import IdleSessions

if TYPE_CHECKING:
    from runtime.sql.transformer import Transformer

_LATE = 0.8  # The fraction of the transaction timeout after which a lane aborts by itself.

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class SlotContext(Struct, frozen=True):
    """The clients, budgets and settings of a slot, as its flows use them.

    `spec` is what the driver said of the slot. `producers` is the producer directory of the destination.
    `spawn` starts a task whose failure ends the slot. `confirm` raises SlotMustEnd where the driver has
    replaced this process: a flow calls it after it initialised its transactional ids (R3). `transformer`
    applies the transform of the slot's flow; a slot without one copies flows without one. `registries` are
    the schema registries of the job, by cluster.
    """

    spec: SlotSpec
    destination: KafkaCluster
    ledger: Ledger
    producers: ProducerDirectory
    map_partitions: int
    budget: ByteBudget
    shares: SessionShares
    idle_sessions: IdleSessions
    spawn: Spawn
    confirm: Callable[[], Awaitable[None]]
    transformer: Transformer | None = None
    registries: Mapping[str, SchemaRegistry] = {}


class LaneSettings(Struct, frozen=True):
    """The settings of a flow's lanes.

    `longest_s` bounds a transaction under load. It is at most half of the rpo, so that a record fetched at
    the beginning is committed within the rpo even when the end takes as long again. `ahead_s` bounds a
    transaction without data.
    """

    longest_s: float
    idle_commit_s: float
    ahead_s: float
    transaction_bytes: int
    transaction_timeout_ms: int
    request_bytes: int

    @property
    def late_s(self) -> float:
        """The age in seconds at which the lane aborts a transaction that is not written yet.

        It is below the transaction timeout: a broker that times a transaction out fences its producer.
        """
        return self.transaction_timeout_ms * _LATE / 1000


def lane_settings(copy: CopySettings, flow: FlowSpec) -> LaneSettings:
    """Returns the lane settings from the job's copy settings and the flow's rpo."""
    longest = copy.transaction_ms if flow.rpo_ms is None else min(copy.transaction_ms, flow.rpo_ms // 2)
    return LaneSettings(
        longest_s=max(longest, 1) / 1000,
        idle_commit_s=copy.tail_every_ms / 1000,
        ahead_s=min(copy.tail_every_ms, copy.transaction_timeout_ms // 10) / 1000,
        transaction_bytes=copy.transaction_bytes,
        transaction_timeout_ms=copy.transaction_timeout_ms,
        request_bytes=copy.request_bytes,
    )
