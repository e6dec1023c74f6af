"""The output of `repl verify`: how both sides of a flow differ, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
from rich.text import Text

from planner.render.readable import plural
from planner.render.table import Cell, Column, Row, table
from runtime.contract.results.records import Difference, VerificationReport, VerifiedPartition

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
    columns = [
        replace(column, name=seen.unit.upper()) if column.name == "OFFSETS" else column for column in _COLUMNS
    ]
    yield from table(columns, [_row(partition) for partition in seen.partitions], width)
    for partition in seen.partitions:
        yield from _details(partition, seen)
    yield Text("")
    yield _summary(seen)


def document(seen: VerificationReport) -> dict[str, Any]:
    return {"equal": seen.equal, **msgspec.to_builtins(seen)}


def _row(partition: VerifiedPartition) -> Row:
    differences = len(partition.differences)
    shown = f"{differences}{'+' if partition.more else ''}"
    left_out = [
        plural(partition.replayed, "record") + " replayed by salvage" if partition.replayed else "",
        plural(partition.kept_back, "record") + " filtered by provenance" if partition.kept_back else "",
        plural(partition.filtered, "record") + " filtered by the transform" if partition.filtered else "",
        plural(partition.given_up, "record") + " given up" if partition.given_up else "",
        plural(partition.others, "record") + " written by others" if partition.others else "",
        plural(partition.compacted, "record") + " that compaction left at one side"
        if partition.compacted
        else "",
    ]
    return [
        partition.topic,
        str(partition.partition),
        f"{partition.compared:,}",
        f"{partition.low}…{partition.end}",
        "-" if partition.unread and partition.equal_up_to == partition.low else str(partition.equal_up_to),
        Cell(shown, "red" if differences else "green"),
        partition.destination_topic,
        ", ".join(filter(None, left_out)),
    ]


def _details(partition: VerifiedPartition, seen: VerificationReport) -> Iterator[Text]:
    place = f"{partition.topic}-{partition.partition}"
    if partition.unread:
        yield Text(f"{place} could not be compared: {partition.unread}", style="red")
    for stretch in partition.not_comparable:
        yield Text(
            f"{place} is not comparable from {stretch.low} to {stretch.end - 1}: {stretch.why}",
            style="yellow",
        )
    for difference in partition.differences[:SHOWN]:
        yield Text(f"{place}: {sentence(difference, seen)}", style="red")
    if (left := len(partition.differences) - SHOWN) > 0 or partition.more:
        more = "more" if partition.more else f"{left} more"
        yield Text(f"{place}: and {more}; --json shows up to a hundred of each stretch", style="dim")


def sentence(difference: Difference, seen: VerificationReport) -> str:
    """Returns a difference as a sentence."""
    of_a_file = seen.unit != "offsets"  # its lines have no key
    key = (
        f" (key {difference.key})" if difference.key and not (of_a_file and difference.key == "null") else ""
    )
    record = f"source {seen.unit.removesuffix('s')} {difference.source_offset}{key}"
    inside = f" in {difference.file}" if difference.file and not of_a_file else ""
    place = f"offset {difference.destination_offset}{inside} at {seen.destination}"
    why = f": {difference.why}" if difference.why else ""
    match difference.kind:
        case "missing" if seen.in_files:
            return f"missing: {record} is in no file at {seen.destination}{why}"
        case "missing":
            expected = (
                f" at offset {difference.expected} of {seen.destination}"
                if difference.expected is not None
                else ""
            )
            return f"missing: {record} is not{expected or f' at {seen.destination}'}{why}"
        case "doubled":
            return f"doubled: {record} is at {place} once more"
        case "changed":
            return f"changed: {' and '.join(difference.fields)} of {record}, {place}{why}"
        case "swapped":
            order = f"not at {difference.expected}" if difference.expected is not None else difference.why
            return f"swapped: {record} is at {place}, {order}"
        case "moved":
            return f"moved: {record} is at {place}{why}"
        case "foreign":
            return f"foreign: {place}{key} is {difference.why}"
        case "damaged":
            return f"damaged: {difference.file} at {seen.destination}, {difference.why}"


def _summary(seen: VerificationReport) -> Text:
    compared = sum(partition.compared for partition in seen.partitions)
    records = f"{plural(compared, 'record')} compared in {seen.took_ms / 1000:.1f} s"
    if seen.sample < 100:
        records += f", a sample of {seen.sample:g}%"
    differences = sum(len(partition.differences) for partition in seen.partitions)
    if differences:
        more = " or more" if any(partition.more for partition in seen.partitions) else ""
        return Text(f"Different: {plural(differences, 'difference')}{more}, {records}.", style="bold red")
    if seen.unread:
        return Text(f"No difference, but not everything could be compared; {records}.", style="bold yellow")
    if not compared:
        what = "Nothing could be compared." if seen.nothing_comparable else "Nothing to compare."
        return Text(what, style="bold yellow")
    left = any(partition.not_comparable for partition in seen.partitions)
    text = f"Equal, as far as comparable: {records}." if left else f"Equal: {records}."
    return Text(text, style="bold green")
