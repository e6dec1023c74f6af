"""Tables that fit the terminal: a narrow one loses the less important columns first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from planner.render.readable import one_line

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `spare` is the order in which columns are dropped: the highest first, 0 never."""

    name: str
    right: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and style."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> Iterator[Text]:
    """Yields the lines of a table. Without a `width` it is as wide as needed.

    If even the columns that are never dropped do not fit, each row becomes a few lines.
    """
    cells = [  # with safe text, before widths are counted
        [
            Cell(one_line(cell)) if isinstance(cell, str) else Cell(one_line(cell.text), cell.style)
            for cell in row
        ]
        for row in rows
    ]
    widths = [
        max([cell_len(column.name), *(cell_len(row[at].text) for row in cells)])
        for at, column in enumerate(columns)
    ]
    kept = _fitting(columns, widths, width)
    if kept is None:
        yield from _cards(columns, cells)
        return
    yield _line([Cell(columns[at].name, "bold") for at in kept], columns, widths, kept)
    for row in cells:
        yield _line([row[at] for at in kept], columns, widths, kept)


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int] | None:
    kept = list(range(len(columns)))
    while width is not None and sum(widths[at] + len(_GAP) for at in kept) - len(_GAP) > width:
        spare = [at for at in kept if columns[at].spare]
        if not spare:
            return None
        kept.remove(max(spare, key=lambda at: columns[at].spare))
    return kept


def _line(
    cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int]
) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    for cell, at in zip(cells, kept, strict=True):
        pad = " " * (widths[at] - cell_len(cell.text))
        line.append(pad if columns[at].right else "")
        line.append(cell.text, cell.style)
        line.append("" if columns[at].right else pad)
        line.append(_GAP)
    line.rstrip()
    return line


def _cards(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[Text]:
    """Yields each row as a block: the first column as a heading, the others below it."""
    longest = max(cell_len(column.name) for column in columns[1:]) if len(columns) > 1 else 0
    for row in rows:
        yield Text(row[0].text, row[0].style or "bold")
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell.text:
                yield Text.assemble((f"  {column.name.lower():<{longest}} ", "dim"), (cell.text, cell.style))
