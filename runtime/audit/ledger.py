"""A cluster's ledger, opened for reading: with or without a job that runs.

    async with open_ledger(reach) as opened:
        await opened.refresh(flow)
        opened.ledger.generation(flow), opened.maps.all(flow)

Nothing here writes, and nothing here waits for an open transaction: what is not decided is not committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from runtime.contract import client, naming
from runtime.contract.client_values import ClientSettingsError
from runtime.copy.ledger import Ledger
from runtime.copy.maps import Maps
from runtime.copy.scan import TopicReplaced
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.errors import WireError
from runtime.copy.wire.timing import in_time

OPEN_WITHIN_S = 15.0


class AuditFailure(Exception):
    """What could not be read, at which cluster, and why: words for a person."""

    def __init__(self, cluster: str, why: str) -> None:
        super().__init__(f"{cluster}: {why}")
        self.cluster = cluster
        self.why = why


class NoLedger(AuditFailure):
    """No job ever copied into the cluster."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A cluster and how to get in. `settings` are resolved and hold secrets: they are never shown."""

    name: str
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """`refresh` a flow first, then ask `ledger` and `maps`."""

    cluster: Cluster
    ledger: Ledger
    maps: Maps

    async def refresh(self, flow: str) -> None:
        """Progress, generation and offset map of a flow, up to now."""
        await self.maps.refresh(flow)


@contextmanager
def telling(cluster: str) -> Iterator[None]:
    """What goes wrong on the wire comes out as an AuditFailure that names the cluster."""
    try:
        yield
    except (WireError, ClientSettingsError, TopicReplaced) as error:
        raise AuditFailure(cluster, str(error)) from error


@asynccontextmanager
async def open_cluster(reach: Reach, within: float = OPEN_WITHIN_S) -> AsyncIterator[Cluster]:
    """Raises AuditFailure, for what goes wrong inside the block too."""
    with telling(reach.name):
        settings = client.wire_settings(reach.bootstrap, reach.settings)
        cluster = await in_time(Cluster.open(settings), within, f"opening {reach.name}")
        async with cluster:
            yield cluster


@asynccontextmanager
async def open_ledger(reach: Reach, within: float = OPEN_WITHIN_S) -> AsyncIterator[OpenLedger]:
    """Raises NoLedger where nothing was ever copied into, AuditFailure where it can't be read."""
    async with open_cluster(reach, within) as cluster:
        opened = await ledger_of(cluster)
        if opened is None:
            raise NoLedger(reach.name, f"there is no {naming.LEDGER}: no job ever copied into this cluster")
        yield opened


async def ledger_of(cluster: Cluster) -> OpenLedger | None:
    """None where no job ever copied into the cluster."""
    topics = await cluster.topics([naming.LEDGER, naming.OFFSET_MAP], fresh=True)
    if any(topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics.values()):
        return None
    ledger = await Ledger.open(cluster)
    return OpenLedger(cluster, ledger, Maps(cluster, ledger))
