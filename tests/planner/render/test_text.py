"""Text: colours only where they are asked for, narrow terminals, and a reader that goes away early."""

import itertools

from planner.model.plan import FieldChange
from planner.render.plan.text import text
from planner.render.plan.words import created_text, value_text
from tests.planner.render.scenes import everything, many


def test_colour_only_where_asked() -> None:
    plain, coloured = list(text(everything())), list(text(everything(), colour=True))

    assert not any("\x1b" in line for line in plain)
    assert "\x1b[32m  + topic.dc2.orders\x1b[0m" in coloured
    assert "\x1b[31m  - topic.dc1.old\x1b[0m" in coloured


def test_nothing_but_a_long_name_is_wider_than_the_terminal() -> None:
    for width in (20, 40, 80):
        for line in text(everything(), width=width):
            assert len(line) <= width or " " not in line.strip().lstrip("#+~-.? ")


def test_the_first_lines_cost_nothing() -> None:
    assert len(list(itertools.islice(text(many()), 5))) == 5


def test_values_as_people_read_them() -> None:
    moved = FieldChange(("config", "retention.ms"), None, "604800000", inherited="86400000")

    assert value_text(moved, None) == "(default 1d)"
    assert value_text(FieldChange(("x",), None, True), True) == "true"
    assert value_text(FieldChange(("x",), None, ("a", "b")), ("a", "b")) == "a, b"
    assert value_text(FieldChange(("x",), None, ""), "") == '""'
    assert value_text(FieldChange(("recorded", "partitions"), None, "6"), None) == "(not managed)"
    assert created_text(FieldChange(("partitions",), None, None)) == "(the cluster's own)"
