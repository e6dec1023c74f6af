"""The YAML tree as the loader sees it: text and places, nothing interpreted yet.

A scalar stays the text the user wrote, so YAML 1.1's surprises (`off` as a boolean, `010` as eight,
dates) never happen: what a scalar means is decided by the key it stands under.
"""

from dataclasses import dataclass

from planner.model.diagnostic import SourceLocation

NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """`plain` means unquoted, or the outcome of an expression. `written` is the expression it came from;
    `failed` that it has none, which is said already."""

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
    """Pairs in the order of the file; keys are unique, merges (`<<`) are done."""

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
    """What a node is, for an error; never its content."""
    match node:
        case Scalar():
            return "nothing" if node.is_null else "text"
        case Sequence():
            return "a list"
        case Mapping():
            return "a map"
