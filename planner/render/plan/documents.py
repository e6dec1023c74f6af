"""The plan as documents for its review: a comment on a pull request, and a self-contained page.

The comment shows destructive changes first and identical ones grouped, in a limited length. The page has a
drawing of the topology, the changes, and a search. Both, and the terminal, show a simulation as a table.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from planner.model.change import Action
from planner.model.diagnostic import Diagnostic, Severity
from planner.model.forecast import FlowForecast, Simulation
from planner.model.plan import Mode, Plan, digest
from planner.model.topology import Flow
from planner.plan.document import ChangeSummary
from planner.render.drawing import ACROSS_THE_SCREEN, DOWN_THE_SCREEN
from planner.render.page import page_environment
from planner.render.plan.words import (
    WORDS,
    Group,
    adoption_note,
    group_title,
    grouped,
    moved,
    shown_changes,
    summary_line,
    verb,
    wave_text,
)
from planner.render.readable import UNKNOWN, count, octets, one_line, per_second, plural, span
from planner.render.table import Column, table

NEVER = "never"


def simulation_heading(simulation: Simulation) -> str:
    """Returns the heading, with what was assumed."""
    return f"Simulation: {simulation_assumption(simulation)}"


def simulation_assumption(simulation: Simulation) -> str:
    """Returns what was assumed: the rate, and how long the link is down."""
    if not simulation:
        return "no flow of this plan runs"
    rates = {flow.rate for flow in simulation}
    each = f"{octets(max(rates, default=0))}/s a flow"
    bounded = ", less where its rate_limit is lower" if len(rates) > 1 else ""
    return f"{each}{bounded}; the link down for {_outage(simulation)}"


def simulation_columns(simulation: Simulation) -> tuple[Column, ...]:
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


def simulation_cells(forecast: FlowForecast) -> list[str]:
    """Returns the row of a flow."""
    if forecast.why:
        return [forecast.flow, *[UNKNOWN] * 8]
    return [
        forecast.flow,
        f"{forecast.topics:,}",
        _both(per_second(forecast.records_per_s), forecast.bytes_per_s, "/s"),
        _both(count(forecast.copy_records), forecast.copy_bytes),
        _duration(forecast, forecast.copy_ms),
        _both(count(forecast.outage_records), forecast.outage_bytes),
        _duration(forecast, forecast.after_outage_ms),
        NEVER if forecast.loss_ms is None else span(forecast.loss_ms),
        octets(forecast.bytes_a_day),
    ]


def simulation_remarks(simulation: Simulation) -> list[str]:
    """Returns what needs attention, one sentence a flow."""
    remarks = []
    for flow in simulation:
        if flow.why:
            remarks.append(f"flow.{flow.flow}: nothing is known of it, because {flow.why}")
        if flow.keeps_up is False:
            remarks.append(
                f"flow.{flow.flow}: {flow.source} is written at {octets(flow.bytes_per_s)}/s, faster than it"
                f" copies ({octets(flow.rate)}/s): the flow never catches up"
            )
        if flow.lost_records:
            remarks.append(
                f"flow.{flow.flow}: an outage of {span(flow.outage_ms)} loses about"
                f" {plural(flow.lost_records, 'record')}: {flow.source} deletes records of {flow.loss_topic}"
                f" after {span(flow.loss_ms)}; a longer retention.ms or retention.bytes keeps them"
            )
    return remarks


def simulation_text(simulation: Simulation, width: int | None) -> Iterator[Text]:
    """Yields the lines for the terminal."""
    yield Text(simulation_heading(simulation), "bold")
    if not simulation:
        return
    yield Text()
    yield from table(simulation_columns(simulation), [simulation_cells(flow) for flow in simulation], width)
    notes = simulation_remarks(simulation)
    if notes:
        yield Text()
    yield from (Text(f"! {one_line(note)}", "yellow") for note in notes)


def _outage(simulation: Simulation) -> str:
    return span(max((flow.outage_ms for flow in simulation), default=0))


def _both(records: str, octets_: float | None, suffix: str = "") -> str:
    return records if octets_ is None else f"{records} ({octets(octets_)}{suffix})"


def _duration(forecast: FlowForecast, ms: int | None) -> str:
    if ms is not None:
        return span(ms)
    return NEVER if forecast.keeps_up is False else UNKNOWN


LIMIT = 65_000  # a comment on GitHub holds 65,536 characters
HEAD_SHARE = 15_000  # of the limit, for diagnostics
NAMES_SHARE = 2_000  # for the names of one group
TEXT_SHARE = 1_000  # for one value, reason or message
_MARKUP = re.compile(r"([\\`*_|~<>\[\]#@&!$])")
# What GitHub links automatically: addresses, mail, mentions, issues and commits.
_LINKED = re.compile(r"://|www\.|@|#\d|\bGH-\d|\b(?:mailto|xmpp):|\b[0-9a-f]{7,}\b", re.IGNORECASE)

_UNFOLDED = frozenset({WORDS[Action.DELETE].title, WORDS[Action.REPLACE].title})


def markdown(plan: Plan, limit: int = LIMIT, simulation: Simulation | None = None) -> str:
    """Returns at most `limit` characters. The middle is cut, never the summary."""
    head, blocks = _head(plan), [*_blocks(plan), *_waves(plan)]
    clusters = ", ".join(f"{_text(name)} {code(cluster_id)}" for name, cluster_id in plan.clusters.items())
    planned = f"planned {_text(plan.inputs.created_at)}" + (f" against {clusters}" if clusters else "")
    approved = "" if plan.inputs.mode is Mode.DRIFT else f" · Plan digest: {code(digest(plan))}"
    tail = f"\n<sub>{planned}{approved}</sub>\n"
    if simulation is not None:
        tail = _cut(_simulation(simulation), HEAD_SHARE, "repl plan --simulate") + tail
    folds = sum(block.startswith(_TITLE) for block in blocks) * len(_FOLD.format("10,000"))
    room = limit - len(head) - len(tail) - (folds if len(blocks) > SHOWN else 0)
    return head + _folded(_kept(blocks, room)) + tail


def failed(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns the comment for a plan that could not be made, with as many errors as fit."""
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
    head = f"### No plan could be made: {plural(errors, 'error')}\n\n"
    return head + _cut(_diagnostics(diagnostics), LIMIT - len(head), "repl plan")


def _head(plan: Plan) -> str:
    lines = [f"### {_text(plan.topology.name)}: {_text(summary_line(plan))}", ""]
    if note := adoption_note(plan):
        lines += [note, ""]
    errors = [diagnostic for diagnostic in plan.diagnostics if diagnostic.severity is Severity.ERROR]
    if errors:
        lines += [f"**This plan can't be applied: {plural(len(errors), 'error')}.**", ""]
    if plan.unknown:
        missing = _cut_text(", ".join(code(cluster) for cluster in plan.unknown))
        lines += [f"**This plan is not complete:** {missing} could not be read.", ""]
    return "\n".join(lines) + "\n" + _cut(_diagnostics(plan.diagnostics), HEAD_SHARE)


def _diagnostics(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Returns errors, warnings and notes, in that order."""
    rank = list(Severity)
    mark = {Severity.ERROR: "❌", Severity.WARNING: "⚠", Severity.NOTE: "ℹ"}
    blocks = []
    for diagnostic in sorted(diagnostics, key=lambda diagnostic: rank.index(diagnostic.severity)):
        place = f"{code(diagnostic.place)}: " if diagnostic.place else ""
        hint = f" — {_text(diagnostic.hint)}" if diagnostic.hint else ""
        blocks.append(f"- {mark[diagnostic.severity]} {place}{_text(diagnostic.summary)}{hint}\n")
    return [*blocks, "\n"] if blocks else []


def _blocks(plan: Plan) -> list[str]:
    """Returns blocks of text. Each is kept or left out as a whole."""
    blocks: list[str] = []
    last: Action | None = None
    for group in grouped(shown_changes(plan)):
        action = group[0].action
        if action is not last:
            words = WORDS[action]
            title = (words.drifted if plan.inputs.mode is Mode.DRIFT else "") or words.title
            blocks.append(f"{_TITLE}{title}\n")
            last = action
        blocks.append(_block(group, plan.inputs.mode))
    return blocks


def _waves(plan: Plan) -> list[str]:
    """Returns a block for each wave of a cutover."""
    lines = [
        f"- {code(f'{wave.cutover}/{wave.wave}')} {wave.state}: {_text(wave_text(wave))}\n"
        for wave in plan.desired.waves
    ]
    return [f"{_TITLE}Waves of cutovers\n", *lines] if lines else []


def _block(group: Group, mode: Mode) -> str:
    change = group[0]
    fields = ", ".join(f"{code(name)} {_text(value)}" for name, value in moved(change))
    title = code(group_title(group)) if len(group) == 1 else f"**{_text(group_title(group))}**"
    about = f": {_cut_text(fields)}" if fields else ""
    happens = verb(change.action, mode)
    why = f" — {_text(change.reason)}" if change.reason and change.reason != happens else ""
    lines = [f"- `{WORDS[change.action].symbol}` {title}{about}{why}"]
    lines += [f"  - ⚠ {_text(note)}" for note in change.notes]
    if len(group) > 1:
        lines.append(f"  <details><summary>which</summary>\n\n  {_names(group)}\n  </details>")
    return "\n".join(lines) + "\n"


def _simulation(simulation: Simulation) -> list[str]:
    named = simulation_columns(simulation)
    heading = f"\n#### {_text(simulation_heading(simulation))}\n\n"
    if not simulation:
        return [heading]
    return [
        heading,
        "| " + " | ".join(column.name.capitalize() for column in named) + " |\n",
        "| " + " | ".join("---:" if column.right else "---" for column in named) + " |\n",
        *("| " + " | ".join(_text(cell) for cell in simulation_cells(flow)) + " |\n" for flow in simulation),
        "\n",
        *(f"- ⚠ {_text(remark)}\n" for remark in simulation_remarks(simulation)),
    ]


def _names(group: Group) -> str:
    """Returns as many names as fit, and a count of the others."""
    shown: list[str] = []
    length = 0
    for change in group:
        name = code(change.address.name)
        length += len(name) + 2
        if length > NAMES_SHARE:
            break
        shown.append(name)
    left = len(group) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


def _cut(blocks: Sequence[str], room: int, whole: str = "repl show PLANFILE") -> str:
    """Returns all blocks, or the first and last ones with a count of those left out between.

    `whole` is the command that shows all of them.
    """
    return "".join(_kept(blocks, room, whole))


def _kept(blocks: Sequence[str], room: int, whole: str = "repl show PLANFILE") -> list[str]:
    if sum(map(len, blocks)) <= room:
        return list(blocks)
    marker = f"\n… {{}} left out here; `{whole}` has them all …\n\n"
    left = room - len(marker) - 20
    first: list[str] = []
    last: list[str] = []
    front, back = 0, len(blocks) - 1
    while True:  # they are larger than the room, so one does not fit
        at_front = sum(map(len, first)) <= 2 * sum(map(len, last))  # the first blocks matter more
        block = blocks[front] if at_front else blocks[back]
        if len(block) > left:
            break
        left -= len(block)
        if at_front:
            first.append(block)
            front += 1
        else:
            last.append(block)
            back -= 1
    return [*first, marker.format(plural(back - front + 1, "entry")), *reversed(last)]


_TITLE = "\n#### "
_FOLD = "\n<details><summary>{} more</summary>\n\n</details>\n"
SHOWN = 20  # entries of one kind of change that are not folded


def _folded(blocks: Iterable[str]) -> str:
    """Folds what is behind the first entries of each kind of change. What is destroyed is never folded."""
    sections: list[list[str]] = [[]]
    for block in blocks:
        if block.startswith(_TITLE):
            sections.append([])
        sections[-1].append(block)
    return "".join(_section(section) for section in sections)


def _section(blocks: Sequence[str]) -> str:
    entries = blocks[1:]
    destroying = blocks and blocks[0].strip().removeprefix("#### ") in _UNFOLDED
    if destroying or len(entries) <= SHOWN:
        return "".join(blocks)
    opening, closing = _FOLD.format(f"{len(entries) - SHOWN:,}").split("</details>")
    return "".join((*blocks[: SHOWN + 1], opening, *entries[SHOWN:], f"\n</details>{closing}"))


def code(text: str) -> str:
    """Returns a code span for any text: its fence is longer than any run of backticks inside."""
    flat = _flat(text)
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def _text(text: str) -> str:
    """Returns plain words: nothing in them is markup or a link, and they stay on one line.

    A backslash keeps a character from being markup. It does not keep GitHub from linking an address, a
    mention, an issue or a commit. Such a word becomes a code span, in which nothing is linked.
    """
    return " ".join(
        code(word) if _LINKED.search(word) else _MARKUP.sub(r"\\\1", word) for word in _flat(text).split(" ")
    )


def _flat(text: str) -> str:
    return _cut_text(one_line(" ".join(text.split())))


def _cut_text(text: str) -> str:
    return text if len(text) <= TEXT_SHARE else f"{text[: TEXT_SHARE // 2]} … {text[-TEXT_SHARE // 3 :]}"


def html(plan: Plan, simulation: Simulation | None = None) -> str:
    """Returns the page."""
    environment = page_environment(Path(__file__).parent / "templates")
    changes, clusters = shown_changes(plan), _clusters(plan)
    rank = list(Severity)
    return environment.get_template("plan.html.j2").render(
        plan=plan,
        title=summary_line(plan),
        note=adoption_note(plan),
        digest="" if plan.inputs.mode is Mode.DRIFT else digest(plan),
        targets=sorted(plan.inputs.targets),
        topics_of={flow.flow.name: len(flow.topics) for flow in plan.desired.flows if flow.selection_known},
        summary=ChangeSummary.of(plan.changes),
        filters=_counts(Counter(change.action for change in changes)),
        groups=grouped(changes),
        drawings=[  # the page's style shows the one that fits
            (layout.css, layout.draw(clusters, _drawn_flows(plan)))
            for layout in (ACROSS_THE_SCREEN, DOWN_THE_SCREEN)
        ],
        clusters=clusters,
        diagnostics=sorted(plan.diagnostics, key=lambda diagnostic: rank.index(diagnostic.severity)),
        errors=sum(1 for diagnostic in plan.diagnostics if diagnostic.severity is Severity.ERROR),
        simulation=simulation,
        wave_text=wave_text,
        assumed=simulation_assumption,
        columns=simulation_columns,
        cells=simulation_cells,
        remarks=simulation_remarks,
        words=WORDS,
        verb=lambda change: verb(change.action, plan.inputs.mode),
        title_of=group_title,
        moved_of=moved,
        unchanged=sum(1 for change in plan.changes if change.action is Action.NO_OP and not change.adopted),
    )


def _counts(counted: Counter[Action]) -> list[tuple[str, str, int]]:
    """Returns the label, the symbol and the number of changes of each action."""
    return [
        (words.label, words.symbol, counted[action]) for action, words in WORDS.items() if counted[action]
    ]


def _drawn_flows(plan: Plan) -> list[Flow]:
    """Returns the flows as they are declared: files are an end of their own."""
    declared = plan.topology.file_flows
    return [declared.get(flow.name, flow) for flow in plan.job_flows]


def _clusters(plan: Plan) -> dict[str, dict[str, Any]]:
    """Returns what the box of each cluster shows."""
    counted: dict[str, Counter[Action]] = defaultdict(Counter)
    for change in shown_changes(plan):
        if change.address.cluster is not None and change.action is not Action.UNKNOWN:
            counted[change.address.cluster][change.action] += 1
    # Without objects that are unknown by address.
    silent = {name: why for name, why in plan.unknown.items() if "." not in name}
    ends = {end for flow in _drawn_flows(plan) for end in flow.ends}
    return {
        name: {
            "id": plan.clusters.get(name, ""),
            "why_silent": silent.get(name, ""),
            "counts": _counts(counted[name]),
        }
        for name in sorted({*plan.connections, *plan.clusters, *silent, *ends})
    }
