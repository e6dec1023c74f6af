"""The nodes of a YAML tree: text and places, not interpreted yet.

A scalar keeps the text that the user wrote. Its key decides what it means, so `off` never becomes a boolean
by itself, `010` never eight, and no text a date, as YAML 1.1 would have it.
"""

from dataclasses import dataclass

from planner.model.diagnostic import SourceLocation

NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar. `plain` means unquoted, or the result of an expression.

    `written` is the expression it came from. `failed` means that the expression has no value, which is
    reported already.
    """

    text: str
    plain: bool
    file: str
    line: int
    column: int
    written: str | None = None
    failed: bool = False

    @property
    def source(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column)

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in NULLS


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]
    file: str
    line: int
    column: int

    @property
    def source(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map: pairs in the order of the file, with unique keys and merges (`<<`) done."""

    pairs: tuple[tuple[Scalar, "Node"], ...]
    file: str
    line: int
    column: int

    @property
    def source(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column)

    def get(self, name: str) -> "Node | None":
        return next((value for key, value in self.pairs if key.text == name), None)


Node = Scalar | Sequence | Mapping


def kind_of(node: Node) -> str:
    """Returns the kind of a node for an error, without its content."""
    match node:
        case Scalar():
            return "nothing" if node.is_null else "text"
        case Sequence():
            return "a list"
        case Mapping():
            return "a map"
