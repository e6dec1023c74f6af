"""What the flows of a slot share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from runtime.contract.jobspec import CopySettings
from runtime.copy.budget import ByteBudget
from runtime.copy.failpoints import Passing
from runtime.copy.ledger import Ledger
from runtime.copy.provenance import ProducerDirectory
from runtime.kafka.cluster import Cluster

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`producers` are the destination's. `spawn` starts a task whose failure ends the slot."""

    job: str
    slot: int
    settings: CopySettings
    destination: Cluster
    ledger: Ledger
    producers: ProducerDirectory
    map_partitions: int
    budget: ByteBudget
    passing: Passing
    spawn: Spawn
