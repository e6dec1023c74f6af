"""What each page shows of a reading, and how its template writes numbers, times and states.

Rows are chosen, sorted with the worst first, and cut to one page. Everything is escaped, also characters that
a page would hide or reverse. Times are written in UTC for a reader without JavaScript; ui.js rewrites them in
the viewer's zone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from planner.model.drill import DrillReport
from planner.render import readable
from planner.render.drawing import ACROSS_THE_SCREEN, DOWN_THE_SCREEN, Drawing
from planner.render.page import page_environment
from planner.render.readable import one_line
from planner.render.reports.drill import rpo_text, rto_text
from planner.render.reports.loss import verdict_text
from planner.render.status import BAD, BUSY, GOOD, QUIET, WAITS, state_style, verdict_style
from planner.ui.feed import HEIGHT, WIDTH, Chart, Hour, Reading
from runtime.contract.results.status import (
    STATES,
    FlowHealth,
    ReplicationStatus,
)

Item = TypeVar("Item")
ROWS = 100  # of one page of a list
# More flows are drawn as one arrow for each pair of clusters: a wide screen and a phone.
MOST_ARROWS, MOST_ARROWS_DOWN = 12, 3
MOST_FOUND = 50
_WORST_FIRST = {style: rank for rank, style in enumerate((BAD, WAITS, BUSY, GOOD, QUIET))}


class NotFound(Exception):
    """There is no such flow, topic, job or page; the text says so."""


def severity(state: str) -> int:
    """Returns 0 for the worst states, and more for better ones."""
    return _WORST_FIRST[state_style(state)]


@dataclass(frozen=True, slots=True)
class Rows(Generic[Item]):
    """One page of a list. `number` counts from 1."""

    items: Sequence[Item]
    number: int
    pages: int
    total: int


Query = Mapping[str, str]  # the parameters of a URL
NOTHING_ASKED: Query = {}


def rows(items: Sequence[Item], query: Query = NOTHING_ASKED, size: int = ROWS) -> Rows[Item]:
    """Returns the page of a list that is asked for; a number that is too large means the last one."""
    pages = max(-(-len(items) // size), 1)
    text = query.get("page", "1")
    number = min(max(int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 1, 1), pages)
    return Rows(items[(number - 1) * size : number * size], number, pages, len(items))


@dataclass(frozen=True, slots=True)
class DrawnFlows:
    """An arrow of the drawing: one flow, or all flows between two clusters."""

    name: str
    source_cluster: str
    destination_cluster: str
    flows: tuple[FlowHealth, ...]

    @property
    def worst(self) -> FlowHealth:
        return min(self.flows, key=_flow_order)

    @property
    def records_per_s(self) -> float | None:
        rates = [flow.records_per_s for flow in self.flows if flow.records_per_s is not None]
        return sum(rates) if rates else None

    @property
    def lag_ms(self) -> int | None:
        """Returns the longest lag; None where that of any flow is unknown."""
        lags = [flow.lag_ms for flow in self.flows if flow.lag_ms is not None]
        return max(lags) if len(lags) == len(self.flows) else None

    @property
    def lag_records(self) -> int | None:
        lags = [flow.lag_records for flow in self.flows if flow.lag_records is not None]
        return sum(lags) if len(lags) == len(self.flows) else None


def flows_worst_first(flows: Iterable[FlowHealth]) -> list[FlowHealth]:
    return sorted(flows, key=_flow_order)


def _flow_order(flow: FlowHealth) -> tuple[int, bool, int, str]:
    return (severity(flow.state), flow.rpo_met is not False, -(flow.lag_ms or 0), flow.name)


def drawings(status: ReplicationStatus) -> list[tuple[str, Drawing[DrawnFlows]]]:
    """Returns the topology in two layouts. The page's style shows the one that fits."""
    names = [cluster.name for cluster in status.clusters]
    layouts = ((ACROSS_THE_SCREEN, MOST_ARROWS), (DOWN_THE_SCREEN, MOST_ARROWS_DOWN))
    return [(layout.css, layout.draw(names, _arrows(status.flows, most))) for layout, most in layouts]


def _arrows(flows: Sequence[FlowHealth], most: int) -> list[DrawnFlows]:
    if len(flows) <= most:
        return [DrawnFlows(flow.name, flow.source, flow.destination, (flow,)) for flow in flows]
    pairs: dict[tuple[str, str], list[FlowHealth]] = {}
    for flow in flows:
        pairs.setdefault((flow.source, flow.destination), []).append(flow)
    return [
        DrawnFlows(some[0].name if len(some) == 1 else f"{len(some)} flows", *pair, tuple(some))
        for pair, some in sorted(pairs.items())
    ]


def overview(reading: Reading, query: Query) -> dict[str, Any]:
    """Returns the overview's values; `from` and `to` select flows where they are given."""
    status, source, destination = reading.status, query.get("from", ""), query.get("to", "")
    chosen = [
        flow
        for flow in status.flows
        if (not source or flow.source == source) and (not destination or flow.destination == destination)
    ]
    jobs = sorted(status.jobs, key=lambda job: (severity(job.state), job.name))
    return {
        "drawings": drawings(status),
        "verdict_of": {verdict.cluster: verdict for verdict in reading.verdicts},
        "cluster_of": {cluster.name: cluster for cluster in status.clusters},
        "flows": rows(flows_worst_first(chosen), query),
        "jobs": rows(jobs),
        "clusters": status.clusters,
        "source": source,
        "destination": destination,
    }


def flow_named(status: ReplicationStatus, name: str) -> FlowHealth:
    for flow in status.flows:
        if flow.name == name:
            return flow
    raise NotFound(f"There is no flow {name} in this topology.")


def flow_page(reading: Reading, hour: Hour, query: Query) -> dict[str, Any]:
    """Returns a flow and its topics: those with all `words` in their names, and in this `state`."""
    name, words, state = query.get("name", ""), query.get("words", ""), query.get("state", "")
    flow = flow_named(reading.status, name)
    topics = [
        topic
        for topic in flow.topics
        if (not state or any(each.state == state for each in topic.partitions) or topic.state == state)
        and has_words(topic.topic, words)
    ]
    topics.sort(
        key=lambda topic: (
            severity(topic.state),
            -(topic.lag_ms or 0),
            -(topic.lag_records or 0),
            topic.topic,
        )
    )
    # The job of a flow into files is beside the source, not beside the flow's destination.
    job_at = next((job.destination for job in reading.status.jobs if name in job.flows), "")
    return {
        "flow": flow,
        "job_at": job_at,
        "known": reading.known_flows.get(name),
        "trail": hour.flow(name),
        "topics": rows(topics, query),
        "words": words,
        "state": state,
    }


def topic_page(reading: Reading, hour: Hour, query: Query) -> dict[str, Any]:
    """Returns a topic of a flow and its partitions."""
    flow_name, topic = query.get("flow", ""), query.get("topic", "")
    flow = flow_named(reading.status, flow_name)
    shown = next((health for health in flow.topics if health.topic == topic), None)
    if shown is None:
        raise NotFound(f"The flow {flow_name} has no topic {topic}.")
    order = sorted(
        shown.partitions,
        key=lambda partition: (severity(partition.state), -(partition.lag_ms or 0), partition.partition),
    )
    return {
        "flow": flow,
        "topic": shown,
        "trail": hour.topic(flow_name, topic),
        "partitions": rows(order, query),
        "known": reading.known_flows.get(flow_name),
    }


def job_page(reading: Reading, name: str, destination: str) -> dict[str, Any]:
    """Returns a job. `destination` tells two jobs of the same name apart."""
    for job in reading.status.jobs:
        if job.name == name and destination in ("", job.destination):
            return {
                "job": job,
                "known": reading.known_jobs.get((job.name, job.destination)),
                "flows": flows_worst_first(flow for flow in reading.status.flows if flow.name in job.flows),
            }
    raise NotFound(f"There is no job {name} in this topology.")


def has_words(name: str, words: str) -> bool:
    """Returns whether all the words are in a name, in upper or lower case."""
    return all(word in name.lower() for word in words.lower().split())


def matches(
    items: Iterable[Item], words: str, names_of: Callable[[Item], Sequence[str]] = lambda name: [str(name)]
) -> Rows[Item]:
    """Returns the items with all the words in one of their names; those whose first name begins so first."""
    if not (wanted := words.lower().split()):
        return rows([])
    chosen = [item for item in items if any(has_words(name, words) for name in names_of(item))]
    chosen.sort(key=lambda item: (not names_of(item)[0].lower().startswith(wanted[0]), names_of(item)))
    return rows(chosen, size=MOST_FOUND)


_UNKNOWN = Markup("–")
FOLDER = Path(__file__).parent
_CSS = {GOOD: "good", BUSY: "busy", WAITS: "waits", BAD: "bad", QUIET: "quiet"}
_GROUP_CSS = {
    "translated": "good",
    "waiting": "busy",
    "pending": "waits",
    "refused": "waits",
    "unmapped": "bad",
}


def clock(ms: int | None) -> Markup:
    """Returns a time element, in UTC; ui.js writes the viewer's time into it."""
    if ms is None:
        return _UNKNOWN
    element = Markup('<time datetime="{}" data-at="{}">{}</time>')
    return element.format(readable.iso_time(ms), ms, readable.moment(ms))


def since(ms: int | None, now: int) -> Markup:
    """Returns `3 s` as a time element that ui.js counts on."""
    if ms is None:
        return _UNKNOWN
    element = Markup('<time class="since" datetime="{}" data-since="{}">{}</time>')
    return element.format(readable.iso_time(ms), ms, readable.span(max(now - ms, 0)))


def drill_figures(report: DrillReport) -> str:
    """Returns the worst figures of a drill that are known, to follow `passed 3 d ago`."""
    figures = [
        f"{name} {text}"
        for name, value, text in (
            ("RTO", report.rto_s, rto_text(report)),
            ("RPO", report.rpo_records, rpo_text(report)),
        )
        if value is not None
    ]
    return f" with {' and '.join(figures)}" if figures else ""


def whole(value: float | None) -> str:
    return readable.count(round(value)) if value is not None else readable.UNKNOWN


def link(path: str, **query: object) -> str:
    """Returns a URL of these pages. Every name is in the query: a group's name may hold any character."""
    given = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def short(text: str, most: int) -> str:
    """Returns the text, cut where it is longer than `most`; escapes are whole."""
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def show_lines(text: str) -> Markup:
    """Returns a text with its line breaks, and everything else that is unsafe escaped."""
    return Markup("\n").join(one_line(line) for line in text.split("\n"))


@cache
def _environment() -> jinja2.Environment:
    made = page_environment(FOLDER / "templates")
    made.filters |= {
        "count": readable.count,
        "octets": readable.octets,
        "per_second": readable.per_second,
        "span": readable.span,
        "latency": readable.latency,
        "byte_rate": lambda value: readable.UNKNOWN if value is None else f"{readable.octets(value)}/s",
        "clock": clock,
        "words": lambda state: state.replace("_", " "),  # `caught up`
        "meaning": lambda state: STATES[state].means if state in STATES else "",
        "css": lambda state: _CSS[state_style(state)],
        "verdict_css": lambda verdict: _CSS[verdict_style(verdict)],
        "group_css": lambda state: _GROUP_CSS.get(state, "quiet"),
        "short": short,
        "rto": rto_text,
        "rpo": rpo_text,
        "show_lines": show_lines,
    }
    made.globals |= {
        "since": since,
        "link": link,
        "plural": readable.plural,
        "verdict_text": verdict_text,
        "drill_figures": drill_figures,
        "chart_of": Chart,
        "chart_span": readable.span,
        "chart_count": whole,
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
    }
    return made


def compile_templates() -> None:
    """Compiles all templates, so that no viewer waits for it."""
    for name in _environment().list_templates():
        _environment().get_template(name)


def rendered(page: str, values: Mapping[str, Any]) -> str:
    """Returns a page."""
    return _environment().get_template(f"{page}.html.j2").render(values)
