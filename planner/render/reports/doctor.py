"""`repl doctor` as people read it: brokers, features, rights, and what a flow can do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from planner.model.observed import (
    BrokerReport,
    ClusterReport,
    FeatureReport,
)
from planner.render.readable import plural
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
    for one in lacking[:_TOPICS_SHOWN]:
        uses = ", ".join(one.uses)
        if one.missing is None:
            rows.append((one.topic, uses, Cell("?", "dim"), one.why))
            continue
        rows += [
            (one.topic, uses, Cell(operation, "yellow"), used_to)
            for operation, used_to in one.missing.items()
        ]
    if rows:
        yield from table(_TOPICS, rows, width)
    if len(lacking) > _TOPICS_SHOWN:
        yield Text(f"… and {plural(len(lacking) - _TOPICS_SHOWN, 'topic')} more: --json shows all")
    yield Text()


def _broker(one: BrokerReport) -> Row:
    if one.round_trip_ms is None:
        return str(one.node), one.address, Cell(f"does not answer: {one.why}", "red"), "–"
    return str(one.node), one.address, f"Kafka {one.release}", f"{one.round_trip_ms:.1f} ms"


def _feature(one: FeatureReport) -> Row:
    feature = one.feature
    if not one.why:
        return feature.name, feature.since, Cell("yes", "green"), "", ""
    parts = (feature.as_source, feature.as_destination, feature.otherwise)
    without = "; ".join(part for part in parts if part)
    style = "red" if feature.required else "yellow"
    return feature.name, feature.since, Cell("no", style), without, f"broker {one.broker}: {one.why}"


def as_json(report: ClusterReport) -> dict[str, Any]:
    return {
        "cluster": report.name,
        "cluster_id": report.cluster_id,
        "brokers": [
            {
                "node": broker.node,
                "address": broker.address,
                "release": broker.release or None,
                "round_trip_ms": broker.round_trip_ms,
                "versions": None
                if broker.versions is None
                else {str(api): list(span) for api, span in sorted(broker.versions.items())},
                "why": broker.why or None,
            }
            for broker in report.brokers
        ],
        "features": [
            {
                "name": feature.feature.name,
                "since": feature.feature.since,
                "supported": not feature.why,
                "required": feature.feature.required,
                "as_source": feature.feature.as_source or None,
                "as_destination": feature.feature.as_destination or None,
                "otherwise": feature.feature.otherwise or None,
                "broker": feature.broker or None,
                "why": feature.why or None,
            }
            for feature in report.features
        ],
        "rights": [
            {"operation": right.operation, "allowed": right.allowed, "needed_to": right.used_to}
            for right in report.rights
        ],
        "topic_rights": [
            {
                "topic": topic.topic,
                "uses": list(topic.uses),
                "missing": None if topic.missing is None else dict(topic.missing),
                "why": topic.why or None,
            }
            for topic in report.topic_rights
        ],
        "service": None
        if report.service is None
        else {
            "name": report.service.name,
            "limits": [
                {"what": limit.what, "hint": limit.hint, "source": limit.source}
                for limit in report.service.limits
            ],
        },
        "clock_offset_ms": report.clock_offset_ms,
        "clock_why": report.clock_why or None,
        "can_be_source": report.can_be_source,
        "can_be_destination": report.can_be_destination,
    }
