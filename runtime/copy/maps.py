"""The offset maps of a flow, put together from their segments and the ends that progress carries (R6)."""

from __future__ import annotations

from runtime.contract import naming
from runtime.contract.ledger import (
    PartitionKey,
    Segment,
    SegmentKey,
    decode_key,
    decode_segment,
    partition_of,
)
from runtime.contract.offsetmap import OffsetMap
from runtime.copy.ledger import Ledger
from runtime.copy.scan import Scan
from runtime.copy.wire.cluster import Cluster


async def read_map(cluster: Cluster, flow: str) -> dict[PartitionKey, OffsetMap]:
    """Every partition the flow ever copied. Reads the flow's partitions of ledger and map from the start."""
    ledger = await Ledger.open(cluster)
    topic = (await cluster.topics([naming.OFFSET_MAP]))[naming.OFFSET_MAP]
    scan = Scan(cluster, naming.OFFSET_MAP, partition_of(flow, max(len(topic.partitions), 1)))
    # Progress first: it names the segments that were sealed by then, and those are there to be read after it.
    await ledger.refresh(flow)
    progress = ledger.all_progress(flow)
    await scan.refresh()
    segments: dict[PartitionKey, dict[int, Segment]] = {}
    for key, value in scan.fold.items():
        match decode_key(key):
            case SegmentKey(of, incarnation, number) if of in progress:
                if incarnation == progress[of].incarnation and number < progress[of].segments:
                    segments.setdefault(of, {})[number] = decode_segment(value)
    return {
        of: OffsetMap([*(one.span() for _, one in sorted(segments.get(of, {}).items())), state.open_span()])
        for of, state in progress.items()
    }
