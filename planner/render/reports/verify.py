"""The output of `repl verify`: how both sides of a flow differ, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
from rich.text import Text

from planner.render.readable import plural
from planner.render.table import Cell, Column, Row, table
from runtime.contract.views.records_view import Difference, VerificationReport, VerifiedPartition

SHOWN = 10  # differences of a partition
_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION", right=True),
    Column("COMPARED", right=True),
    Column("OFFSETS", right=True, spare=2),
    Column("EQUAL UP TO", right=True),
    Column("DIFFERENCES", right=True),
    Column("AT THE DESTINATION", spare=3),
    Column("LEFT OUT", spare=1),
)


def screen(seen: VerificationReport, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen. Without a `width` it is as wide as needed."""
    yield Text(f"{seen.flow}: {seen.source} → {seen.destination}", style="bold")
    columns = [replace(one, name=seen.unit.upper()) if one.name == "OFFSETS" else one for one in _COLUMNS]
    yield from table(columns, [_row(one) for one in seen.partitions], width)
    for one in seen.partitions:
        yield from _details(one, seen)
    yield Text("")
    yield _summary(seen)


def document(seen: VerificationReport) -> dict[str, Any]:
    return {"equal": not seen.different and not seen.unread, **msgspec.to_builtins(seen)}


def _row(one: VerifiedPartition) -> Row:
    differences = len(one.differences)
    found = f"{differences}{'+' if one.more else ''}"
    left_out = [
        plural(one.replayed, "record") + " replayed by salvage" if one.replayed else "",
        plural(one.kept_back, "record") + " filtered by provenance" if one.kept_back else "",
        plural(one.filtered, "record") + " filtered by the transform" if one.filtered else "",
        plural(one.given_up, "record") + " given up" if one.given_up else "",
        plural(one.others, "record") + " written by others" if one.others else "",
        plural(one.compacted, "record") + " that compaction left at one side" if one.compacted else "",
    ]
    return [
        one.topic,
        str(one.partition),
        f"{one.compared:,}",
        f"{one.low}…{one.end}",
        "-" if one.unread and one.equal_up_to == one.low else str(one.equal_up_to),
        Cell(found, "red" if differences else "green"),
        one.destination_topic,
        ", ".join(filter(None, left_out)),
    ]


def _details(one: VerifiedPartition, seen: VerificationReport) -> Iterator[Text]:
    place = f"{one.topic}-{one.partition}"
    if one.unread:
        yield Text(f"{place} could not be compared: {one.unread}", style="red")
    for stretch in one.not_comparable:
        yield Text(
            f"{place} is not comparable from {stretch.low} to {stretch.end - 1}: {stretch.why}",
            style="yellow",
        )
    for difference in one.differences[:SHOWN]:
        yield Text(f"{place}: {sentence(difference, seen)}", style="red")
    if (left := len(one.differences) - SHOWN) > 0 or one.more:
        more = "more" if one.more else f"{left} more"
        yield Text(f"{place}: and {more}; --json shows up to a hundred of each stretch", style="dim")


def sentence(found: Difference, seen: VerificationReport) -> str:
    """Returns a difference as a sentence."""
    of_a_file = seen.unit != "offsets"  # its lines have no key
    key = f" (key {found.key})" if found.key and not (of_a_file and found.key == "null") else ""
    record = f"source {seen.unit.removesuffix('s')} {found.source_offset}{key}"
    inside = f" in {found.file}" if found.file and not of_a_file else ""
    place = f"offset {found.destination_offset}{inside} at {seen.destination}"
    why = f": {found.why}" if found.why else ""
    match found.kind:
        case "missing" if seen.in_files:
            return f"missing: {record} is in no file at {seen.destination}{why}"
        case "missing":
            expected = (
                f" at offset {found.expected} of {seen.destination}" if found.expected is not None else ""
            )
            return f"missing: {record} is not{expected or f' at {seen.destination}'}{why}"
        case "doubled":
            return f"doubled: {record} is at {place} once more"
        case "changed":
            return f"changed: {' and '.join(found.fields)} of {record}, {place}{why}"
        case "swapped":
            order = f"not at {found.expected}" if found.expected is not None else found.why
            return f"swapped: {record} is at {place}, {order}"
        case "moved":
            return f"moved: {record} is at {place}{why}"
        case "foreign":
            return f"foreign: {place}{key} is {found.why}"
        case "damaged":
            return f"damaged: {found.file} at {seen.destination}, {found.why}"


def _summary(seen: VerificationReport) -> Text:
    compared = sum(one.compared for one in seen.partitions)
    records = f"{plural(compared, 'record')} compared in {seen.took_ms / 1000:.1f} s"
    if seen.sample < 100:
        records += f", a sample of {seen.sample:g}%"
    differences = sum(len(one.differences) for one in seen.partitions)
    if differences:
        more = " or more" if any(one.more for one in seen.partitions) else ""
        return Text(f"Different: {plural(differences, 'difference')}{more}, {records}.", style="bold red")
    if seen.unread:
        return Text(f"No difference, but not everything could be compared; {records}.", style="bold yellow")
    if not compared:
        return Text("Nothing to compare.", style="bold yellow")
    left = any(one.not_comparable for one in seen.partitions)
    text = f"Equal, as far as comparable: {records}." if left else f"Equal: {records}."
    return Text(text, style="bold green")
