"""Text: colours only where they are asked for, narrow terminals, and a reader that goes away early."""

import itertools
from dataclasses import replace

from planner.model.address import Kind
from planner.model.plan import Action, FieldChange, Plan
from planner.render.plan.text import steps_text, text
from planner.render.plan.words import created_text, field_name, value_text
from tests.planner.render.scenes import everything, jobs, many


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


def of_new(plan: Plan, lines: list[str], kind: Kind) -> set[str]:
    """What is said of the fields of new objects of this kind, one line each."""
    new = {
        str(one.address) for one in plan.changes if (one.action, one.address.kind) == (Action.CREATE, kind)
    }
    found, about = set(), ""
    for line in lines:
        if not line.startswith("      ") or "! " in line:
            about = next((word for word in line.split() if word in new), "")
        elif about:
            found.add(f"{about} {line.strip().removeprefix('+ ').split('  # ')[0]}")
    return found


def test_the_steps_have_the_names_and_the_values_of_the_plan() -> None:
    plan = jobs()
    shown, steps = list(text(plan)), list(steps_text(plan))

    for kind in (Kind.FLOW, Kind.JOB):
        said = of_new(plan, shown, kind)
        assert said
        assert said <= of_new(plan, steps, kind)
    assert not any("native_only" in line or "=False" in line or "as released" in line for line in steps)


def test_what_the_planner_derives_is_said_in_words() -> None:
    flag = FieldChange(("native_only",), False, True)

    assert (
        f"{field_name(flag)}: {value_text(flag, True)}" == "copied records: those first written at the source"
    )


def test_the_steps_of_a_forged_plan_move_no_cursor() -> None:
    plan = jobs()
    forged = replace(plan, topology="shop\x1b[2J")

    assert not any("\x1b" in line for line in steps_text(forged))
