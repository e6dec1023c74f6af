"""The templates of the pages, and how they write numbers, times and states.

Everything is escaped, also characters that a page would hide or reverse. Times are written in UTC for a
reader without JavaScript; ui.js rewrites them in the viewer's zone.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from planner.model.drill import DrillReport
from planner.render import numbers
from planner.render.escape import one_line
from planner.render.reports.drill import rpo_text, rto_text
from planner.render.reports.loss import verdict_text
from planner.render.status import BAD, BUSY, GOOD, QUIET, WAITS, state_style
from planner.ui.hour import HEIGHT, WIDTH, Chart
from runtime.contract.views.status_view import STATES
from runtime.contract.views.verdict_view import Verdict

_UNKNOWN = Markup("–")
FOLDER = Path(__file__).parent
_CSS = {GOOD: "good", BUSY: "busy", WAITS: "waits", BAD: "bad", QUIET: "quiet"}
_VERDICT_CSS = {
    Verdict.SAFE: "good",
    Verdict.WITHIN_RPO: "good",
    Verdict.NOT_COPYING: "waits",
    Verdict.LOSES: "waits",
    Verdict.ENDED: "quiet",
}
_GROUP_CSS = {
    "translated": "good",
    "waiting": "busy",
    "pending": "waits",
    "refused": "waits",
    "unmapped": "bad",
}


def state_css(state: str) -> str:
    """Returns the class of a state: good, busy, waits, bad or quiet."""
    return _CSS[state_style(state)]


def verdict_css(verdict: Verdict) -> str:
    return _VERDICT_CSS.get(verdict, "bad")


def words(state: str) -> str:
    """Returns `caught up` for `caught_up`."""
    return state.replace("_", " ")


def meaning(state: str) -> str:
    """Returns what a state of a partition means; empty for other states."""
    return STATES[state].means if state in STATES else ""


def clock(ms: int | None) -> Markup:
    """Returns a time element, in UTC; ui.js writes the viewer's time into it."""
    if ms is None:
        return _UNKNOWN
    machine = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{}" data-at="{}">{}</time>').format(machine, ms, numbers.moment(ms))


def since(ms: int | None, now: int) -> Markup:
    """Returns `3 s` as a time element that ui.js counts on."""
    if ms is None:
        return _UNKNOWN
    machine = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = numbers.span(max(now - ms, 0))
    return Markup('<time class="since" datetime="{}" data-since="{}">{}</time>').format(machine, ms, text)


def drill_figures(report: DrillReport) -> str:
    """Returns the worst figures of a drill that are known, to follow `passed 3 d ago`."""
    known = [
        f"{name} {text}"
        for name, value, text in (
            ("RTO", report.rto_s, rto_text(report)),
            ("RPO", report.rpo_records, rpo_text(report)),
        )
        if value is not None
    ]
    return f" with {' and '.join(known)}" if known else ""


def rate(value: float | None) -> str:
    """Returns bytes per second."""
    return f"{numbers.octets(value)}/s" if value is not None else numbers.UNKNOWN


def whole(value: float | None) -> str:
    return numbers.count(round(value)) if value is not None else numbers.UNKNOWN


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


def _showable(value: object) -> object:
    """Escapes characters that a page would hide or reverse. Markup is this module's, and holds none."""
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_showable,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )
    made.filters |= {
        "count": numbers.count,
        "octets": numbers.octets,
        "per_second": numbers.per_second,
        "span": numbers.span,
        "latency": numbers.latency,
        "byte_rate": rate,
        "whole": whole,
        "clock": clock,
        "words": words,
        "meaning": meaning,
        "css": state_css,
        "verdict_css": verdict_css,
        "group_css": lambda state: _GROUP_CSS.get(state, "quiet"),
        "short": short,
        "rto": rto_text,
        "rpo": rpo_text,
        "show_lines": show_lines,
    }
    made.globals |= {
        "since": since,
        "link": link,
        "plural": numbers.plural,
        "verdict_text": verdict_text,
        "drill_figures": drill_figures,
        "chart_of": Chart,
        "chart_span": numbers.span,
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
