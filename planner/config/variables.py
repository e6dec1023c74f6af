"""Computes the expressions of a tree from `vars:` and --var-file, and keeps every place.

Expressions are computed scalar by scalar, before values are interpreted: so a value that is one
expression keeps its variable's type, and an error still points at what the user wrote. Statements
({% … %}) would have to span lines, where places are lost: they are refused.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner.config.bounds import (
    MOST_NODES,
    MOST_RENDERED,
    BoundExceeded,
    RemainingBound,
    TopologyBoundExceeded,
    nodes,
    refuse_longer,
    refuse_more_mistakes,
)
from planner.config.hints import did_you_mean, prose
from planner.config.language import scalars
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode, kind_of
from planner.model.diagnostic import Diagnostic, error, warning

if TYPE_CHECKING:
    from planner.config.expressions import Expressions

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_ONLY = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
ONE_EXPRESSION = re.compile(r"\s*\{\{(?![-+])((?:(?!\}\}|\{\{).)*)(?<![-+])\}\}\s*", re.DOTALL)
LONGEST_TEMPLATE = 2_000
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Words that an expression reads as something else than a variable.
RESERVED = frozenset(
    {"true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else"}
)


class Variables:
    """The values of variables by name, and the places of those given. Of two values the later one wins."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.declared: set[str] = set()
        self.given: dict[str, ScalarNode] = {}
        self.used: set[str] = set()
        self.diagnostics: list[Diagnostic] = []
        self._expressions: Expressions | None = None
        self._computed: dict[str, Any] = {}
        self._nodes = RemainingBound(MOST_NODES, "all values that come out of variables are")
        self._characters = RemainingBound(
            MOST_RENDERED, "all texts that come out of variables have characters:"
        )
        self._weights: dict[str, int] = {}
        self._exhausted = False

    def declare(self, node: Node) -> None:
        """Adds the topology's `vars:`; a name without a value must come from a file of variables."""
        for key, value in self._pairs(node, '"vars"'):
            self.declared.add(key.text)
            if not (isinstance(value, ScalarNode) and value.is_null):
                self.values[key.text] = python_value(value)

    def give(self, node: Node) -> None:
        """Adds the variables of one --var-file."""
        for key, value in self._pairs(node, "a file of variables"):
            self.given[key.text] = key
            self.values[key.text] = python_value(value)

    def _pairs(self, node: Node, what: str) -> Iterable[tuple[ScalarNode, Node]]:
        if not isinstance(node, MapNode):
            self._wrong(node, f"{what} is {kind_of(node)}", "it takes a map of variables, as name: value")
            return
        for key, value in node.pairs:
            if IDENTIFIER.fullmatch(key.text) and key.text not in RESERVED:
                yield key, value
            else:
                self._wrong(
                    key,
                    f'"{key.text}" can\'t be the name of a variable',
                    "use letters, digits and _, no word of Jinja2",
                )

    def _wrong(self, node: Node, what: str, hint: str) -> None:
        self.diagnostics.append(error(what, hint, source=node.source))
        refuse_more_mistakes(self.diagnostics)

    def rendered(self, node: Node) -> Node:
        """Returns the tree with every expression replaced by its value."""
        match node:
            case ScalarNode():
                return self._scalar(node) if "{{" in node.text or "{%" in node.text else node
            case ListNode():
                return replace(node, items=tuple(map(self.rendered, node.items)))
            case MapNode():
                for key, _ in node.pairs:
                    if "{{" in key.text:
                        self._wrong(
                            key, "an expression as a key", "expressions are for values; write the key out"
                        )
                pairs = tuple((key, self.rendered(value)) for key, value in node.pairs)
                return replace(node, pairs=pairs)

    def unused(self) -> list[Diagnostic]:
        """Returns a warning for each given variable that is neither declared nor used, so likely misspelt."""
        expected = self.declared | self.used
        return [
            warning(
                f'the variable "{name}" is neither under vars nor used',
                did_you_mean(name, expected) or "remove it, or declare it under vars",
                source=key.source,
                code="unused-variable",
            )
            for name, key in self.given.items()
            if name not in expected
        ]

    def _scalar(self, node: ScalarNode) -> Node:
        names = NAME_ONLY.findall(node.text)
        simple = len(names) == node.text.count("{{") and "{%" not in node.text and "{#" not in node.text
        if simple and all(name in self.values for name in names):
            # The common case, without Jinja2.
            self.used.update(names)
            whole = NAME_ONLY.fullmatch(node.text.strip())
            if whole:
                return self._placed(whole[1], self.values[whole[1]], node)
            return self._replaced(node, names)
        return self._computed_node(node)

    def _placed(self, key: str, value: Any, node: ScalarNode) -> Node:
        """Returns a value at its place. Its nodes are counted before they are made, once for each `key`."""
        if key not in self._weights:
            self._weights[key] = nodes(value)
        try:
            self._nodes.take(self._weights[key])
        except BoundExceeded as wrong:
            return self._too_much(node, wrong)
        return to_node(value, node)

    def _replaced(self, node: ScalarNode, names: list[str]) -> Node:
        """Returns text with the names of variables replaced. Its length is checked before it is made."""
        texts = {name: scalars.text_of(self.values[name]) for name in set(names)}
        length = len(node.text) + sum(len(texts[name]) for name in names)
        try:
            refuse_longer(length)
            self._characters.take(length)
        except BoundExceeded as wrong:
            return self._too_much(node, wrong)
        return _scalar_of(NAME_ONLY.sub(lambda match: texts[match[1]], node.text), node)

    def _too_much(self, node: ScalarNode, wrong: BoundExceeded) -> ScalarNode:
        """Reports the first place that passes a bound, once. No later expression is computed."""
        if self._exhausted:
            return replace(node, failed=True)
        self._exhausted = True
        return self._failed(
            node, f"too much comes out of variables here: {wrong}", "split the topology, or repeat less"
        )

    def _computed_node(self, node: ScalarNode) -> Node:
        from planner.config.expressions import Expressions, NotComputable

        if self._exhausted:
            return replace(node, failed=True)
        if "{%" in node.text:
            return self._failed(node, "a statement ({% … %})", "only expressions are read: {{ … }}")
        if len(node.text) > LONGEST_TEMPLATE:
            return self._failed(
                node, f"an expression in more than {LONGEST_TEMPLATE:,} characters", "make it shorter"
            )
        if self._expressions is None:
            self._expressions = Expressions(self.values)
        self.used |= self._expressions.names(node.text)
        single = ONE_EXPRESSION.fullmatch(node.text)
        try:
            if node.text not in self._computed:
                self._computed[node.text] = (
                    self._expressions.value(single[1].strip())
                    if single
                    else self._expressions.text(node.text)
                )
            computed = self._computed[node.text]
            self._characters.take(len(computed) if isinstance(computed, str) else 0)
        except NotComputable as wrong:
            return self._failed(node, *self._explained(wrong))
        except TopologyBoundExceeded as wrong:
            return self._too_much(node, wrong)
        return self._placed(node.text, computed, node)

    def _failed(self, node: ScalarNode, what: str, hint: str) -> ScalarNode:
        self._wrong(node, what, hint)
        return replace(node, failed=True)

    def _explained(self, wrong: Any) -> tuple[str, str]:
        if wrong.unknown is None:
            return f"the expression has no value: {wrong.what}", "correct it, or the variables it uses"
        if wrong.unknown in self.declared:
            return f'the variable "{wrong.unknown}" has no value', "give it one under vars or with --var-file"
        names = prose(sorted(self.values)[:10], "and") or "none"
        hint = (
            did_you_mean(wrong.unknown, self.values)
            or f"give it under vars or with --var-file; known: {names}"
        )
        return f'the variable "{wrong.unknown}" is not defined', hint


def python_value(node: Node) -> Any:
    """Returns a variable's value for expressions. `off` stays a word, and 1.10 stays as written."""
    match node:
        case ScalarNode():
            return _scalar_value(node)
        case ListNode():
            return [python_value(item) for item in node.items]
        case MapNode():
            return {key.text: python_value(value) for key, value in node.pairs}


def _scalar_value(node: ScalarNode) -> Any:
    if not node.plain:
        return node.text
    if node.is_null:
        return None
    if node.text in BOOLEANS:
        return BOOLEANS[node.text]
    try:
        return scalars.whole(node.text)
    except scalars.NotReadable:
        return node.text


def to_node(value: Any, at: ScalarNode) -> Node:
    """Returns a computed value as a node at the place of its expression."""
    if isinstance(value, list | tuple):
        return ListNode(tuple(to_node(item, at) for item in value), at.source)
    if isinstance(value, dict):
        pairs = tuple((_scalar_of(key, at), to_node(item, at)) for key, item in value.items())
        return MapNode(pairs, at.source)
    return _scalar_of(value, at)


def _scalar_of(value: Any, at: ScalarNode) -> ScalarNode:
    return ScalarNode(scalars.text_of(value), True, at.source, at.written or at.text)
