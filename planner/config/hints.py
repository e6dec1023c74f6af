"""Words for errors: the nearest known word, lists in prose, what a shape takes, values safe to show."""

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from typing import assert_never

from planner.config.yaml_tree import Node, ScalarNode, kind_of
from planner.model.topology import looks_secret
from runtime.contract.spec import shapes
from runtime.contract.spec.shapes import Shape

LONGEST_SHOWN = 60
SHOWN_KEYS = 6
MOST_WORDS = 200  # comparing with more takes longer than a hint is worth


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Returns the known word that is nearest, or None. With very many words none is looked for."""
    by_folded = {candidate.casefold(): candidate for candidate in islice(words, MOST_WORDS + 1)}
    if len(by_folded) > MOST_WORDS or len(word) > LONGEST_SHOWN:
        return None
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    close = nearest(word, words)
    return f'did you mean "{close}"?' if close is not None else ""


def prose(words: Iterable[str], last: str = "or") -> str:
    """Returns words as a list in prose: a, b or c."""
    listed = list(words)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"


def shown(node: Node) -> str:
    """Returns a value as an error shows it. The result of an expression is left out if it may be a secret."""
    if not isinstance(node, ScalarNode) or node.is_null:
        return kind_of(node)
    if node.written is None:
        return f'"{shortened(node.text)}"'
    if any(looks_secret(word) for word in re.findall(r"[\w.]+", node.written)):
        return f'"{shortened(node.written)}"'
    return f'"{shortened(node.text)}" (from "{shortened(node.written)}")'


def shortened(text: str) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"


def describe(shape: Shape) -> str:
    """Returns the words for what a shape takes."""
    match shape:
        case shapes.ValueShape():
            return shape.value
        case shapes.QuantityShape():
            return shape.kind.value
        case shapes.TextShape() | shapes.SettingsShape() | shapes.AlternativesShape():
            return shape.expected
        case shapes.ChoiceShape():
            return prose(shape.words)
        case shapes.IntegerShape() if shape.most < 2**31 - 1:
            return f"a whole number from {shape.least} to {shape.most}"
        case shapes.IntegerShape():
            return f"a whole number, {shape.least} or more"
        case shapes.ListShape():
            item = describe(shape.item)
            return f"{item}, or a list of such" if shape.lone else f"a list, each {item}"
        case shapes.MapShape():
            return f"a map of {shape.named}s"
        case shapes.RecordShape():
            return _record(shape)
        case shapes.OffOrShape():
            return f"off, or {_record(shape.shape)}"
        case _:
            assert_never(shape)


def _record(shape: shapes.RecordShape) -> str:
    required = [key.name for key in shape.keys if key.required]
    names = required or [key.name for key in shape.keys]
    listed = names[:SHOWN_KEYS] + (["…"] if len(names) > SHOWN_KEYS else [])
    return f"a map with {prose(listed, 'and')}"
