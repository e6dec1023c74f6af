"""The output of `repl try`: each record before and after its transform, or why it does not travel. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from rich.text import Text

from planner.render.readable import plural
from planner.render.reports.fields import json_fields
from planner.render.reports.records import DIM, SHORT, bytes_json, header_lines, place_and_time, shown
from runtime.contract.results.transforms import Decision, TrialReport, TrialResult

_STYLES: dict[Decision, str] = {
    "travels": "green",
    "tombstone": "yellow",
    "filtered": "yellow",
    "quarantined": "red",
    "stops": "red",
}
_WORDS: dict[Decision, str] = {
    "travels": "travels",
    "tombstone": "travels as a tombstone, without its headers: where is not true",
    "filtered": "does not travel: where is not true",
    "quarantined": "would be quarantined",
    "stops": "would stop its partition",
}


def screen(report: TrialReport, *, full: bool = False) -> Iterator[Text]:
    """Yields the records with their decisions, and how many there are of each."""
    limit = None if full else SHORT
    for result in report.results:
        yield from _result(result, limit)
    if not report.results:
        yield Text(f"No record of flow.{report.flow} at {report.source}", DIM)
        return
    counts = ", ".join(
        f"{count} {decision if decision != 'stops' else 'bad'}"
        for decision in get_args(Decision)
        if (count := report.count(decision))
    )
    yield Text(
        f"{plural(len(report.results), 'record')} of flow.{report.flow} at {report.source}: {counts}",
        DIM,
    )


def _result(result: TrialResult, limit: int | None) -> Iterator[Text]:
    record = result.record
    same = result.decision == "travels" and not result.changed
    why = f": {result.why}" if result.why else ", as it is" if same else ""
    yield place_and_time(record, f"{_WORDS[result.decision]}{why}", _STYLES[result.decision])
    yield Text.assemble(("  key    ", DIM), shown(record.key, limit))
    yield Text.assemble(("  before " if result.changed else "  value  ", DIM), shown(record.value, limit))
    if result.changed:
        yield Text.assemble(("  after  ", DIM), shown(result.after, limit))
    yield from header_lines(record, limit)


def document(report: TrialReport) -> dict[str, Any]:
    """Returns the records with their decisions; bytes are as in `repl read --json`."""
    return {
        "flow": report.flow,
        "source": report.source,
        "counts": {decision: report.count(decision) for decision in get_args(Decision)},
        "records": [_result_json(result) for result in report.results],
    }


def _result_json(result: TrialResult) -> dict[str, Any]:
    record = result.record
    return {
        **json_fields(record, "topic", "partition", "offset", "timestamp_ms", "appended"),
        "key": bytes_json(record.key),
        "value": bytes_json(record.value),
        "headers": [{"name": name, "value": bytes_json(value)} for name, value in record.headers],
        "decision": result.decision,
        "why": result.why,
        "after": bytes_json(result.after),
    }
