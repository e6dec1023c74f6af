"""What people and machines read, to the letter. REPL_GOLDEN=write writes the files anew: look at the diff."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.model.plan import Plan
from planner.render.plan.documents import html, markdown
from planner.render.plan.json import json_text
from planner.render.plan.text import text
from tests.fakes.golden import agreed, fitted
from tests.planner.render.scenes import SCENES, adopting, errored, everything

GOLDEN = Path(__file__).parent / "golden"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def shorten(entry: dict[str, Any]) -> None:
    """Leaves what a flow or a job has of its own: what a new one will be, or the fields that change.

    Of the values of a topic it leaves those that are not the texts of `after`.
    """
    change = entry["change"]
    if entry["type"] == "topic":
        after = change["after"] or {}
        own = {name: value for name, value in change.pop("values", {}).items() if after[name] != value}
        change |= {"values": own} if own else {}
        return
    if "values" not in change or change["actions"] != ["create"]:
        for name in ("before", "after", "values") if entry["type"] in ("flow", "job") else ():
            change.pop(name, None)
        return
    after, values = change["after"], change["values"]
    assert after.keys() == values.keys()
    change["values"] = {name: value for name, value in values.items() if after[name] != value}
    change["fields"] = []


@cache
def documents() -> dict[str, str]:
    """The JSON of each scene: the first whole, the others as the values by which they differ from it.

    Of all scenes there is the first change of each action, and the first step of each kind: the others look
    like them.
    """
    shown: dict[str, str] = {}
    first: dict[str, Any] = {}
    seen = set[tuple[Any, ...]]()

    def is_new(part: str, entry: dict[str, Any]) -> bool:
        kind: tuple[Any, ...] = (part, entry.get("step"))
        if change := entry.get("change"):
            sensitive = any(field["sensitive"] for field in change["fields"])
            own = entry["type"] if "values" in change and entry["type"] != "topic" else ""
            kind = (part, *change["actions"], sensitive, own)
            shorten(entry)
        new = kind not in seen
        seen.add(kind)
        return new

    for scene, plan in SCENES.items():
        tree = json.loads(json_text(plan()))
        for part in ("resource_changes", "resource_drift", "steps"):
            tree[part] = [entry for entry in tree[part] if is_new(part, entry)]
        first = first or tree
        differs = {name: value for name, value in tree.items() if tree is first or first[name] != value}
        shown[scene] = fitted(differs) + "\n"
    return shown


RENDERERS: dict[str, Callable[[Plan], str]] = {
    "txt": lambda plan: "\n".join(text(plan)) + "\n",
    "md": markdown,
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("kind", RENDERERS)
def test_as_it_was_agreed(scene: str, kind: str) -> None:
    agreed_plan(f"{scene}.{kind}", RENDERERS[kind](SCENES[scene]()))


@pytest.mark.parametrize("scene", SCENES)
def test_the_json_is_as_it_was_agreed(scene: str) -> None:
    agreed_plan(f"{scene}.json", documents()[scene])


def agreed_plan(name: str, rendered: str) -> None:
    agreed(GOLDEN / name, DIGEST.sub("sha256:the-digest-of-the-plan", rendered))


def test_a_narrow_terminal_breaks_lines_at_words() -> None:
    agreed(GOLDEN / "errored.40.txt", "\n".join(text(errored(), width=40)) + "\n")


@pytest.mark.parametrize("scene", SCENES)
def test_broken_lines_have_the_same_words(scene: str) -> None:
    plan = SCENES[scene]()
    wide, narrow = (" ".join(text(plan, width=width)).split() for width in (None, 40))
    assert [word for word in narrow if word != "#"] == [word for word in wide if word != "#"]


def test_a_plan_that_only_adopts_says_that_nothing_changes() -> None:
    """As of a topology that `repl import` wrote."""
    note = (
        "All of it is at the clusters as declared: to adopt it, an apply changes none of it,"
        " and only registers there that this topology owns it."
    )
    assert list(text(adopting()))[-2:] == ["Plan: 0 to add, 0 to change, 0 to destroy, 1 to adopt.", note]
    assert note in markdown(adopting())
    assert note in html(adopting())
    assert note not in "\n".join(text(everything()))
