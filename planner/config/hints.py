"""Words for errors: the nearest right word, lists in prose, values that are safe to show."""

import difflib
import re
from collections.abc import Iterable
from itertools import islice

from planner.config.yaml_tree.nodes import Node, Scalar, kind_of
from planner.model.topology import looks_secret

LONGEST_SHOWN = 60
MOST_WORDS = 200  # comparing with more takes longer than a hint is worth


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word that was perhaps meant; None where it would take long to tell."""
    by_folded = {candidate.casefold(): candidate for candidate in islice(words, MOST_WORDS + 1)}
    if len(by_folded) > MOST_WORDS or len(word) > LONGEST_SHOWN:
        return None
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    close = nearest(word, words)
    return f'did you mean "{close}"?' if close is not None else ""


def prose(words: Iterable[str], last: str = "or") -> str:
    """a, b or c"""
    listed = list(words)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"


def shown(node: Node) -> str:
    """A value inside an error. What an expression came to is left out where it may be a secret."""
    if not isinstance(node, Scalar) or node.is_null:
        return kind_of(node)
    if node.written is None:
        return f'"{shortened(node.text)}"'
    if any(looks_secret(word) for word in re.findall(r"[\w.]+", node.written)):
        return f'"{shortened(node.written)}"'
    return f'"{shortened(node.text)}" (from "{shortened(node.written)}")'


def shortened(text: str) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"
