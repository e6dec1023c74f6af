"""Rename rules: how a flow maps a topic's name at the source to its name at the destination, and back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """`{topic}`, `{source}.{topic}`, `{topic}.replica`: literal text around `{topic}` and `{source}`."""

    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """`{match: "a-(.*)", to: "b-\\1"}`: a whole-name regex and its replacement; other names keep theirs."""

    match: str
    to: str


@dataclass(frozen=True, slots=True)
class Table:
    """`{orders: orders.copy}`: names written out; a name that is not in it keeps its own."""

    names: tuple[tuple[str, str], ...]


Rename = Template | Match | Table

SAME_NAME = Template("{topic}")
