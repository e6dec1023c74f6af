"""The plan as text in Terraform's style, line by line, so that a pager or `head` may stop it anywhere.

It also shows the steps that an apply will execute, each with all that it does.
"""

import re
from collections.abc import Iterator
from textwrap import wrap

from planner.graph.messages import few
from planner.model.change import Action, Change, FieldChange
from planner.model.diagnostic import Severity
from planner.model.plan import Mode, Plan
from planner.render.plan.words import (
    CYAN,
    GREEN,
    RED,
    WORDS,
    YELLOW,
    adoption_note,
    created_text,
    field_name,
    moves,
    shown_changes,
    summary_line,
    value_text,
    verb,
    wave_text,
)
from planner.render.readable import one_line, plural

NO_BREAK = "\x00"  # keeps a symbol and the next word on one line
MARKED = re.compile(r"(?:^|(?<= ))(-/\+|[-+~.#!?]) ")
UNKNOWN_SHOWN = 10  # of one reason; the rest is counted

BOLD, DIM = "1", "2"


def text(plan: Plan, *, width: int | None = None, colour: bool = False) -> Iterator[str]:
    """Yields lines without line ends. `width` breaks long lines; None leaves them."""
    for line, style in _lines(plan):
        for broken in _broken(one_line(line), width):
            yield f"\x1b[{style}m{broken}\x1b[0m" if colour and style and broken else broken


Line = tuple[str, str]


def _lines(plan: Plan) -> Iterator[Line]:
    changes = shown_changes(plan)
    if changes:
        yield _heading(plan), BOLD
        planned = {change.action for change in changes}
        legend = [
            f"{words.symbol} {words.legend}"
            for action, words in WORDS.items()
            if words.legend and action in planned
        ]
        if legend and plan.inputs.mode is not Mode.DRIFT:
            yield f"({', '.join(legend)})", DIM
        yield "", ""
    for change in (change for change in changes if change.action is not Action.UNKNOWN):
        yield from _change(change, plan.inputs.mode)
        yield "", ""
    yield from _unknown([change for change in changes if change.action is Action.UNKNOWN])
    yield from _waves(plan)
    errors = 0
    for diagnostic in plan.diagnostics:
        if diagnostic.severity is Severity.ERROR:
            errors += 1
            continue
        style = YELLOW if diagnostic.severity is Severity.WARNING else CYAN
        where = f"{diagnostic.place}: " if diagnostic.place else ""
        yield f"{diagnostic.severity.value.capitalize()}: {where}{diagnostic.summary}", style
        if diagnostic.hint:
            yield f"  {diagnostic.hint}", ""
        yield "", ""
    yield summary_line(plan), BOLD
    if note := adoption_note(plan):
        yield note, ""
    if plan.unknown:
        yield f"This plan is not complete: {few(list(plan.unknown))} could not be read.", YELLOW
    if errors:
        yield f"This plan can't be applied: {plural(errors, 'error')}.", RED


def _waves(plan: Plan) -> Iterator[Line]:
    """Yields the waves of each cutover in their order."""
    before = ""
    for wave in plan.desired.waves:
        if wave.cutover != before:
            yield f"Cutover {wave.cutover}: clients leave {wave.source}, fence: {wave.fence}", BOLD
            before = wave.cutover
        yield f"  {wave.wave}: {wave.state}, {wave_text(wave)}", ""
    if plan.desired.waves:
        yield "", ""


def _heading(plan: Plan) -> str:
    if all(change.action is Action.UNKNOWN for change in shown_changes(plan)):
        return f"{plan.topology.name}: this part can't be compared now:"
    match plan.inputs.mode:
        case Mode.DRIFT:
            return f"{plan.topology.name}: what changed outside the topology since it was applied:"
        case Mode.DESTROY:
            return f"{plan.topology.name}: to destroy it, repl will do this:"
        case Mode.ROLLBACK:
            return f"{plan.topology.name}: to undo that apply, repl will do this:"
        case Mode.RESTORE:
            return f"{plan.topology.name}: to restore the backup, repl will do this:"
        case _:
            return f"{plan.topology.name}: to make the clusters match the topology, repl will do this:"


def _change(change: Change, mode: Mode) -> Iterator[Line]:
    happens = verb(change.action, mode)
    why = f" ({change.reason})" if change.reason not in ("", happens) and mode is not Mode.DRIFT else ""
    yield f"  # {change.address} {happens}{why}", BOLD
    if change.action is Action.NO_OP:
        return
    words = WORDS[change.action]
    yield f"{words.symbol:>3} {change.address}", words.colour
    for field in change.fields:
        yield _field(field, change.action)
    if change.unchanged and change.fields:
        settings = plural(change.unchanged, "unchanged setting")
        yield f"      # ({settings} hidden)", DIM
    for note in change.notes:
        yield f"      ! {note}", YELLOW


def _field(field: FieldChange, action: Action) -> Line:
    name = field_name(field)
    note = f"  # {field.note}" if field.note else ""
    if action is Action.CREATE:
        return f"      + {name}: {created_text(field)}{note}", GREEN
    if not moves(field):
        value = value_text(field, field.new if field.new is not None else field.old)
        return f"        {name}: {value}{note}", ""
    return f"      ~ {name}: {value_text(field, field.old)} -> {value_text(field, field.new)}{note}", YELLOW


def _unknown(changes: list[Change]) -> Iterator[Line]:
    by_reason: dict[str, list[Change]] = {}
    for change in changes:
        by_reason.setdefault(change.reason, []).append(change)
    for reason, alike in by_reason.items():
        for change in alike[:UNKNOWN_SHOWN]:
            yield f"  ? {change.address} {reason}", CYAN
        if len(alike) > UNKNOWN_SHOWN:
            yield f"  ? {len(alike) - UNKNOWN_SHOWN:,} more {reason}", CYAN
        yield "", ""


def _broken(line: str, width: int | None) -> list[str]:
    """Breaks a line at spaces and indents the rest under its first word. A long name stays whole."""
    if width is None or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    lead = line[:indent]
    marker = line[indent : indent + 2] if line[indent : indent + 2] in ("# ", "! ") else ""
    hanging = lead + (marker if marker == "# " else " " * (len(marker) or 2))
    wrapped = wrap(
        MARKED.sub(r"\1" + NO_BREAK, line.strip()),
        width=max(width, 20),
        initial_indent=lead,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(NO_BREAK, " ") for part in wrapped]


def steps_text(plan: Plan) -> Iterator[str]:
    """Yields the clusters that are written to, then every step in order.

    A flow or a job is shown by the names of the plan, without the settings that are the defaults.
    """
    return map(one_line, _steps(plan))


def _steps(plan: Plan) -> Iterator[str]:
    written = sorted({step.cluster for step in plan.steps})
    yield f"{plan.topology.name}: repl executes {plural(len(plan.steps), 'step')}:"
    for name in written:
        reached = plan.connections.get(name)
        address = reached.bootstrap if reached is not None else "no address"
        yield f"  at {name}: {address}, cluster id {plan.clusters.get(name, '')}"
    changes = {change.address: change for change in plan.changes}
    for step in plan.steps:
        change = changes.get(step.address)
        # The broker never returns the values of these settings.
        hidden = frozenset(field.key for field in change.fields if field.sensitive) if change else frozenset()
        details = "; ".join(filter(None, step.details(hidden)))
        elsewhere = f" at {step.cluster}" if step.address.cluster is None else ""
        yield f"  {step}{elsewhere}" + (f": {details}" if details else "")
        for name, value in step.values().items():
            field = FieldChange((name,), None, value)
            yield f"      {field_name(field)}: {value_text(field, value)}"
    yield ""
