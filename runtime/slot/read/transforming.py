"""Applies the transform of a flow to the batches of a response, between the filter and the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.batch import RewriteSpec
from runtime.kafka.errors import Disconnected
from runtime.slot.partition import Cursor
from runtime.slot.read.batch_filter import FilteredBatches
from runtime.sql.registry import RegistryUnavailable

if TYPE_CHECKING:
    from runtime.sql.transformer import Transformer


async def transformed(
    transformer: Transformer, filtered: FilteredBatches, spec: RewriteSpec
) -> FilteredBatches:
    """Returns what of the filtered batches travels. Raises EvaluationEnded where Spark ends the query.

    A schema registry that does not answer is a WireError: the partitions are retried.

    At a record that can't be handled, the cursor stays before it (R4). Records that do not travel count as
    dropped, without those that are quarantined. A batch that stands for several has the leader epoch of the
    last one: a newer epoch than that of the record before its position never reports a log as truncated that
    is not.
    """
    try:
        found = await transformer.apply([out for out, _ in filtered.outgoing], spec)
    except RegistryUnavailable as error:
        raise Disconnected("schema registry", str(error), sent=False) from None
    outgoing = [(out, filtered.outgoing[index][1]) for out, index in found.outgoing]
    dropped = filtered.dropped + found.filtered
    if found.failure is None:
        return filtered._replace(outgoing=outgoing, dropped=dropped, quarantined=found.quarantined)
    at = found.failure.offset
    epoch = next(epoch for out, epoch in filtered.outgoing if at < out.position)
    return FilteredBatches(outgoing, Cursor(at, epoch), dropped, found.failure, found.quarantined)
