"""Progress of a partition, as a ledger holds it: the one builder of it for tests."""

from typing import Any

from msgspec.structs import replace

from runtime.contract.records.advance import Advance, advance, first_progress
from runtime.contract.records.ledger import Progress
from runtime.contract.records.offset_map import MappedOffset, OffsetMap, Run

SOURCE_ID, DESTINATION_ID = b"s" * 16, b"d" * 16  # the topics' ids


def progress(
    position: int = 0, destination_end: int = 0, *runs: Run, end: int = -1, **changes: Any
) -> Progress:
    """Copying began at `position`. With `end`, one transaction copied `runs` and moved the position there."""
    begun = first_progress(
        generation=changes.pop("generation", 1),
        source_topic_id=changes.pop("source_topic_id", SOURCE_ID),
        destination_topic=changes.pop("destination_topic", "orders"),
        destination_topic_id=changes.pop("destination_topic_id", DESTINATION_ID),
        position=position,
        destination_end=destination_end,
        now_ms=changes.pop("now_ms", 5),
    )
    if end >= 0:
        begun, _ = advance(begun, Advance(end, 1, runs), begun.generation, begun.written_at)
    return replace(begun, **changes)


def map_of(*parts: Any) -> OffsetMap:
    """The offset map of sealed segments and of the open span of a progress, in this order."""
    return OffsetMap([one.open_span() if isinstance(one, Progress) else one for one in parts])


def exact(offset: int) -> MappedOffset:
    """The offset of the very record."""
    return MappedOffset(offset, exact=True)


def near(offset: int) -> MappedOffset:
    """The offset of the next record that was copied."""
    return MappedOffset(offset, exact=False)
