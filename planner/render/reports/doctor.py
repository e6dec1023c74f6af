"""`repl doctor` as people read it: brokers, features, rights, and what a flow can do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from planner.model.observed import (
    BrokerFeature,
    BrokerReport,
    ClusterReport,
)
from planner.render.readable import plural
from planner.render.reports.fields import json_fields
from planner.render.table import Cell, Column, Row, table

_BROKERS = (
    Column("BROKER"),
    Column("ADDRESS"),
    Column("OFFERS THE REQUESTS OF"),
    Column("ROUND TRIP", right=True),
)
_FEATURES = (
    Column("FEATURE"),
    Column("SINCE"),
    Column(""),
    Column("WITHOUT IT", spare=1),
    Column("WHY", spare=2),
)
_RIGHTS = (Column("RIGHT ON THE CLUSTER"), Column(""), Column("NEEDED TO"))


def screen(report: ClusterReport, width: int | None) -> Iterator[Text]:
    yield Text.assemble((report.name, "bold"), f": cluster id {report.cluster_id}")
    yield Text()
    yield from table(_BROKERS, [_broker(broker) for broker in report.brokers], width)
    yield Text()
    yield from table(_FEATURES, [_feature(feature) for feature in report.features], width)
    yield Text()
    allowed = {True: Cell("yes", "green"), False: Cell("no", "yellow"), None: Cell("?", "dim")}
    rights = [(right.operation, allowed[right.allowed], right.used_to) for right in report.rights]
    yield from table(_RIGHTS, rights, width)
    yield Text()
    yield from _topic_rights(report, width)
    if report.clock_offset_ms is None:
        yield Text(f"Clock: not known ({report.clock_why})")
    else:
        yield Text(f"Clock: {report.clock_offset_ms:+.0f} ms against this machine's")
    if report.service is not None:
        yield Text()
        yield Text(
            f"This is {report.service.name}, by its address. From its documentation, not from its brokers:"
        )
        for limit in report.service.limits:
            yield Text(f"  {limit.what}: {limit.hint}")
            yield Text(f"    {limit.source}", "dim")
        yield Text()
    for what, able in (("from", report.can_be_source), ("to", report.can_be_destination)):
        yield Text.assemble(f"A flow {what} {report.name}: ", ("yes", "green") if able else ("no", "red"))


_TOPICS = (Column("TOPIC"), Column("USED AS"), Column("MISSING RIGHT"), Column("NEEDED TO", spare=1))
_TOPICS_SHOWN = 20


def _topic_rights(report: ClusterReport, width: int | None) -> Iterator[Text]:
    """Yields how many topics have all rights that flows need, and a row for each right that is missing."""
    if not report.topic_rights:
        return
    lacking = [topic for topic in report.topic_rights if topic.missing is None or topic.missing]
    able = len(report.topic_rights) - len(lacking)
    yield Text(f"Rights on the topics that flows use: all on {able:,} of {len(report.topic_rights):,}")
    rows: list[Row] = []
    for rights in lacking[:_TOPICS_SHOWN]:
        uses = ", ".join(rights.uses)
        if rights.missing is None:
            rows.append((rights.topic, uses, Cell("?", "dim"), rights.why))
            continue
        rows += [
            (rights.topic, uses, Cell(operation, "yellow"), used_to)
            for operation, used_to in rights.missing.items()
        ]
    if rows:
        yield from table(_TOPICS, rows, width)
    if len(lacking) > _TOPICS_SHOWN:
        yield Text(f"… and {plural(len(lacking) - _TOPICS_SHOWN, 'topic')} more: --json shows all")
    yield Text()


def _broker(broker: BrokerReport) -> Row:
    if broker.round_trip_ms is None:
        return str(broker.node), broker.address, Cell(f"does not answer: {broker.why}", "red"), "–"
    return str(broker.node), broker.address, f"Kafka {broker.release}", f"{broker.round_trip_ms:.1f} ms"


def _feature(feature: BrokerFeature) -> Row:
    if not feature.why:
        return feature.name, feature.since, Cell("yes", "green"), "", ""
    parts = (feature.as_source, feature.as_destination, feature.otherwise)
    without = "; ".join(part for part in parts if part)
    style = "red" if feature.required else "yellow"
    return feature.name, feature.since, Cell("no", style), without, f"broker {feature.broker}: {feature.why}"


def as_json(report: ClusterReport) -> dict[str, Any]:
    service = report.service
    return {
        "cluster": report.name,
        "cluster_id": report.cluster_id,
        "brokers": [
            {
                **_told(broker, "node", "address", "release", "round_trip_ms", "versions", "why"),
                "versions": None
                if broker.versions is None
                else {str(api): list(span) for api, span in sorted(broker.versions.items())},
            }
            for broker in report.brokers
        ],
        "features": [
            {
                **_told(feature, "name", "since"),
                "supported": not feature.why,
                **_told(feature, "required", "as_source", "as_destination", "otherwise", "broker", "why"),
            }
            for feature in report.features
        ],
        "rights": [
            {**json_fields(right, "operation", "allowed"), "needed_to": right.used_to}
            for right in report.rights
        ],
        "topic_rights": [_told(topic, "topic", "uses", "missing", "why") for topic in report.topic_rights],
        "service": None
        if service is None
        else {
            "name": service.name,
            "limits": [json_fields(limit, "what", "hint", "source") for limit in service.limits],
        },
        **_told(report, "clock_offset_ms", "clock_why", "can_be_source", "can_be_destination"),
    }


def _told(value: Any, *names: str) -> dict[str, Any]:
    """Returns these fields; a text that is empty is null."""
    return {name: None if field == "" else field for name, field in json_fields(value, *names).items()}
