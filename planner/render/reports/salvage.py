"""The output of `repl salvage`: records that never reached the destination, and their replay. Pure.

As text, as JSON, and as the lines of an export.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.text import Text

from planner.render.readable import UNKNOWN, plural
from planner.render.reports.fields import json_fields
from planner.render.reports.records import content_json, moment, shown
from planner.render.table import Cell, Column, Row, table
from runtime.contract.records.provenance import origins
from runtime.contract.results.records import (
    ReplayedPartition,
    Salvage,
    SalvagedPartition,
    SalvagedRecord,
)

_SHOWN = 60  # characters of a key or a value
_PARTITIONS = (
    Column("TOPIC"),
    Column("PARTITION", right=True),
    Column("RECORDS", right=True),
    Column("FIRST", right=True, spare=2),
    Column("LAST", right=True, spare=2),
    Column("FROM", spare=4),
    Column("TO", spare=3),
    Column("WHY", spare=1),
)
_RECORDS = (
    Column("RECORD"),
    Column("TIME", spare=2),
    Column("KEY"),
    Column("VALUE", spare=1),
    Column("CAME FROM", spare=3),
)


def screen(seen: Salvage, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen. Without a `width` it is as wide as needed."""
    yield Text(f"{seen.flow}: {seen.source} → {seen.destination}, {seen.state}", style="bold")
    rows = [
        _row(partition)
        for partition in seen.partitions
        if partition.records or partition.unread or partition.lost or partition.open_from is not None
    ]
    if rows:
        yield from table(_PARTITIONS, rows, width)
        yield Text("")
    records = [_record(record) for partition in seen.partitions for record in partition.first]
    if records:
        yield from table(_RECORDS, records, width)
        yield Text("")
    yield from _summary(seen, len(records))


def document(seen: Salvage) -> dict[str, Any]:
    partitions = [
        {**msgspec.to_builtins(partition), "first": [record_json(record) for record in partition.first]}
        for partition in seen.partitions
    ]
    return {**msgspec.to_builtins(seen), "records": seen.records, "partitions": partitions}


def record_json(salvaged: SalvagedRecord) -> dict[str, Any]:
    """Returns one record with all its bytes."""
    record = salvaged.record
    return {
        **json_fields(salvaged, "cluster", "cluster_id"),
        "topic": record.topic,
        **content_json(record, _content),
        "came_from": [
            {"cluster_id": hop.cluster, **json_fields(hop, "topic", "partition", "offset")}
            for hop in origins(record.headers)
        ],
        "flow": salvaged.flow,
        **({"schema_registry": salvaged.registry} if salvaged.registry is not None else {}),
    }


def line(record: SalvagedRecord) -> str:
    """Returns one record as a line of JSON."""
    return json.dumps(record_json(record), ensure_ascii=False) + "\n"


def _content(content: bytes | None) -> dict[str, str] | None:
    """Returns bytes as base64, and as text too if they are UTF-8; null stays null."""
    if content is None:
        return None
    document = {"base64": base64.b64encode(content).decode()}
    with contextlib.suppress(UnicodeDecodeError):
        document["text"] = content.decode()
    return document


def _row(partition: SalvagedPartition) -> Row:
    why = ["the flow never copied it"] if not partition.begun else []
    why += sorted({f"given up: {reason}" for _, _, reason in partition.stretches if reason != "not copied"})
    if partition.lost:
        why.append(f"retention deleted {plural(partition.lost, 'offset')} before they were copied")
    if partition.kept_back:
        why.append(f"{plural(partition.kept_back, 'record')} filtered by provenance are not counted")
    why += _open(partition)
    if partition.unread:
        why.append(f"not read to the end: {partition.unread}")
    return [
        partition.topic,
        str(partition.partition),
        Cell(f"{partition.records:,}", "red" if partition.unread else ""),
        _number(partition.first_offset),
        _number(partition.last_offset),
        moment(partition.first_timestamp_ms),
        moment(partition.last_timestamp_ms),
        "; ".join(why),
    ]


def _open(partition: SalvagedPartition) -> Iterator[str]:
    if partition.open_from is not None:
        at = partition.open_from
        yield f"a transaction is open at offset {at}: what follows can be read once it has ended"


def _record(salvaged: SalvagedRecord) -> Row:
    record = salvaged.record
    hops = " → ".join(f"{hop.topic}-{hop.partition}:{hop.offset}" for hop in origins(record.headers))
    came_by = f"{hops} by {salvaged.flow}" if hops else f"by {salvaged.flow}"
    return [
        f"{record.topic}-{record.partition}:{record.offset}",
        moment(record.timestamp_ms),
        shown(record.key, _SHOWN),
        shown(record.value, _SHOWN),
        came_by if salvaged.flow is not None else f"written at {salvaged.cluster}",
    ]


def _summary(seen: Salvage, shown: int) -> Iterator[Text]:
    if seen.state == "active":
        yield Text(f"{seen.flow} is active: what is listed may only be on its way.", style="yellow")
    if not seen.records and not seen.complete:
        what = f"Nothing that could be read at {seen.source} is missing at {seen.destination}"
        yield Text(f"{what}, but not everything could be read.", style="bold yellow")
        return
    if not seen.records:
        yield Text(f"Nothing at {seen.source} is missing at {seen.destination}.", style="bold")
        return
    yield Text(
        f"{plural(seen.records, 'record')} of {seen.source} never reached {seen.destination}.", style="bold"
    )
    if shown < seen.records:
        most = max(len(partition.first) for partition in seen.partitions)
        yield Text(
            f"{shown:,} of them are shown, at most {most} of each partition; "
            f"--export FILE writes all {seen.records:,}."
        )


def _number(offset: int | None) -> str:
    return UNKNOWN if offset is None else str(offset)


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


def replay_plan(seen: Salvage, to: str | None, width: int | None) -> Iterator[Text]:
    """Yields what a replay will copy. Without a `width` it is as wide as needed."""
    yield Text(f"{seen.flow}: {seen.source} → {seen.destination}, {seen.state}", style="bold")
    wanted = seen.replayable
    if wanted:
        yield from table(_PLANNED, [_planned_row(partition, to) for partition in wanted], width)
        yield Text("")
    yield from (Text(line, style="yellow") for line in _left_out(seen))
    if not wanted:
        what, style = (
            ("is left to replay", "bold") if seen.complete else ("can be replayed now", "bold yellow")
        )
        yield Text(f"Nothing {what} from {seen.source} into {seen.destination}.", style=style)
        return
    what = plural(sum(partition.records for partition in wanted), "record")
    yield Text(
        f"{what} of {seen.source} will be copied into {seen.destination}, after its present records, each"
        " with the header __repl that names its origin.",
        style="bold",
    )


def replay_screen(parts: Sequence[ReplayedPartition], width: int | None) -> Iterator[Text]:
    """Yields what the replay copied."""
    rows: list[Row] = [
        [
            partition.topic,
            str(partition.partition),
            f"{partition.records:,}",
            partition.into,
            Cell(partition.unread, "red"),
        ]
        for partition in parts
    ]
    yield Text("")
    yield from table(_DONE, rows, width)
    yield Text("")
    for note in dict.fromkeys(partition.note for partition in parts if partition.note):
        yield Text(note, style="yellow")
    left = sum(bool(partition.unread) for partition in parts)
    what = f"{plural(sum(partition.records for partition in parts), 'record')} replayed"
    if left:
        yield Text(f"{what}; {plural(left, 'partition')} not to the end.", style="bold red")
    else:
        yield Text(f"{what}.", style="bold")


def replay_document(seen: Salvage, to: str | None, parts: Sequence[ReplayedPartition]) -> dict[str, Any]:
    return {
        **json_fields(seen, "flow", "source", "source_id", "destination"),
        "planned": [
            {
                **json_fields(partition, "topic", "partition", "records", "first_offset", "last_offset"),
                "into": to or partition.destination_topic,
                "lost": partition.lost,
            }
            for partition in seen.replayable
        ],
        "unread": [
            {**json_fields(partition, "topic", "partition"), "why": partition.unread}
            for partition in seen.partitions
            if partition.unread
        ],
        "open": [
            json_fields(partition, "topic", "partition", "open_from")
            for partition in seen.partitions
            if partition.open_from is not None
        ],
        "replayed": [
            {
                **json_fields(partition, "topic", "partition", "records", "into", "note"),
                "why": partition.unread,
            }
            for partition in parts
        ],
        "records": sum(partition.records for partition in parts),
    }


def _planned_row(partition: SalvagedPartition, to: str | None) -> Row:
    into = f"{to or partition.destination_topic}-{partition.partition}"
    offsets = f"{partition.first_offset}…{partition.last_offset}"
    return [
        partition.topic,
        str(partition.partition),
        f"{partition.records:,}",
        offsets,
        into,
        _note(partition),
    ]


def _note(partition: SalvagedPartition) -> str:
    notes = []
    if partition.lost:
        notes.append(f"retention deleted {plural(partition.lost, 'offset')}: they are lost")
    if partition.kept_back:
        notes.append(f"{plural(partition.kept_back, 'record')} filtered by provenance")
    return "; ".join([*notes, *_open(partition)])


def _left_out(seen: Salvage) -> Iterator[str]:
    for partition in seen.partitions:
        if partition.unread:
            yield f"{partition.topic}-{partition.partition} is left out: {partition.unread}"
        elif not partition.records and (partition.lost or partition.open_from is not None):
            yield f"{partition.topic}-{partition.partition}: {_note(partition)}"
