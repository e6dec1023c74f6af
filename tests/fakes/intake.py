"""Intakes that run without a slot, and what a broker answers to their fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from msgspec.structs import replace

from runtime.batch import Record
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.slot.budget import ByteBudget, SessionShares, TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.idle_session import IdleSessions
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.batch_filter import FlowFilter
from runtime.slot.read.reader import BrokerIntake, FetchEvent
from tests.fakes.partition import partition
from tests.runtime.batch.forge import batch_bytes
from tests.runtime.slot.world import SLOT, flow_spec

TOPIC_ID = b"s" * 16


def copying(number: int, topic: str = "orders") -> PartitionCopy:
    """A partition that may be fetched, from offset 10 on."""
    copy = partition(number, topic=topic)
    copy.resume()
    return copy


def fetched(
    number: int, end: int, records: Sequence[Record] = (), error: ErrorCode = ErrorCode.NONE
) -> FetchedPartition:
    """What a broker answers for a partition whose log ends at `end`."""
    data = memoryview(bytearray(batch_bytes(records) if records else b""))
    return FetchedPartition(TOPIC_ID, number, error, end, end, 0, (), -1, data)


def memory_of() -> SimpleNamespace:
    """What the intakes of a slot share."""
    budget = ByteBudget(1 << 20)
    shares = SessionShares(budget)
    idle_sessions = IdleSessions(budget, shares, asyncio.ensure_future)
    return SimpleNamespace(budget=budget, shares=shares, idle_sessions=idle_sessions)


def intake_of(
    leader: object,
    emit: Callable[[FetchEvent], None] = lambda _: None,
    *,
    flow: str = "flow",
    memory: SimpleNamespace | None = None,
    transformer: object = None,
    bucket: TokenBucket | None = None,
    **settings: int,
) -> BrokerIntake:
    """The intake of a flow at its only broker."""
    spec = replace(SLOT, copy=CopySettings(**{"linger_ms": 0, **settings}))
    context = SimpleNamespace(**vars(memory or memory_of()), spec=spec, transformer=transformer)
    return BrokerIntake(
        cast(SlotContext, context),
        1,
        cast(KafkaCluster, leader),
        bucket or TokenBucket(None, lambda: 0.0),
        FlowFilter(flow_spec(flow), "id-1", "id-2", None, MAX_UNPACKED),
        emit,
        f"fetch {flow}",
    )
