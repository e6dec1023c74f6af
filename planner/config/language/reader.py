"""Reads nodes into values by the shapes of the language, with their places, and collects all mistakes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from planner.config.bounds import refuse_more_mistakes
from planner.config.hints import describe, did_you_mean, nearest, prose, shown
from planner.config.language import scalars
from planner.config.language.scalars import check_name, setting_value
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from runtime.contract.spec import shapes
from runtime.contract.spec.naming import illegal_because, is_internal
from runtime.contract.spec.selection import LONGEST, UnreadableRegex, regex, written_out
from runtime.contract.spec.shapes import Quantity, RecordShape, Shape, ValueShape


class Invalid(Enum):
    """Stands in for a value that was wrong and is reported already."""

    INVALID = 0


INVALID: Final = Invalid.INVALID


@dataclass(slots=True)
class ParsedRecord:
    """One record that was read: `values` has the valid keys, `places` all keys that were written."""

    record: RecordShape
    source: SourceLocation
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, SourceLocation] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """Returns a value; None for a key that is missing, off or invalid."""
        return self.values.get(name)

    def or_default(self, name: str) -> Any:
        """Returns a value, or the default (as YAML writes it) of a missing key; None for an invalid one."""
        return self.values.get(name) if name in self.places else self.record.by_name[name].default

    def place(self, name: str) -> SourceLocation:
        return self.places.get(name, self.source)

    def error(self, name: str, what: str, hint: str, code: str = "") -> Diagnostic:
        """Returns an error at the place of a key."""
        return error(what, hint, source=self.place(name), code=code)


def missing(fields: ParsedRecord, misspelt: Collection[str | None] = ()) -> list[Diagnostic]:
    """Returns an error for each required key that is missing and not just misspelt."""
    return [
        error(
            f'{fields.record.titled} without "{key.name}"',
            f"add {key.name}: {key.example}" if key.example else f"add {key.name}: {describe(key.shape)}",
            source=fields.source,
        )
        for key in fields.record.keys
        if key.required
        and key.name not in fields.places
        and key.unless not in fields.places
        and key.name not in misspelt
    ]


ROOT = "topology"  # its required keys are checked only if every file could be read
TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
MOST_INSTRUCTIONS = 250_000  # of RE2's compiled patterns; a usual pattern has 20
COST_OF_A_MISTAKE = 1_000  # instructions: compiling a pattern that turns out too large takes a millisecond
FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})


class _Regexes:
    """Checks each pattern once. All patterns of a topology together stay below MOST_INSTRUCTIONS."""

    def __init__(self) -> None:
        self._problems: dict[str, UnreadableRegex | None] = {}
        self._instructions = 0

    def problem(self, pattern: str) -> UnreadableRegex | None:
        """Returns why the pattern is refused, or None."""
        if pattern not in self._problems:
            self._problems[pattern] = self._checked(pattern)
        return self._problems[pattern]

    def _checked(self, pattern: str) -> UnreadableRegex | None:
        if len(pattern) <= LONGEST and written_out(pattern) is not None:
            return None
        if self._instructions > MOST_INSTRUCTIONS:
            what = f"is one of too many: all together come to more than {MOST_INSTRUCTIONS:,} instructions"
            return UnreadableRegex(what, "write shorter patterns, or fewer")
        try:
            self._instructions += regex(pattern).size
        except UnreadableRegex as wrong:
            self._instructions += COST_OF_A_MISTAKE
            return wrong
        return None


_QUANTITIES = {
    Quantity.DURATION: scalars.duration,
    Quantity.RATE: scalars.rate,
    Quantity.TIMESTAMP: scalars.moment,
}


class ShapeReader:
    """Reads nodes by shapes and collects every mistake in `diagnostics`."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._regexes = _Regexes()

    def wrong(self, source: SourceLocation, what: str, hint: str = "") -> Invalid:
        self.diagnostics.append(error(what, hint, source=source))
        refuse_more_mistakes(self.diagnostics)
        return INVALID

    def read(self, shape: Shape, node: Node, of: str) -> Any:
        """Returns the value, or INVALID. `of` is the key, for errors."""
        if isinstance(node, ScalarNode) and node.failed:
            return INVALID
        match shape:
            case shapes.RecordShape():
                return self._record(shape, node, of)
            case shapes.MapShape():
                return self._map(shape, node, of)
            case shapes.ListShape():
                return self._list(shape, node, of)
            case shapes.SettingsShape():
                return self._settings(shape, node, of)
            case shapes.OffOrShape():
                if isinstance(node, ScalarNode) and node.text in FALSE:
                    return None if node.plain else self._quoted(node, of, "off")
                return self._record(shape.shape, node, of, "off, or ")
            case shapes.AlternativesShape():
                return self._alternative(shape, node, of)
            case ValueShape.ANY:
                return node
            case _:
                return self._scalar(shape, node, of)

    def _scalar(self, shape: Shape, node: Node, of: str) -> Any:
        if not isinstance(node, ScalarNode) or node.is_null:
            return self._unexpected(shape, node, of)
        match shape:
            case shapes.TextShape():
                return self._text(shape, node, of)
            case shapes.ChoiceShape():
                return self._choice(shape, node, of)
            case shapes.IntegerShape():
                return self._integer(shape, node, of)
            case ValueShape.TOPIC_NAME:
                return self._topic_name(node)
            case ValueShape.BOOLEAN:
                return self._boolean(node, of)
            case ValueShape.NUMBER:
                return self._number(node, of)
            case shapes.QuantityShape():
                return self._quantity(shape, node, of)
            case _:
                return self._regex(node, of)

    def _unexpected(self, shape: Shape, node: Node, of: str, more: str = "") -> Invalid:
        if isinstance(node, ScalarNode) and node.is_null:
            return self.wrong(
                node.source, f'"{of}" has no value', f"give it {more}{describe(shape)}, or leave it out"
            )
        return self.wrong(node.source, f'"{of}" is {shown(node)}', f"it takes {more}{describe(shape)}")

    def _text(self, shape: shapes.TextShape, node: ScalarNode, of: str) -> str | ScalarNode | Invalid:
        if not shape.matches(node.text):
            return self.wrong(
                node.source,
                f'"{of}" is {shown(node)}, not {shape.expected}',
                shape.hint or f"it takes {shape.expected}",
            )
        if shape.longest is not None and len(node.text) > shape.longest:
            what = f'"{of}" has {len(node.text):,} characters'
            return self.wrong(node.source, what, f"it takes at most {shape.longest:,}")
        return node if shape.placed else node.text  # the node of a reference has the place to show

    def _topic_name(self, node: ScalarNode) -> str | Invalid:
        if why := illegal_because(node.text):
            what = why if node.written is None else f"{shown(node)} is no topic's name"
            return self.wrong(node.source, what, "use a name that Kafka takes")
        if is_internal(node.text):
            what = f"{node.text} is one of the product's own topics"
            return self.wrong(node.source, what, "they are created and kept without being declared")
        return node.text

    def _choice(self, shape: shapes.ChoiceShape, node: ScalarNode, of: str) -> str | Invalid:
        text = node.text.upper() if shape.any_case else node.text
        if "off" in shape.words and node.plain and node.text in FALSE:
            text = "off"
        if text in shape.words:
            # The declared word itself, not an equal text: msgspec leaves out what is its default.
            return shape.words[shape.words.index(text)] if shape.enum is None else shape.enum(text)
        hint = did_you_mean(node.text, shape.words) or f"it takes {describe(shape)}"
        return self.wrong(node.source, f'"{of}" is {shown(node)}, none of {prose(shape.words)}', hint)

    def _boolean(self, node: ScalarNode, of: str) -> bool | Invalid:
        if node.text in TRUE or node.text in FALSE:
            if node.plain:
                return node.text in TRUE
            return self._quoted(node, of, "true or false")
        return self._unexpected(ValueShape.BOOLEAN, node, of)

    def _quoted(self, node: ScalarNode, of: str, taken: str) -> Invalid:
        what = f'"{of}" is the text {shown(node)}'
        return self.wrong(node.source, what, f"it takes {taken}: remove the quotes")

    def _integer(self, shape: shapes.IntegerShape, node: ScalarNode, of: str) -> int | Invalid:
        try:
            number = scalars.whole(node.text)
        except scalars.NotReadable as not_readable:
            if not_readable.hint:
                return self.wrong(node.source, not_readable.what, not_readable.hint)
            return self._unexpected(shape, node, of)
        if not node.plain and not shape.quoted:
            return self._quoted(node, of, "a number")
        if not shape.least <= number <= shape.most:
            return self.wrong(node.source, f'"{of}" is {number}', f"it takes {describe(shape)}")
        return number

    def _number(self, node: ScalarNode, of: str) -> float | Invalid:
        number = scalars.decimal(node.text)
        if number is None:
            return self._unexpected(ValueShape.NUMBER, node, of)
        if not node.plain:
            return self._quoted(node, of, "a number")
        return number or self.wrong(node.source, f'"{of}" is {shown(node)}', "it takes more than zero")

    def _quantity(self, shape: shapes.QuantityShape, node: ScalarNode, of: str) -> int | Invalid:
        try:
            number = _QUANTITIES[shape.kind](node.text)
        except scalars.NotReadable as not_readable:
            return self.wrong(node.source, f'"{of}" is {shown(node)}: {not_readable.what}', not_readable.hint)
        if shape.least <= number <= shape.most:
            return number
        if number > shape.most:
            takes = f"at most {shape.text(shape.most)}"
        else:
            takes = f"{shape.text(shape.least)} or more" if shape.least > 1 else "more than zero"
        return self.wrong(node.source, f'"{of}" is {shown(node)}', f"it takes {takes}")

    def _regex(self, node: ScalarNode, of: str) -> str | Invalid:
        if (wrong := self._regexes.problem(node.text)) is not None:
            return self.wrong(node.source, f'"{of}" is {shown(node)}, which {wrong.what}', wrong.hint)
        return node.text

    def _settings(self, shape: shapes.SettingsShape, node: Node, of: str) -> dict[str, Any] | Invalid:
        if not isinstance(node, MapNode):
            return self._unexpected(shape, node, of)
        values: dict[str, Any] = {}
        for key, value in node.pairs:
            if isinstance(value, ScalarNode) and value.failed:
                continue
            try:
                check_name(shape, key.text)
            except scalars.NotReadable as not_readable:
                self.wrong(key.source, not_readable.what, not_readable.hint)
                continue
            try:
                values[key.text] = setting_value(shape, key.text, value)
            except scalars.NotReadable as not_readable:
                self.wrong(value.source, not_readable.what, not_readable.hint)
        return values

    def _list(self, shape: shapes.ListShape, node: Node, of: str) -> tuple[Any, ...] | Invalid:
        if isinstance(node, ListNode):
            items = node.items
        elif shape.lone and isinstance(node, ScalarNode) and not node.is_null:
            items = (node,)
        else:
            return self._unexpected(shape, node, of)
        if len(items) < shape.least:
            return self.wrong(node.source, f'"{of}" is an empty list', f"it takes {describe(shape)}")
        read = [self.read(shape.item, item, of) for item in items]
        return tuple(value for value in read if value is not INVALID)

    def _map(self, shape: shapes.MapShape, node: Node, of: str) -> dict[Any, Any] | Invalid:
        if not isinstance(node, MapNode):
            return self._unexpected(shape, node, of)
        if len(node.pairs) < shape.least:
            return self.wrong(node.source, f'"{of}" is an empty map', f"it takes {describe(shape)}")
        values: dict[Any, Any] = {}
        for key, value in node.pairs:
            name = self._scalar(shape.key, key, shape.named)
            read = self.read(shape.value, value, key.text)
            if isinstance(read, ParsedRecord):
                read.source = key.source
            if name is not INVALID:
                # An invalid entry stays as a name, so that references to it are not errors too.
                values[name] = read
        return values

    def _record(
        self, shape: shapes.RecordShape, node: Node, of: str, more: str = ""
    ) -> ParsedRecord | Invalid:
        if not isinstance(node, MapNode):
            return self._unexpected(shape, node, of, more)
        fields = ParsedRecord(shape, node.source)
        meant: set[str | None] = set()
        for key, value in node.pairs:
            declared = shape.by_name.get(key.text)
            if declared is None:
                hint = (
                    did_you_mean(key.text, shape.by_name)
                    or f"{shape.titled} has {prose(shape.by_name, 'and')}"
                )
                meant.add(nearest(key.text, shape.by_name))
                self.wrong(key.source, f'unknown key "{key.text}" in {shape.titled}', hint)
                continue
            fields.places[key.text] = value.source
            read = self.read(declared.shape, value, key.text)
            if read is not INVALID:
                fields.values[key.text] = read
        if shape.name != ROOT:
            self.diagnostics += missing(fields, meant)
        return fields

    def _alternative(self, shape: shapes.AlternativesShape, node: Node, of: str) -> Any:
        for alternative in shape.alternatives:
            if takes(alternative, node):
                return self.read(alternative, node, of)
        if isinstance(node, ScalarNode) and node.is_null:
            return self._unexpected(shape, node, of)
        hint = f"it takes {shape.expected}"
        if isinstance(node, ScalarNode):
            words = [
                word
                for alternative in shape.alternatives
                if isinstance(alternative, shapes.ChoiceShape)
                for word in alternative.words
            ]
            hint = did_you_mean(node.text, words) or hint
        elif isinstance(node, MapNode):
            names = [
                name
                for alternative in shape.alternatives
                if isinstance(alternative, shapes.RecordShape)
                for name in alternative.by_name
            ]
            close = [near for key, _ in node.pairs if (near := did_you_mean(key.text, names))]
            hint = close[0] if close else hint
        return self.wrong(node.source, f'"{of}" is {shown(node)}', hint)


def takes(shape: Shape, node: Node) -> bool:
    """Returns whether the node is meant as this alternative. Mistakes inside it are then their own errors."""
    match shape, node:
        case shapes.ChoiceShape(), ScalarNode():
            return node.text in shape.words
        case shapes.IntegerShape(), ScalarNode():
            return node.plain and node.text[:1].isdigit()
        case shapes.RecordShape(), MapNode():
            return any(key.text in shape.by_name for key, _ in node.pairs)
        case shapes.MapShape(), MapNode():
            return True
        case shapes.TextShape(), ScalarNode():
            return not node.is_null
        case _:
            return False
