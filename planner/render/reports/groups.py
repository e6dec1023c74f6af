"""The output of `repl clients`, `repl offsets` and `repl locate`, as text and as JSON. Pure.

The producers and consumers of topics, a group at both sides of a flow, and where a record is on the other
side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec
from rich.text import Text

from planner.render.readable import UNKNOWN, count, per_second, plural, span
from planner.render.reports.applies import when
from planner.render.table import Cell, Column, Row, table
from runtime.contract.views.groups_view import (
    BY_TIME,
    GroupOffsetsView,
    GroupOffsetView,
    LocatedRecord,
    LocateResult,
)
from runtime.contract.views.records_view import ClusterClients, ConsumerGroup, TopicClients, TopicProducer

MOST_PRODUCERS = 10  # of one topic; all of them with --json
LIMITS = (
    "Kafka does not tell a producer's client id or host, nor a producer without idempotence; "
    "consumers that assign partitions themselves and commit nothing are not seen."
)
_CONSUMERS = (
    Column("TOPIC"),
    Column("GROUP"),
    Column("STATE", spare=1),
    Column("LAG", right=True),
    Column("RATE", right=True, spare=2),
    Column("MEMBERS"),
)
_PRODUCERS = (
    Column("TOPIC"),
    Column("PRODUCER"),
    Column("LAST RECORD", right=True),
    Column("PARTITIONS", spare=1),
    Column("TRANSACTION", spare=2),
)


def clients_screen(seen: ClusterClients, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen."""
    yield Text.assemble((seen.cluster, "bold"), f": cluster id {seen.cluster_id}")
    consumers = [_consumer(topic, one) for topic in seen.topics for one in topic.consumers]
    producers = [row for topic in seen.topics for row in _producers(topic, seen.at_ms)]
    yield Text()
    if consumers:
        yield from table(_CONSUMERS, consumers, width)
    else:
        yield Text("No group has committed offsets of these topics, or members that read them.")
    yield Text()
    if producers:
        yield from table(_PRODUCERS, producers, width)
    else:
        yield Text("No producer with an id wrote to these topics lately.")
    yield Text()
    for note in seen.notes:
        yield Text.assemble(("note: ", "yellow"), note)
    yield Text(LIMITS, "dim")


def _consumer(topic: TopicClients, one: ConsumerGroup) -> Row:
    return (
        Cell(topic.topic, "bold"),
        one.group,
        Cell(one.state, "green" if one.members else "dim"),
        count(one.lag),
        per_second(one.records_per_s),
        ", ".join(f"{member.client_id}@{member.host} ({_few(member.partitions)})" for member in one.members)
        or "none",
    )


def _producers(topic: TopicClients, now_ms: int) -> Iterator[Row]:
    """Yields a topic's producers. The producer ids of a flow are one line."""
    flows: dict[str, list[TopicProducer]] = {}
    others: list[TopicProducer] = []
    for one in topic.producers:
        if one.flow is not None:
            flows.setdefault(one.flow, []).append(one)
        else:
            others.append(one)
    for flow, some in flows.items():
        yield _producer(topic.topic, Cell(f"flow {flow} ({plural(len(some), 'id')})", "cyan"), some, now_ms)
    for one in others[:MOST_PRODUCERS]:
        name = f"{one.transactional_id} (id {one.producer_id})" if one.transactional_id else ""
        yield _producer(topic.topic, Cell(name or f"id {one.producer_id}"), [one], now_ms)
    if len(others) > MOST_PRODUCERS:
        more = f"… and {len(others) - MOST_PRODUCERS:,} more"
        yield (topic.topic, more, "", "", "")


def _producer(topic: str, name: Cell, some: Sequence[TopicProducer], now_ms: int) -> Row:
    latest = max((one.last_timestamp_ms for one in some if one.last_timestamp_ms is not None), default=None)
    opened = {number for one in some for number in one.open_since}
    return (
        Cell(topic, "bold"),
        name,
        f"{span(max(now_ms - latest, 0))} ago" if latest is not None else UNKNOWN,
        _few(sorted({number for one in some for number in one.partitions})),
        f"open in {_few(sorted(opened))}" if opened else "none open",
    )


def _few(numbers: Sequence[int], most: int = 6) -> str:
    """Returns `0, 1, 2`, or `0-11` for a range."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    more = f", … {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(str(one) for one in numbers[:most]) + more


def clients_json(seen: ClusterClients) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(seen, str_keys=True)
    return {**found, "limits": [LIMITS]}


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


def offsets_screen(seen: GroupOffsetsView, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen. Without a `width` it is as wide as needed."""
    yield Text(
        f"{seen.group} over {seen.flow}: {seen.source_cluster} → {seen.destination_cluster}", style="bold"
    )
    yield Text(f"  at {seen.source_cluster}: {_there(seen)}")
    yield Text(f"  at {seen.destination_cluster}: {_group(seen.state_here)}")
    if seen.unsynced:
        yield Text(f"  {seen.unsynced}: nothing is written at {seen.destination_cluster}")
    yield Text("")
    if not seen.partitions:
        yield Text("It committed nothing on the flow's topics.")
        return
    yield from table(_COLUMNS, [_row(one) for one in seen.partitions], width)


def offsets_json(seen: GroupOffsetsView) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(seen)
    return document


def _there(seen: GroupOffsetsView) -> str:
    if seen.source_answers:
        return _group(seen.state_there)
    return f"does not answer ({seen.source_why}); its offsets are from the checkpoints"


def _group(state: str) -> str:
    if not state:
        return "no such group"
    return "no member is connected" if state in NO_MEMBERS else f"members are connected ({state})"


def _row(one: GroupOffsetView) -> list[Cell | str]:
    why = [one.why] if one.why else []
    if one.clamped:
        why.append("clamped to what the destination still holds")
    if one.by == BY_TIME:
        why.append("by the time of its record: some may be read again, none is skipped")
    elif not one.exact:
        why.append("both sides write the topic: some records are read again, none is skipped")
    if one.as_of_ms is not None:
        why.append(f"as of {when(one.as_of_ms)}")
    return [
        one.topic,
        str(one.partition),
        _number(one.source),
        _number(one.translation),
        one.by or "-",
        _number(one.committed),
        Cell(one.state, _STYLES.get(one.state, "")),
        one.destination_topic,
        "; ".join(why),
    ]


def _number(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def location_text(located: LocatedRecord) -> str:
    """Returns the sentence."""
    place = f"{located.topic}-{located.partition} at {located.cluster}"
    if located.file is not None:
        return _in_file(located, place)
    other_place = f"{located.other_topic}-{located.partition} at {located.other_cluster}"
    record = f"offset {located.offset} of {place}"
    match located.found:
        case LocateResult.EXACT:
            return f"{record} is offset {located.other_offset} of {other_place}."
        case LocateResult.NEXT if located.reverse:
            return (
                f"{record} was not copied by {located.flow}; the next record that was came from "
                f"offset {located.other_offset} of {other_place}."
            )
        case LocateResult.NEXT:
            return (
                f"{record} was not copied (it is no record, was aborted, compacted away, or filtered); "
                f"the next copied record is offset {located.other_offset} of {other_place}."
            )
        case LocateResult.END if located.other_offset is None:
            return f"{record} was not copied, and no later record either."
        case LocateResult.END:
            return (
                f"{record} was not copied, and no later record either; the next one will be at offset "
                f"{located.other_offset} of {other_place} or later."
            )
        case LocateResult.NOT_YET:
            return f"not yet: {record} is not copied; {_through(located)}."
        case LocateResult.UNMAPPED if located.in_files:
            return f"unmapped: {record} is before the start of {located.flow}, which began at {located.low}."
        case LocateResult.UNMAPPED:
            begins = f"which begins at {located.low}"
            return f"unmapped: {record} is before the offset map of {located.flow}, {begins}."
        case LocateResult.REPLAYED:
            return f"{record} was replayed by salvage {_replayed(located, other_place)}"
        case LocateResult.NO_RECORD:
            return f"No record of {place} is as late as that."
        case other:
            assert_never(other)


def _in_file(located: LocatedRecord, place: str) -> str:
    where = f"record {located.record:,} of {located.file} at {located.other_cluster}"
    if located.found is LocateResult.EXACT:
        return f"offset {located.offset} of {place} is {where}."
    return (
        f"offset {located.offset} of {place} was not copied (it is no record, was aborted, compacted away, "
        f"or filtered); the next copied record, offset {located.other_offset}, is {where}."
    )


def _replayed(located: LocatedRecord, other_place: str) -> str:
    if located.reverse:
        return f"from offset {located.other_offset} of {other_place}."
    if located.other_offset is None:
        return f"into {other_place}; a longer --timeout finds the offset there."
    return f"to offset {located.other_offset} of {other_place}."


def location_json(located: LocatedRecord) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(located)
    return document


def _through(located: LocatedRecord) -> str:
    side = located.other_cluster if located.reverse else located.cluster
    return f"{located.flow} has replicated up to offset {located.replicated_through} at {side}"
