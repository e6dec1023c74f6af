"""The context holds the clients, budgets and settings that the flows of a slot share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.slot.budget import ByteBudget
from runtime.slot.failpoints import Passing

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class SlotContext:
    """The clients, budgets and settings of a slot, as its flows use them.

    `producers` is the producer directory of the destination. `spawn` starts a task whose failure ends the
    slot.
    """

    job: str
    slot: int
    settings: CopySettings
    destination: KafkaCluster
    ledger: Ledger
    producers: ProducerDirectory
    map_partitions: int
    budget: ByteBudget
    passing: Passing
    spawn: Spawn
