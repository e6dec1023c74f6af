"""The plan as one self-contained page: a drawing of the topology, the changes, and a search."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
from markupsafe import Markup

from planner.model.diagnostic import Severity
from planner.model.forecast import Simulation
from planner.model.plan import Action, Mode, Plan, PlannedFlow, digest
from planner.render.drawing import ACROSS_THE_SCREEN, DOWN_THE_SCREEN, Drawing, Measures, draw
from planner.render.escape import one_line
from planner.render.plan import simulation as forecasts
from planner.render.plan.words import (
    LEGEND,
    SYMBOL,
    ChangeGroup,
    ChangeSummary,
    grouped,
    has,
    shown_changes,
    summary_line,
    will,
)

LABEL = {
    Action.CREATE: "create",
    Action.UPDATE: "update",
    Action.DELETE: "destroy",
    Action.REPLACE: "replace",
    Action.NO_OP: "adopt",
    Action.FORGET: "forget",
    Action.UNKNOWN: "unknown",
}
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """A button above the changes: one action and its number of objects."""

    name: str
    symbol: str
    count: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a cluster's box shows."""

    id: str
    why_silent: str
    counts: tuple[tuple[str, str, int], ...]  # css name, symbol, how many


def html(plan: Plan, simulation: Simulation | None = None) -> str:
    """Returns the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_showable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    changes = shown_changes(plan)
    rank = list(Severity)
    return environment.get_template("plan.html.j2").render(
        plan=plan,
        title=summary_line(plan),
        digest="" if plan.mode is Mode.DRIFT else digest(plan),
        summary=ChangeSummary.of(plan.changes),
        filters=_filters(plan),
        groups=grouped(changes),
        drawings=_drawings(plan),
        clusters=_clusters(plan),
        diagnostics=sorted(plan.diagnostics, key=lambda one: rank.index(one.severity)),
        errors=sum(1 for one in plan.diagnostics if one.severity is Severity.ERROR),
        simulation=simulation,
        forecasts=forecasts,
        label=LABEL,
        legend=LEGEND,
        symbol=lambda action: SYMBOL[action].strip() or "=",
        verb=lambda group: _verb(group, plan.mode),
        unchanged=sum(1 for one in plan.changes if one.action is Action.NO_OP and not one.adopted),
    )


def _showable(value: object) -> object:
    """Escapes what a template writes: characters that a page would hide or reverse."""
    if isinstance(value, Markup):
        return Markup(one_line(value))  # noqa: S704 - escaped already; escapes hold no markup
    return one_line(value) if isinstance(value, str) else value


def _verb(group: ChangeGroup, mode: Mode) -> str:
    return has(group.action) if mode is Mode.DRIFT else will(group.action)


def _filters(plan: Plan) -> list[ChangeFilter]:
    counted = Counter(one.action for one in shown_changes(plan))
    return [
        ChangeFilter(LABEL[action], SYMBOL[action].strip() or "=", counted[action])
        for action in LABEL
        if counted[action]
    ]


def _drawings(plan: Plan) -> list[tuple[str, Drawing[PlannedFlow]]]:
    """Returns the topology in two layouts. The page's style shows the one that fits."""
    names = {*plan.connections, *plan.clusters, *_silent(plan)}
    layouts: list[tuple[str, Measures]] = [("wide", ACROSS_THE_SCREEN), ("tall", DOWN_THE_SCREEN)]
    flows = _drawn_flows(plan)
    return [(css, draw(names, flows, measures)) for css, measures in layouts]


def _drawn_flows(plan: Plan) -> list[PlannedFlow]:
    """Returns the flows with what they write to as destination: files are an end of their own."""
    return [replace(one, destination_cluster=one.endpoint or one.destination_cluster) for one in plan.flows]


def _silent(plan: Plan) -> dict[str, str]:
    """Returns the clusters that did not answer, without objects that are unknown by address."""
    return {name: why for name, why in plan.unknown.items() if "." not in name}


def _clusters(plan: Plan) -> dict[str, ClusterView]:
    counted: dict[str, Counter[Action]] = {}
    for one in shown_changes(plan):
        if one.address.cluster is not None and one.action is not Action.UNKNOWN:
            counted.setdefault(one.address.cluster, Counter())[one.action] += 1
    silent = _silent(plan)
    names = {
        *plan.connections,
        *plan.clusters,
        *silent,
        *(end for flow in _drawn_flows(plan) for end in (flow.source_cluster, flow.destination_cluster)),
    }
    return {
        name: ClusterView(
            id=plan.clusters.get(name, ""),
            why_silent=silent.get(name, ""),
            counts=tuple(
                (LABEL[action], SYMBOL[action].strip() or "=", counted[name][action])
                for action in LABEL
                if counted.get(name, Counter())[action]
            ),
        )
        for name in sorted(names)
    }
