"""The words for each action, and what is counted."""

from dataclasses import replace

import pytest

from planner.model.address import topic_address
from planner.model.diagnostic import error
from planner.model.plan import Action, Change, Mode
from planner.render.plan.json import failure_tree, json_tree
from planner.render.plan.text import text
from planner.render.plan.words import ChangeSummary, grouped, has, summary_line, will
from tests.fakes.states import cluster, desired
from tests.planner.render.scenes import drifted, nothing, planned, silent

ADDRESS = topic_address("dc1", "orders")


@pytest.mark.parametrize(
    ("action", "to_be", "was"),
    [
        (Action.CREATE, "will be created", "has changed"),
        (Action.UPDATE, "will be updated in place", "has changed"),
        (Action.DELETE, "will be destroyed", "was deleted"),
        (Action.REPLACE, "must be replaced", "was deleted and made again"),
        (Action.FORGET, "will no longer be managed", "has changed"),
        (Action.NO_OP, "exists, will be managed", "has changed"),
        (Action.UNKNOWN, "is not known", "is not known"),
    ],
)
def test_verbs(action, to_be, was) -> None:
    assert (will(action), has(action)) == (to_be, was)


def test_a_replacement_is_added_and_destroyed_and_what_stays_is_not_counted() -> None:
    changes = [Change(ADDRESS, action, "") for action in Action]

    assert ChangeSummary.of(changes) == ChangeSummary(
        add=2, change=1, destroy=2, adopt=0, forget=1, unknown=1
    )
    assert ChangeSummary.of([Change(ADDRESS, Action.NO_OP, "", adopted=True)]).adopt == 1


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (nothing(), "No changes. The clusters match the topology."),
        (replace(nothing(), unknown={"dc1": "no"}), "No changes in what could be read."),
        (silent(), "Plan: 1 to add, 0 to change, 0 to destroy."),
        (drifted(), "Drift: 2 changed, 1 made again, 2 deleted outside the topology."),
        (replace(drifted(), changes=()), "No drift. The clusters are as they were applied."),
        (
            replace(drifted(), changes=(), unknown={"dc1": "no"}),
            "No drift in what could be read. The clusters are as they were applied.",
        ),
    ],
)
def test_the_summary(plan, line) -> None:
    assert summary_line(plan) == line


@pytest.mark.parametrize(
    ("mode", "heading"),
    [
        (Mode.DESTROY, "shop: to destroy it, repl will do this:"),
        (Mode.ROLLBACK, "shop: to undo that apply, repl will do this:"),
    ],
)
def test_each_mode_has_its_heading(mode, heading) -> None:
    plan = replace(planned(desired(), cluster()), mode=mode, changes=(Change(ADDRESS, Action.FORGET, "why"),))

    assert next(text(plan)) == heading


def test_destroyed_objects_are_never_heaped_together() -> None:
    gone = [Change(topic_address("dc1", name), Action.DELETE, "why") for name in "ab"]
    kept = [Change(topic_address("dc1", name), Action.FORGET, "why") for name in "ab"]

    assert [len(group.changes) for group in grouped([*kept, *gone])] == [1, 1, 2]


def test_a_failure_has_the_shape_of_a_plan() -> None:
    tree = failure_tree((error("no", "way", address="a"),))

    assert (tree["errored"], tree["applyable"]) == (True, False)
    assert tree["diagnostics"][0]["summary"] == "no"


def test_a_step_whose_change_is_not_told_has_no_reason() -> None:
    assert "reason" not in json_tree(replace(silent(), changes=()))["steps"][0]
