"""The output of `repl offsets`: a group at both sides of a flow, or what became of stored offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from planner.render.readable import iso_time
from planner.render.table import Cell, Column, table
from runtime.contract.results.groups import (
    BY_TIME,
    GroupOffset,
    GroupOffsets,
    OffsetTranslation,
    UntranslatedOffset,
)

_STYLES = {
    "translated": "green",
    "waiting": "cyan",
    "pending": "yellow",
    "refused": "yellow",
    "unmapped": "red",
}
_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION", right=True),
    Column("SOURCE", right=True),
    Column("TRANSLATION", right=True),
    Column("BY"),
    Column("DESTINATION", right=True),
    Column("STATE"),
    Column("AT THE DESTINATION", spare=2),
    Column("WHY", spare=1),
)
NO_MEMBERS = ("", "Empty", "Dead")


def screen(seen: GroupOffsets, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen. Without a `width` it is as wide as needed."""
    yield Text(
        f"{seen.group} over {seen.flow}: {seen.source_cluster} → {seen.destination_cluster}", style="bold"
    )
    there = f"does not answer ({seen.source_why}); its offsets are from the checkpoints"
    yield Text(f"  at {seen.source_cluster}: {_group(seen.state_there) if seen.source_answers else there}")
    yield Text(f"  at {seen.destination_cluster}: {_group(seen.state_here)}")
    if seen.unsynced:
        yield Text(f"  {seen.unsynced}: nothing is written at {seen.destination_cluster}")
    yield Text("")
    if not seen.partitions:
        yield Text("It committed nothing on the flow's topics.")
        return
    yield from table(_COLUMNS, [_row(partition) for partition in seen.partitions], width)


def _group(state: str) -> str:
    if not state:
        return "no such group"
    return "no member is connected" if state in NO_MEMBERS else f"members are connected ({state})"


def _row(partition: GroupOffset) -> list[Cell | str]:
    why = [partition.why] if partition.why else []
    if partition.clamped:
        why.append("clamped to what the destination still holds")
    if partition.by == BY_TIME:
        why.append("by the time of its record: some may be read again, none is skipped")
    elif not partition.exact:
        why.append("both sides write the topic: some records are read again, none is skipped")
    if partition.as_of_ms is not None:
        why.append(f"as of {iso_time(partition.as_of_ms)}")
    return [
        partition.topic,
        str(partition.partition),
        _number(partition.source),
        _number(partition.translation),
        partition.by or "-",
        _number(partition.committed),
        Cell(partition.state, _STYLES.get(partition.state, "")),
        partition.destination_topic,
        "; ".join(why),
    ]


def _number(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def translation_lines(result: OffsetTranslation) -> Iterator[str]:
    """Yields the lines about a translated file."""
    left = sum(result.untranslated.values())
    way = f"{result.flow}: {result.cluster} → {result.other_cluster}"
    yield f"{way}: {result.translated:,} of {result.translated + left:,} stored offsets translated"
    if result.source_why:
        yield (
            f"  {result.cluster} does not answer ({result.source_why}): that its topics are those that were"
            " copied is not checked"
        )
    if left and result.form == "spark":
        yield "  no checkpoint was written: a query would lose or repeat records"
    for reason, number in sorted(result.untranslated.items()):
        examples = [_example(example) for example in result.examples if example.reason == reason]
        yield f"  {reason}: {number:,}"
        yield from (f"    {example}" for example in examples)
        if number > len(examples):
            yield f"    and {number - len(examples):,} more: --untranslated FILE lists all"


def _example(offset: UntranslatedOffset) -> str:
    line = f"line {offset.line}: " if offset.line else ""
    stored = f"{offset.topic}-{offset.partition} " if offset.topic else ""
    at = f"at {offset.offset}: " if offset.offset is not None else ""
    return f"{line}{stored}{at}{offset.why}"
