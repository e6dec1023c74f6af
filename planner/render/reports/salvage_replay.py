"""The output of `repl salvage --replay`: what will be copied and what was copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from planner.render.plan.words import plural
from planner.render.table import Cell, Column, Row, table
from runtime.contract.views.salvage_view import ReplayedPartition, SalvagedPartition, SalvageView

_PLANNED = (
    Column("TOPIC"),
    Column("PARTITION", right=True),
    Column("RECORDS", right=True),
    Column("OFFSETS", right=True, spare=2),
    Column("INTO"),
    Column("NOTE", spare=1),
)
_DONE = (
    Column("TOPIC"),
    Column("PARTITION", right=True),
    Column("REPLAYED", right=True),
    Column("INTO"),
    Column("LEFT", spare=1),
)


def planned(seen: SalvageView, to: str | None, width: int | None) -> Iterator[Text]:
    """Yields what a replay will copy. Without a `width` it is as wide as needed."""
    yield Text(f"{seen.flow}: {seen.source} → {seen.destination}, {seen.state}", style="bold")
    wanted = seen.replayable
    if wanted:
        yield from table(_PLANNED, [_row(one, to) for one in wanted], width)
        yield Text("")
    yield from (Text(line, style="yellow") for line in _left_out(seen))
    if not wanted:
        yield Text(f"Nothing is left to replay from {seen.source} into {seen.destination}.", style="bold")
        return
    what = plural(sum(one.records for one in wanted), "record")
    yield Text(
        f"{what} of {seen.source} will be copied into {seen.destination}, behind what is there now, each with"
        " the header __repl that tells where it came from.",
        style="bold",
    )


def done(parts: Sequence[ReplayedPartition], width: int | None) -> Iterator[Text]:
    """Yields what the replay copied."""
    rows: list[Row] = [
        [one.topic, str(one.partition), f"{one.records:,}", one.into, Cell(one.unread, "red")]
        for one in parts
    ]
    yield Text("")
    yield from table(_DONE, rows, width)
    yield Text("")
    left = sum(bool(one.unread) for one in parts)
    what = f"{plural(sum(one.records for one in parts), 'record')} replayed"
    if left:
        yield Text(f"{what}; {plural(left, 'partition')} not to the end.", style="bold red")
    else:
        yield Text(f"{what}.", style="bold")


def as_json(seen: SalvageView, to: str | None, parts: Sequence[ReplayedPartition]) -> dict[str, Any]:
    return {
        "flow": seen.flow,
        "source": seen.source,
        "source_id": seen.source_id,
        "destination": seen.destination,
        "planned": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "records": one.records,
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
                "into": to or one.destination_topic,
                "lost": one.lost,
            }
            for one in seen.replayable
        ],
        "unread": [
            {"topic": one.topic, "partition": one.partition, "why": one.unread}
            for one in seen.partitions
            if one.unread
        ],
        "replayed": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "records": one.records,
                "into": one.into,
                "why": one.unread,
            }
            for one in parts
        ],
        "records": sum(one.records for one in parts),
    }


def _row(one: SalvagedPartition, to: str | None) -> Row:
    into = f"{to or one.destination_topic}-{one.partition}"
    offsets = f"{one.first_offset}…{one.last_offset}"
    return [one.topic, str(one.partition), f"{one.records:,}", offsets, into, _note(one)]


def _note(one: SalvagedPartition) -> str:
    notes = []
    if one.lost:
        notes.append(f"retention took {plural(one.lost, 'offset')}: they are lost")
    if one.kept_back:
        notes.append(f"{plural(one.kept_back, 'record')} kept back by provenance")
    return "; ".join(notes)


def _left_out(seen: SalvageView) -> Iterator[str]:
    for one in seen.partitions:
        if one.unread:
            yield f"{one.topic}-{one.partition} is left out: {one.unread}"
        elif one.lost and not one.records:
            yield f"{one.topic}-{one.partition}: {_note(one)}"
