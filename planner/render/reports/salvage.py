"""The output of `repl salvage`, as text, as JSON, and as the lines of an export."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.text import Text

from planner.render.plan.words import plural
from planner.render.reports.history import when
from planner.render.table import Cell, Column, Row, table
from runtime.contract.views.salvage_view import SalvagedPartition, SalvagedRecord, SalvageView

_SHOWN = 60
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


def screen(seen: SalvageView, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen. Without a `width` it is as wide as needed."""
    yield Text(f"{seen.flow}: {seen.source} → {seen.destination}, {seen.state}", style="bold")
    rows = [_row(one) for one in seen.partitions if one.records or one.unread or one.lost]
    if rows:
        yield from table(_PARTITIONS, rows, width)
        yield Text("")
    shown = [_record(record) for one in seen.partitions for record in one.first]
    if shown:
        yield from table(_RECORDS, shown, width)
        yield Text("")
    yield from _summary(seen, len(shown))


def as_json(seen: SalvageView) -> dict[str, Any]:
    partitions = [
        {**msgspec.to_builtins(one), "first": [document(record) for record in one.first]}
        for one in seen.partitions
    ]
    return {**msgspec.to_builtins(seen), "records": seen.records, "partitions": partitions}


def document(record: SalvagedRecord) -> dict[str, Any]:
    """Returns one record with all its bytes."""
    return {
        "cluster": record.cluster,
        "cluster_id": record.cluster_id,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _content(record.key),
        "value": _content(record.value),
        "headers": [{"name": name, "value": _content(value)} for name, value in record.headers],
        "came_from": [
            {"cluster_id": cluster, "topic": topic, "partition": partition, "offset": offset}
            for cluster, topic, partition, offset in record.came_from
        ],
        "flow": record.flow,
    }


def line(record: SalvagedRecord) -> str:
    """Returns one record as a line of JSON."""
    return json.dumps(document(record), ensure_ascii=False) + "\n"


def _content(content: bytes | None) -> dict[str, str] | None:
    """Returns bytes as base64, and as text too if they are UTF-8; null stays null."""
    if content is None:
        return None
    found = {"base64": base64.b64encode(content).decode()}
    with contextlib.suppress(UnicodeDecodeError):
        found["text"] = content.decode()
    return found


def _row(one: SalvagedPartition) -> Row:
    why = ["the flow never came to it"] if not one.begun else []
    why += sorted({f"given up: {reason}" for _, _, reason in one.stretches if reason != "not copied"})
    if one.lost:
        why.append(f"retention took {plural(one.lost, 'offset')} before they were copied")
    if one.kept_back:
        why.append(f"{plural(one.kept_back, 'record')} kept back by provenance are not counted")
    if one.unread:
        why.append(f"not read to the end: {one.unread}")
    return [
        one.topic,
        str(one.partition),
        Cell(f"{one.records:,}", "red" if one.unread else ""),
        _number(one.first_offset),
        _number(one.last_offset),
        _time(one.first_timestamp_ms),
        _time(one.last_timestamp_ms),
        "; ".join(why),
    ]


def _record(record: SalvagedRecord) -> Row:
    hops = " → ".join(f"{topic}-{partition}:{offset}" for _, topic, partition, offset in record.came_from)
    came_by = f"{hops} by {record.flow}" if hops else f"by {record.flow}"
    return [
        f"{record.topic}-{record.partition}:{record.offset}",
        _time(record.timestamp_ms),
        _shown(record.key),
        _shown(record.value),
        came_by if record.flow is not None else "written here",
    ]


def _summary(seen: SalvageView, shown: int) -> Iterator[Text]:
    if seen.state == "active":
        yield Text(f"{seen.flow} is active: what is listed may only be on its way.", style="yellow")
    if not seen.records:
        yield Text(f"Nothing at {seen.source} is missing at {seen.destination}.", style="bold")
        return
    yield Text(
        f"{plural(seen.records, 'record')} of {seen.source} never reached {seen.destination}.", style="bold"
    )
    if shown < seen.records:
        most = max(len(one.first) for one in seen.partitions)
        yield Text(
            f"{shown:,} of them are shown, at most {most} of each partition; "
            f"--export FILE writes all {seen.records:,}."
        )


def _number(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else when(at_ms)


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and (text or not content) else f"0x{content[:_SHOWN].hex()}"
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
