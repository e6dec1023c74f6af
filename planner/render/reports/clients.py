"""The output of `repl clients`: the producers and consumers of topics, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.text import Text

from planner.render.readable import UNKNOWN, count, per_second, plural, span
from planner.render.table import Cell, Column, Row, table
from runtime.contract.results.records import ClusterClients, ConsumerGroup, TopicClients, TopicProducer

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


def screen(seen: ClusterClients, width: int | None) -> Iterator[Text]:
    """Yields the lines of the screen."""
    yield Text.assemble((seen.cluster, "bold"), f": cluster id {seen.cluster_id}")
    consumers = [_consumer(topic, group) for topic in seen.topics for group in topic.consumers]
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


def _consumer(topic: TopicClients, group: ConsumerGroup) -> Row:
    return (
        Cell(topic.topic, "bold"),
        group.group,
        Cell(group.state, "green" if group.members else "dim"),
        count(group.lag),
        per_second(group.records_per_s),
        ", ".join(f"{member.client_id}@{member.host} ({_few(member.partitions)})" for member in group.members)
        or "none",
    )


def _producers(topic: TopicClients, now_ms: int) -> Iterator[Row]:
    """Yields a topic's producers. The producer ids of a flow are one line."""
    flows: dict[str, list[TopicProducer]] = {}
    others: list[TopicProducer] = []
    for producer in topic.producers:
        if producer.flow is not None:
            flows.setdefault(producer.flow, []).append(producer)
        else:
            others.append(producer)
    for flow, some in flows.items():
        yield _producer(topic.topic, Cell(f"flow {flow} ({plural(len(some), 'id')})", "cyan"), some, now_ms)
    for producer in others[:MOST_PRODUCERS]:
        name = f"{producer.transactional_id} (id {producer.producer_id})" if producer.transactional_id else ""
        yield _producer(topic.topic, Cell(name or f"id {producer.producer_id}"), [producer], now_ms)
    if len(others) > MOST_PRODUCERS:
        more = f"… and {len(others) - MOST_PRODUCERS:,} more"
        yield (topic.topic, more, "", "", "")


def _producer(topic: str, name: Cell, some: Sequence[TopicProducer], now_ms: int) -> Row:
    latest = max(
        (producer.last_timestamp_ms for producer in some if producer.last_timestamp_ms is not None),
        default=None,
    )
    opened = {number for producer in some for number in producer.open_since}
    return (
        Cell(topic, "bold"),
        name,
        f"{span(max(now_ms - latest, 0))} ago" if latest is not None else UNKNOWN,
        _few(sorted({number for producer in some for number in producer.partitions})),
        f"open in {_few(sorted(opened))}" if opened else "none open",
    )


def _few(numbers: Sequence[int], most: int = 6) -> str:
    """Returns `0, 1, 2`, or `0-11` for a range."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    more = f", … {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(str(number) for number in numbers[:most]) + more


def document(seen: ClusterClients) -> dict[str, Any]:
    return {**msgspec.to_builtins(seen, str_keys=True), "limits": [LIMITS]}
