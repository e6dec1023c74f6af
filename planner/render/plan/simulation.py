"""A simulation as a table: its columns, its rows, and the remarks below it."""

from collections.abc import Iterator

from rich.text import Text

from planner.model.forecast import FlowForecast, Simulation
from planner.render.readable import UNKNOWN, count, octets, one_line, per_second, plural, span
from planner.render.table import Column, table

NEVER = "never"


def heading(simulation: Simulation) -> str:
    """Returns what was assumed."""
    rates = {one.rate for one in simulation.flows}
    each = f"{octets(max(rates, default=0))}/s a flow"
    bounded = ", less where its rate_limit is lower" if len(rates) > 1 else ""
    return f"Simulation: {each}{bounded}; the link down for {_outage(simulation)}"


def columns(simulation: Simulation) -> tuple[Column, ...]:
    """Returns the columns of the table."""
    return (
        Column("FLOW"),
        Column("TOPICS", right=True, spare=4),
        Column("WRITTEN", right=True, spare=1),
        Column("TO COPY", right=True),
        Column("TAKES", right=True),
        Column(f"LAG AFTER {_outage(simulation)}", right=True),
        Column("CATCH-UP", right=True),
        Column("FIRST LOSS AFTER", right=True),
        Column("EGRESS A DAY", right=True, spare=2),
    )


def cells(one: FlowForecast) -> list[str]:
    """Returns the row of a flow."""
    if one.why:
        return [one.flow, *[UNKNOWN] * 8]
    return [
        one.flow,
        f"{one.topics:,}",
        _both(per_second(one.records_per_s), one.bytes_per_s, "/s"),
        _both(count(one.copy_records), one.copy_bytes),
        _duration(one, one.copy_ms),
        _both(count(one.outage_records), one.outage_bytes),
        _duration(one, one.after_outage_ms),
        NEVER if one.loss_ms is None else span(one.loss_ms),
        octets(one.bytes_a_day),
    ]


def remarks(simulation: Simulation) -> list[str]:
    """Returns what needs attention, one sentence a flow."""
    found = []
    for one in simulation.flows:
        if one.why:
            found.append(f"flow.{one.flow}: nothing is known of it, because {one.why}")
        if one.keeps_up is False:
            found.append(
                f"flow.{one.flow}: {one.source} is written at {octets(one.bytes_per_s)}/s, faster than it"
                f" copies ({octets(one.rate)}/s): the flow never catches up"
            )
        if one.lost_records:
            found.append(
                f"flow.{one.flow}: an outage of {span(one.outage_ms)} loses about"
                f" {plural(one.lost_records, 'record')}: {one.source} deletes records of {one.loss_topic}"
                f" after {span(one.loss_ms)}; a longer retention.ms or retention.bytes keeps them"
            )
    return found


def text(simulation: Simulation, width: int | None) -> Iterator[Text]:
    """Yields the lines for the terminal."""
    yield Text(heading(simulation), "bold")
    yield Text()
    yield from table(columns(simulation), [cells(one) for one in simulation.flows], width)
    notes = remarks(simulation)
    if notes:
        yield Text()
    yield from (Text(f"! {one_line(note)}", "yellow") for note in notes)


def _outage(simulation: Simulation) -> str:
    return span(max((one.outage_ms for one in simulation.flows), default=0))


def _both(records: str, octets_: float | None, suffix: str = "") -> str:
    return records if octets_ is None else f"{records} ({octets(octets_)}{suffix})"


def _duration(one: FlowForecast, ms: int | None) -> str:
    if ms is not None:
        return span(ms)
    return NEVER if one.keeps_up is False else UNKNOWN
