"""A plan in words, as text, as a comment and as a page: bounded, and whatever is in a name is no markup."""

import re
from html.parser import HTMLParser

import pytest

from planner.model.address import Kind, topic_address
from planner.model.change import Action, Change, FieldChange
from planner.model.diagnostic import error, warning
from planner.model.plan import Mode, Plan
from planner.plan.document import ChangeSummary
from planner.plan.make import with_diagnostics
from planner.render.plan.documents import LIMIT, code, failed, html, markdown
from planner.render.plan.text import steps_text, text
from planner.render.plan.words import (
    grouped,
    summary_line,
    value_text,
)
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, desired, observed, topology, with_inputs
from tests.fakes.tables import cases
from tests.planner.render.scenes import (
    SCENES,
    drifted,
    errored,
    everything,
    jobs,
    many,
    nothing,
    planned,
    silent,
)

pytestmark = pytest.mark.slow

# Words.

ADDRESS = topic_address("dc1", "orders")


def test_a_replacement_is_added_and_destroyed_and_what_stays_is_not_counted() -> None:
    changes = [Change(ADDRESS, action, "") for action in Action]

    assert ChangeSummary.of(changes) == ChangeSummary(
        add=2, change=1, destroy=2, adopt=0, forget=1, unknown=1
    )
    assert ChangeSummary.of([Change(ADDRESS, Action.NO_OP, "", adopted=True)]).adopt == 1


NO_DRIFT, UNREAD = replace(drifted(), changes=()), {"dc1": "no"}
AWAY = replace(nothing(), changes=(Change(ADDRESS, Action.UNKNOWN, "(unknown: dc1 unreachable)"),))


@cases(
    "plan line",
    {
        "no changes": (nothing(), "No changes. The clusters match the topology."),
        "a cluster is away, as expected": (
            AWAY,
            "No changes. The clusters that answered match the topology.",
        ),
        "an error, such as an unknown --target": (
            with_diagnostics(nothing(), [error("--target flow.x names nothing in this topology")]),
            "No changes are planned.",
        ),
        "not all was read": (replace(nothing(), unknown=UNREAD), "No changes in what could be read."),
        "changes": (silent(), "Plan: 1 to add, 0 to change, 0 to destroy."),
        "drift": (drifted(), "Drift: 2 changed, 1 made again, 2 deleted outside the topology."),
        "no drift": (NO_DRIFT, "No drift. The clusters are as they were applied."),
        "not all was read of it": (
            replace(NO_DRIFT, unknown=UNREAD),
            "No drift in what could be read.",
        ),
    },
)
def test_the_summary(plan, line) -> None:
    assert summary_line(plan) == line


@pytest.mark.parametrize(("mode", "ends"), [(Mode.DESTROY, "destroy it"), (Mode.ROLLBACK, "undo that apply")])
def test_each_mode_has_its_heading(mode, ends) -> None:
    made = planned(desired(), cluster(), mode=mode)
    plan = replace(made, changes=(Change(ADDRESS, Action.FORGET, "why"),))
    assert next(text(plan)) == f"shop: to {ends}, repl will do this:"


def test_destroyed_objects_are_never_heaped_together() -> None:
    gone = [Change(topic_address("dc1", name), Action.DELETE, "why") for name in "ab"]
    kept = [Change(topic_address("dc1", name), Action.FORGET, "why") for name in "ab"]

    assert [len(group) for group in grouped([*kept, *gone])] == [1, 1, 2]


# Text.


def test_colour_only_where_asked() -> None:
    plain, coloured = list(text(everything())), list(text(everything(), colour=True))

    assert not any("\x1b" in line for line in plain)
    assert "\x1b[32m  + topic.dc2.orders\x1b[0m" in coloured
    assert "\x1b[31m  - topic.dc1.old\x1b[0m" in coloured


def test_nothing_but_a_long_name_is_wider_than_the_terminal() -> None:
    for width in (20, 40, 80):
        for line in text(everything(), width=width):
            assert len(line) <= width or " " not in line.strip().lstrip("#+~-.? ")


@cases(
    "path old new shown",
    {
        "a default": (("config", "retention.ms"), None, None, "(default 1d)"),
        "a flag": (("x",), None, True, "true"),
        "several": (("x",), None, ("a", "b"), "a, b"),
        "nothing": (("x",), None, "", '""'),
        "recorded": (("recorded", "partitions"), "6", None, "(not managed)"),
        "derived": (("native_only",), False, True, "those first written at the source"),
    },
)
def test_values_as_people_read_them(path, old, new, shown) -> None:
    assert (
        value_text(FieldChange(path, old, new, inherited="86400000" if shown.startswith("(d") else None), new)
        == shown
    )


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


# A page.


VOID = {"meta", "input", "link", "img", "br", "hr"}


class Balanced(HTMLParser):
    """Every element that opens is closed in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("scene", SCENES)
def test_one_page_that_needs_nothing_else(scene: str) -> None:
    page = html(SCENES[scene]())

    parsed = Balanced()
    parsed.feed(page)
    assert parsed.open == []
    assert parsed.links == []
    assert "default-src 'none'" in page
    assert "canary" not in page


def test_what_a_reader_looks_for() -> None:
    page = html(everything())

    for words in (
        "Plan: 5 to add, 7 to change, 2 to destroy",
        "topic.dc1.vault could not be read",
        "flow.dc1-to-dc2: dc1 → dc2, active, job dc2",
        'data-action="destroy" data-cluster="dc1"',
        "the topic holds 1.2 GB of records",
        "cluster-dc2",
        "0 topics · paused",
    ):
        assert words in page


def test_special_pages() -> None:
    assert "1 object compared" in html(nothing())
    assert re.search(r'class="box silent" data-cluster="dc1"', html(silent()))
    assert "topics unknown" in html(silent())
    assert "was deleted and made again" in html(drifted())
    assert "<code>shop.yaml:7:5: topic.dc1.orders</code>" in html(errored())
    assert "<svg" not in html(with_inputs(nothing(), observed=observed(), topology=topology()))
    assert "This plan is partial" in html(with_inputs(everything(), targets=("flow.dc1-to-dc2",)))


def test_many_changes_are_grouped_and_all_their_names_can_be_searched() -> None:
    page = html(many(500))

    assert "500 topics of dc1" in page
    assert "events.00499" in page


# A comment of a pull request.


def test_identical_changes_are_one_entry() -> None:
    body = markdown(many(214))

    assert "- `~` **214 topics of dc1**: `retention.ms` 1d → 3d — the topology changed" in body
    assert "and 89 more" in body


def test_ten_thousand_different_changes_stay_below_the_limit_of_a_comment_and_are_folded() -> None:
    changes = [
        Change(
            topic_address("dc1", f"own.{number:05}"),
            action,
            "declared",
            (FieldChange(("partitions",), number, 0),),
        )
        for number in range(3_334)
        for action in (Action.UPDATE, Action.CREATE, Action.DELETE)
    ]
    body = markdown(replace(everything(), changes=tuple(changes)))

    assert LIMIT - 3_000 < len(body) <= LIMIT
    assert body.count("<details>") == body.count("</details>")
    destroyed = body[body.index("#### Destroyed") :].partition("left out here")[0]
    assert "<details>" not in destroyed
    assert body.count("`topic.dc1.own.") > 300

    few = markdown(
        replace(everything(), changes=tuple(one for one in changes[:90] if one.action is Action.UPDATE))
    )
    assert "<details><summary>10 more</summary>" in few
    assert few.index("own.00019") < few.index("<details>") < few.index("own.00020")


def test_destruction_comes_first() -> None:
    body = markdown(everything())

    titles = [line.removeprefix("#### ") for line in body.splitlines() if line.startswith("#### ")]
    assert titles[:3] == ["Destroyed", "Updated in place", "Created"]


@pytest.mark.parametrize("limit", [3_000, 20_000])
def test_the_middle_is_cut_and_the_summary_is_kept(limit: int) -> None:
    body = markdown(many(300), limit)
    assert limit - 1_000 < len(body) <= limit
    assert body.startswith("### shop: Plan: 300 to add, 300 to change, 1 to destroy.")
    assert "topic.dc1.old" in body
    assert "topic.dc1.own.00299" in body
    assert "left out here" in body
    assert body.count("<details>") == body.count("</details>")


def test_many_warnings_leave_room_for_the_changes() -> None:
    wordy = [warning(f"warning {number} " + "x" * 3_000) for number in range(300)]
    body = markdown(with_diagnostics(everything(), wordy))
    assert len(body) <= LIMIT
    assert "topic.dc1.old" in body


def test_where_no_plan_could_be_made_as_much_as_a_comment_holds() -> None:
    wrong = [error(f"error {number} " + "x" * 500, "mend it") for number in range(1_000)]

    body = failed([warning("look"), *wrong])

    assert body.startswith("### No plan could be made: 1,000 errors\n\n- ❌ error 0 ")
    assert "left out here; `repl plan` has them all" in body
    assert len(body) <= LIMIT


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("orders", "`orders`"),
        ("a`b", "``a`b``"),
        ("`a``", "``` `a`` ```"),
        ("a\nb", "`a b`"),
        ("a|b", "`a|b`"),
    ],
)
def test_a_code_span_holds_any_name(name: str, written: str) -> None:
    assert code(name) == written


def test_what_could_not_be_read_stands_at_the_top() -> None:
    plan = replace(everything(), unknown={f"dc{number}": "why" for number in range(1_000)})

    assert "**This plan is not complete:**" in markdown(plan).split("####")[0]
