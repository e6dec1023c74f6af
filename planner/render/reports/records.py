"""The output of `repl read`: records, or the topics of a cluster, as text and as JSON. Pure.

Any bytes are shown safely.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins
from rich.text import Text

from planner.render.readable import UNKNOWN, count, plural
from planner.render.reports.fields import json_fields
from planner.render.table import Cell, Column, Row, table
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER
from runtime.contract.results.records import (
    ClusterContent,
    MirrorProgress,
    ProvenanceHop,
    TopicRecords,
    TracedRecord,
)

SHORT = 500  # characters of a value; all of them with --full
_HEX = 64  # bytes that are not text
DIM, NAME = "dim", "bold"
_PROVENANCE_STYLE = {"native": "green", "headers": "", "batch": ""}


def text_of(value: bytes) -> str | None:
    """Returns the bytes as text if a terminal may show it; None for control characters and other bytes."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\n\r\t" for sign in text) else None


def shown(value: bytes | None, limit: int | None = SHORT) -> str:
    """Returns one line: text as it is, `0x…` for other bytes, `null` for none."""
    if value is None:
        return "null"
    text = text_of(value)
    if text is None:
        most = len(value) if limit is None else _HEX
        more = f"… ({len(value):,} bytes)" if len(value) > most else ""
        return f"0x{value[:most].hex()}{more}"
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if limit is not None and len(escaped) > limit:
        return f"{escaped[:limit]}… ({len(value):,} bytes)"
    return escaped or '""'


def moment(ms: int | None) -> str:
    """Returns a time with milliseconds, to compare records."""
    from datetime import UTC, datetime

    if ms is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def place_and_time(record: ConsumerRecord, what: str, style: str) -> Text:
    return Text.assemble(
        (f"{record.topic}-{record.partition} @ {record.offset}", NAME),
        f"  {moment(record.timestamp_ms)}  ",
        (what, style),
    )


def header_lines(record: ConsumerRecord, limit: int | None) -> Iterator[Text]:
    for name, value in record.headers:
        if name != HEADER:
            yield Text.assemble(("  header ", DIM), f"{shown(name.encode())}: {shown(value, limit)}")


def screen(seen: TopicRecords, *, full: bool = False) -> Iterator[Text]:
    """Yields the records with key, value and headers."""
    limit = None if full else SHORT
    for traced in seen.records:
        record = traced.record
        yield place_and_time(record, provenance(traced, seen.cluster), _PROVENANCE_STYLE[traced.provenance])
        yield Text.assemble(("  key    ", DIM), shown(record.key, limit))
        yield Text.assemble(("  value  ", DIM), shown(record.value, limit))
        yield from header_lines(record, limit)
    how_many = plural(len(seen.records), "record") if seen.records else "No record"
    yield Text(f"{how_many} of {seen.topic} at {seen.cluster} (cluster id {seen.cluster_id})", DIM)
    for note in seen.notes:
        yield Text.assemble(("note: ", "yellow"), note)


def provenance(record: TracedRecord, cluster: str) -> str:
    """Returns where a record came from. A chain of flows names each place on the way."""
    if record.provenance == "native":
        if record.flow:
            return f"copied by {record.flow}"
        claims = " → ".join(_place(hop) for hop in record.claimed)
        return (
            f"written at {cluster} (its header {HEADER} names {claims}, but no flow wrote it)"
            if claims
            else f"written at {cluster}"
        )
    way = " → ".join(_place(hop) for hop in record.hops)
    by = f" by {record.flow}" if record.flow else ""
    return f"from {way}{by} ({record.provenance})"


def _place(hop: ProvenanceHop) -> str:
    partition = f"-{hop.partition}" if hop.partition is not None else ""
    offset = f" @ {hop.offset}" if hop.offset is not None else ""
    return f"{hop.cluster or hop.cluster_id} {hop.topic}{partition}{offset}"


def document(seen: TopicRecords) -> dict[str, Any]:
    """Returns the records; bytes are `{"text": …}` or `{"base64": …}`, null stays null."""
    return {
        **json_fields(seen, "cluster", "cluster_id", "topic", "partitions"),
        "records": [{**content_json(traced.record), **_provenance(traced)} for traced in seen.records],
        "notes": seen.notes,
    }


def _provenance(traced: TracedRecord) -> dict[str, Any]:
    return {name: to_builtins(getattr(traced, name)) for name in traced.__struct_fields__ if name != "record"}


def export_lines(seen: TopicRecords) -> Iterator[str]:
    """Yields each record as a line of JSON. The file is a sample: it has no provenance."""
    for traced in seen.records:
        line = {"cluster": seen.cluster, "topic": seen.topic, **content_json(traced.record)}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def bytes_json(value: bytes | None) -> dict[str, str] | None:
    if value is None:
        return None
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def content_json(
    record: ConsumerRecord, tree: Callable[[bytes | None], dict[str, str] | None] = bytes_json
) -> dict[str, Any]:
    """Returns one record of a topic; `tree` says how bytes are written."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": tree(record.key),
        "value": tree(record.value),
        "headers": [{"name": name, "value": tree(value)} for name, value in record.headers],
    }


_TOPICS = (
    Column("TOPIC"),
    Column("PARTITIONS", right=True, spare=2),
    Column("OFFSETS", right=True, spare=1),
    Column("WRITTEN BY"),
)
_COPIED = (
    Column("PARTITION"),
    Column("FLOW", spare=1),
    Column("FROM", spare=4),
    Column("RECORDS", right=True, spare=3),
    Column("LAST COPIED"),
    Column("COMMITTED", spare=2),
)


def cluster_screen(held: ClusterContent, width: int | None) -> Iterator[Text]:
    """Yields the topics of a cluster, and the partitions that flows copied."""
    yield Text.assemble(
        (held.cluster, NAME), f": cluster id {held.cluster_id}, {plural(held.brokers, 'broker')}"
    )
    yield Text()
    rows: list[Row] = [
        (
            Cell(topic.topic, NAME),
            count(topic.partitions),
            count(topic.offsets),
            ", ".join(topic.flows) or f"clients of {held.cluster}",
        )
        for topic in held.topics
    ]
    yield from table(_TOPICS, rows, width)
    if held.hidden:
        yield Text(f"({plural(held.hidden, 'internal topic')} not shown)", DIM)
    if held.copied:
        yield Text()
        yield from table(_COPIED, [_copied(progress) for progress in held.copied], width)
    for note in held.notes:
        yield Text.assemble(("note: ", "yellow"), note)


def _copied(progress: MirrorProgress) -> Row:
    return (
        Cell(f"{progress.destination_topic}-{progress.partition}", NAME),
        progress.flow,
        f"{progress.source} {progress.topic}",
        count(progress.records),
        moment(progress.last_timestamp_ms),
        moment(progress.last_commit_ms),
    )
