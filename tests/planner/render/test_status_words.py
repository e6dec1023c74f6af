from typing import Any

import pytest

from planner.render.readable import count, latency, octets, per_second, span, sparkline
from planner.render.table import Cell, Column, Row, table

WORDS: list[tuple[Any, Any, str]] = [
    (count, None, "–"),
    (count, 12_345, "12,345"),
    (count, 12_345_678, "12.3 M"),
    (octets, 999, "999 B"),
    (octets, 1_250_000, "1.2 MB"),
    (octets, 3.2e12, "3.2 TB"),
    (per_second, 0.0, "0/s"),
    (per_second, 0.25, "0.2/s"),
    (per_second, 1_204.4, "1,204/s"),
    (span, 0, "0 s"),
    (span, 12, "12 ms"),
    (span, 320, "0.3 s"),
    (span, 41_000, "41 s"),
    (span, 119_000, "119 s"),
    (span, 240_000, "4 min"),
    (span, 3 * 3_600_000, "3 h"),
    (span, 50 * 3_600_000, "2 d"),
    (latency, 0.2, "1 ms"),
    (latency, 120_000.0, ">2 min"),
]


@pytest.mark.parametrize(("say", "value", "words"), WORDS)
def test_as_people_read_it(say: Any, value: Any, words: str):
    assert say(value) == words


def test_a_sparkline_ends_with_the_newest():
    assert sparkline([None, 0, 4, 8], 6) == "   ▁▅█"
    assert sparkline([1, 2, 3], 2) == "▆█"
    assert sparkline([0, 0], 2) == "▁▁"


COLUMNS = (Column("NAME"), Column("LAG", right=True), Column("NOTE", spare=1))
ROWS: list[Row] = [("a", "1", "first"), (Cell("bb", "bold"), "10", "second")]


def test_columns_line_up():
    assert [line.plain.rstrip() for line in table(COLUMNS, ROWS, None)] == [
        "NAME  LAG  NOTE",
        "a       1  first",
        "bb     10  second",
    ]


def test_what_can_be_spared_goes_first():
    assert [line.plain.rstrip() for line in table(COLUMNS, ROWS, 12)] == [
        "NAME  LAG",
        "a       1",
        "bb     10",
    ]


def test_where_nothing_fits_each_row_is_a_few_lines():
    assert [line.plain.rstrip() for line in table(COLUMNS, ROWS[:1], 6)] == ["a", "  lag  1", "  note first"]
