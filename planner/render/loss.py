"""What a failover costs, as text: a line a flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from planner.render.status_words import count, moment, plural, span
from runtime.contract.seen_loss import FlowLoss


def flow_lines(losses: Sequence[FlowLoss], now_ms: int) -> Iterator[Text]:
    longest = max((len(one.flow) for one in losses), default=0)
    for one in losses:
        style = "" if one.records == 0 else "yellow"
        yield Text.assemble(
            ("  flow.", ""), (f"{one.flow:<{longest}}", "bold"), ("  ", ""), (_cost(one, now_ms), style)
        )


def _cost(one: FlowLoss, now_ms: int) -> str:
    if not one.destination_answers:
        return f"not known: {one.destination} does not answer, and nothing can be done there"
    if one.records is None or one.as_of_ms is None:
        return f"not known: where {one.source} ended was never told"
    behind = f"{plural(one.records, 'record')}, {span(one.ms) if one.ms is not None else 'some time'}"
    if one.source_answers and not one.unheard:
        return f"{behind} behind now: {one.source} answers"
    since = f" ({span(max(now_ms - one.as_of_ms, 0))} ago)"
    unheard = (
        f"; of {count(one.unheard)} of {plural(one.partitions, 'partition')} nothing is known"
        if one.unheard
        else ""
    )
    return f"loses at least {behind}, as of {moment(one.as_of_ms)}{since}{unheard}"
