"""Plans and results of `repl verify`, for tests that name only what matters to them."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runtime.audit.verify.pieces import (
    AnyPiece,
    ComparedRecord,
    LoadedFile,
    MirrorRange,
    PlannedPartition,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.provenance import HEADER, Origin, encode
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.files.source.known_files import KnownFile
from tests.fakes.one_broker import AT, ID

FLOW = FlowSpec(name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=("t",)))


def request(flow: FlowSpec = FLOW, *, port: int = 1, **changes: Any) -> VerifyRequest:
    """Both clusters are where nobody listens, or at the port of a test."""
    at = ClusterSpec(bootstrap=f"127.0.0.1:{port}")
    return VerifyRequest(flow=flow, source=at, destination=at, **changes)


def reading_files(folder: Path, form: Any = "text", topic: str = "inbox") -> FlowSpec:
    lines = LinesSpec(endpoint="inbox", folder=str(folder), format=form, topic=topic)
    return replace(FLOW, destination="dc1", topics=SelectionSpec(include=()), lines=lines)


def piece(low: int = 0, high: int = 10, *, destination_low: int | None = None, **changes: Any) -> MirrorRange:
    """Of the topic `t`; at the destination there are the same offsets, as far as a test says nothing else."""
    start = low if destination_low is None else destination_low
    end = changes.pop("destination_high", high)
    whole = MirrorRange(0, "t", 0, low, high, b"\x01", "t", b"\x02", start, end, end)
    return replace(whole, **changes)


def file_piece(read: KnownFile, high: int, destination_high: int, **changes: Any) -> LoadedFile:
    """Of a file whose records lie in the one partition of `OneBroker`, from its first offset on."""
    whole = LoadedFile(0, read.name, 0, 0, high, AT.topic, ID, 0, destination_high, b"", read, 0)
    return replace(whole, **changes)


def verified(low: int, end: int, **changes: Any) -> VerifiedPiece:
    return replace(VerifiedPiece(0, low, end, end - low), **changes)


def planned(*pieces: AnyPiece, partition: int = 0, **changes: Any) -> PlannedPartition:
    key = PartitionKey(FLOW.name, "t", partition)
    whole = PlannedPartition(key, "t", pieces[0].low, pieces[-1].high, list(pieces))
    return replace(whole, **changes)


def fetched(
    offset: int = 0,
    value: bytes | None = None,
    producer: int = -1,
    *,
    headers: Sequence[tuple[str, bytes | None]] = (),
    origins: Sequence[Origin] = (),
    **changes: Any,
) -> ConsumerRecord:
    """A record of partition 0; `origins` are the hops in its headers."""
    stamped = tuple((HEADER, encode(origin)) for origin in origins)
    return replace(ConsumerRecord("t", 0, offset, 0, None, value, (*headers, *stamped), producer), **changes)


async def chunks(
    records: Sequence[ComparedRecord], size: int = 100
) -> AsyncIterator[Sequence[ComparedRecord]]:
    """The records of one side, some at a time."""
    for begin in range(0, len(records), size):
        yield records[begin : begin + size]
