"""The vocabulary of a plan for every renderer: symbols, verbs, counts, readable values, and groups.

Identical changes are grouped: 214 topics that get the same retention are one thing to review.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.diff.compared import ADOPTED
from planner.diff.fields import DERIVED, displayed
from planner.diff.values import readable
from planner.graph.messages import few
from planner.model.change import Action, Change, FieldChange, Value
from planner.model.desired import PlannedWave
from planner.model.plan import Mode, Plan
from planner.plan.document import ChangeSummary
from planner.render.readable import octets, plural, span
from runtime.contract.results.waves import WaveState

GREEN, YELLOW, RED, CYAN = "32", "33", "31", "36"  # of a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionWords:
    """How an action is shown, by every renderer.

    `will` follows an object's address, and `has` in a plan of drift. `title` heads a list of such changes,
    and `drifted` in a plan of drift. `rank` puts destructive actions first. Where nothing changes there is
    no `legend`.
    """

    symbol: str
    label: str
    will: str
    title: str
    rank: int
    legend: str = ""
    has: str = "has changed"
    drifted: str = ""
    colour: str = ""


WORDS: Mapping[Action, ActionWords] = {
    Action.CREATE: ActionWords(
        symbol="+",
        label="create",
        legend="create",
        will="will be created",
        title="Created",
        rank=3,
        colour=GREEN,
    ),
    Action.UPDATE: ActionWords(
        symbol="~",
        label="update",
        legend="update in place",
        will="will be updated in place",
        title="Updated in place",
        drifted="Changed outside",
        rank=2,
        colour=YELLOW,
    ),
    Action.DELETE: ActionWords(
        symbol="-",
        label="destroy",
        legend="destroy",
        will="will be destroyed",
        has="was deleted",
        title="Destroyed",
        drifted="Deleted outside",
        rank=0,
        colour=RED,
    ),
    Action.REPLACE: ActionWords(
        symbol="-/+",
        label="replace",
        legend="destroy and create again",
        will="must be replaced",
        has="was deleted and made again",
        title="Replaced",
        drifted="Made again outside",
        rank=1,
        colour=RED,
    ),
    Action.NO_OP: ActionWords(
        symbol="=",
        label="adopt",
        will=ADOPTED,
        title="Adopted: they exist, and will be managed",
        rank=4,
    ),
    Action.FORGET: ActionWords(
        symbol=".",
        label="forget",
        legend="forget, the object stays",
        will="will no longer be managed",
        title="Forgotten: they stay as they are",
        rank=5,
    ),
    Action.UNKNOWN: ActionWords(
        symbol="?",
        label="unknown",
        legend="unknown",
        will="is not known",
        has="is not known",
        title="Unknown",
        rank=6,
        colour=CYAN,
    ),
}
UNKNOWN_AFTER = "the cluster's own"


def verb(action: Action, mode: Mode) -> str:
    """Returns what will happen to an object, or what happened to it outside the topology."""
    words = WORDS[action]
    return words.has if mode is Mode.DRIFT else words.will


def shown_changes(plan: Plan) -> tuple[Change, ...]:
    """Returns the changes without objects that stay as they are."""
    return tuple(change for change in plan.changes if change.action is not Action.NO_OP or change.adopted)


def summary_line(plan: Plan) -> str:
    """Returns `Plan: 3 to add, 1 to change, 0 to destroy.`, or a sentence that nothing changes."""
    counted = ChangeSummary.of(plan.changes)
    if plan.inputs.mode is Mode.DRIFT:
        return _drift_line(plan, counted)
    if not plan.changed:
        if plan.waits:
            return "Nothing to change, but partitions wait for a decision: see the warnings."
        if plan.errored:
            return "No changes are planned."
        if plan.complete:
            which = "The clusters that answered" if counted.unknown else "The clusters"
            return f"No changes. {which} match the topology."
        return "No changes in what could be read."
    parts = [f"{counted.add} to add", f"{counted.change} to change", f"{counted.destroy} to destroy"]
    parts += [f"{counted.adopt} to adopt"] if counted.adopt else []
    parts += [f"{counted.forget} to forget"] if counted.forget else []
    return f"Plan: {', '.join(parts)}."


def adoption_note(plan: Plan) -> str:
    """Returns what an apply does where a plan only adopts what exists, as after `repl import`; else ""."""
    counted = ChangeSummary.of(plan.changes)
    others = counted.add or counted.change or counted.destroy or counted.forget
    if plan.inputs.mode is Mode.DRIFT or others or not counted.adopt:
        return ""
    return (
        "All of it is at the clusters as declared: to adopt it, an apply changes none of it,"
        " and only registers there that this topology owns it."
    )


def _drift_line(plan: Plan, counted: ChangeSummary) -> str:
    gone, again = counted.destroy - counted.add, counted.add
    counts = ((counted.change, "changed"), (again, "made again"), (gone, "deleted"))
    if plan.changed:
        return (
            f"Drift: {', '.join(f'{count} {what}' for count, what in counts if count)} outside the topology."
        )
    if plan.complete and not plan.errored:
        return "No drift. The clusters are as they were applied."
    return "No drift in what could be read."


def field_name(field: FieldChange) -> str:
    """Returns `retention.ms`, also for a field whose registered value alone changes."""
    if field.key in DERIVED:
        return DERIVED[field.key][0]
    return field.key.removeprefix("config.") if field.path[0] == "recorded" else field.key


def value_text(field: FieldChange, value: Value) -> str:
    """Returns a readable value. None is the cluster's own value, which is named if it differs."""
    name = field_name(field)
    if field.key in DERIVED and isinstance(value, bool):
        return DERIVED[field.key][1][value]
    shown = displayed(field.path, value)
    if shown is None:
        if field.path[0] == "recorded":
            return "(not managed)"
        inherited = field.inherited
        says_more = inherited is not None and inherited not in (field.old, field.new)
        return (
            f"(default {readable(name, inherited)})" if inherited is not None and says_more else "(default)"
        )
    if isinstance(shown, list | tuple):
        return ", ".join(map(str, shown)) or "(none)"
    if isinstance(shown, bool):
        return str(shown).lower()
    return readable(name, str(shown)) or '""'


def created_text(field: FieldChange) -> str:
    """Returns the value of a new object. The cluster chooses a value that is not declared."""
    if displayed(field.path, field.new) is None:
        inherited = f": {field.inherited}" if field.inherited is not None else ""
        return f"({UNKNOWN_AFTER}{inherited})"
    return value_text(field, field.new)


def moves(field: FieldChange) -> bool:
    """Returns whether the field's value changes. A value that is only registered does not count."""
    return field.path[0] != "recorded" or field_name(field) in ("protect", "on_remove")


ARROW = "→"


Group = Sequence[Change]  # changes with the same action, kind, cluster, fields and reason


def group_title(group: Group) -> str:
    """Returns the address of a single change, or a count such as `214 topics of dc2`."""
    address = group[0].address
    if len(group) == 1:
        return str(address)
    where = f" of {address.cluster}" if address.cluster is not None else ""
    return plural(len(group), address.kind.value) + where


def moved(change: Change) -> list[tuple[str, str]]:
    """Returns each field's name with its value in words: `1d → 3d`."""
    texts = []
    for field in change.fields:
        if change.action is Action.CREATE:
            text = created_text(field)
        elif moves(field):
            text = f"{value_text(field, field.old)} {ARROW} {value_text(field, field.new)}"
        else:
            text = value_text(field, field.new if field.new is not None else field.old)
        texts.append((field_name(field), text))
    return texts


def grouped(changes: Iterable[Change]) -> list[Group]:
    """Returns the groups: destructive ones first, then the largest, then by address."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        # Destroyed objects are never grouped: each has its own data to lose.
        address = change.address if change.action in (Action.DELETE, Action.REPLACE) else None
        fields = tuple(map(repr, change.fields))  # a value may be a mapping
        kind, cluster = change.address.kind, change.address.cluster
        key = (change.action, kind, cluster, change.reason, fields, change.notes, address)
        alike.setdefault(key, []).append(change)
    return sorted(
        alike.values(), key=lambda group: (WORDS[group[0].action].rank, -len(group), group[0].address)
    )


def wave_text(wave: PlannedWave) -> str:
    """Returns how large a wave is, who moves with it, and what is left to copy before it can move."""
    size = octets(wave.size) if wave.size is not None else "an unknown size"
    parts = [f"{plural(wave.topics, 'topic')}, {plural(wave.partitions, 'partition')}, {size}"]
    if wave.groups:
        parts.append(f"groups {few(wave.groups, 5)}")
    if wave.state is WaveState.MOVED:
        return "; ".join(parts)
    if wave.behind is not None:
        parts.append(f"its flows are {plural(wave.behind, 'record')} behind")
    if wave.copy_ms:
        parts.append(f"the first copy takes about {span(wave.copy_ms)} at {octets(wave.rate)}/s")
    return "; ".join(parts)
