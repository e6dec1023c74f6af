"""The pull-request comment: bounded, grouped, and nothing in a name is markup."""

from dataclasses import replace

import pytest

from planner.model.diagnostic import error, warning
from planner.plan import with_diagnostics
from planner.render.plan.documents import LIMIT, code, failed, markdown
from tests.fakes.states import cluster, desired, live, owned, wanted
from tests.planner.render.scenes import everything, many, planned


def test_identical_changes_are_one_entry() -> None:
    body = markdown(many(214))

    assert "- `~` **214 topics of dc1**: `retention.ms` 1d → 3d — the topology changed" in body
    assert "and 89 more" in body


def test_destruction_comes_first() -> None:
    body = markdown(everything())

    titles = [line.removeprefix("#### ") for line in body.splitlines() if line.startswith("#### ")]
    assert titles[:3] == ["Destroyed", "Updated in place", "Created"]


@pytest.mark.parametrize("limit", [3_000, 20_000, LIMIT])
def test_the_middle_is_cut_and_the_summary_is_kept(limit: int) -> None:
    body = markdown(many(), limit)

    assert limit - 1_000 < len(body) <= limit
    assert body.startswith("### shop: Plan: 3000 to add, 3000 to change, 1 to destroy.")
    assert "topic.dc1.old" in body
    assert "topic.dc1.own.02999" in body
    assert "left out here" in body
    assert body.count("<details>") == body.count("</details>")


def test_ten_thousand_warnings_leave_room_for_the_changes() -> None:
    plan = with_diagnostics(many(), [warning(f"warning {number} " + "x" * 3_000) for number in range(10_000)])

    body = markdown(plan)

    assert len(body) <= LIMIT
    assert "topic.dc1.old" in body


def test_where_no_plan_could_be_made_as_much_as_a_comment_holds() -> None:
    wrong = [error(f"error {number} " + "x" * 500, "mend it") for number in range(1_000)]

    body = failed([warning("look"), *wrong])

    assert body.startswith("### No plan could be made: 1,000 errors\n\n- ❌ error 0 ")
    assert "left out here; `repl plan` has them all" in body
    assert len(body) <= LIMIT


def test_a_long_list_of_names_is_counted() -> None:
    names = [f"{number:04}-{'n' * 200}" for number in range(500)]

    body = markdown(planned(desired(*(wanted(name, 6) for name in names)), cluster()))

    assert len(body) < 5_000
    assert "**500 topics of dc1**" in body
    assert "more\n" in body


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


def test_text_is_never_markup() -> None:
    want = wanted("orders", vendor_key="<img src=x> | *b* `c` [d](e) @all\n# title")
    body = markdown(planned(desired(want), cluster(live("orders"), owned=[owned(wanted("orders"))])))

    assert r"\<img src=x\> \| \*b\* \`c\` \[d\](e) `@all` \# title" in body


def test_what_could_not_be_read_stands_at_the_top() -> None:
    plan = replace(everything(), unknown={f"dc{number}": "why" for number in range(1_000)})

    assert "**This plan is not complete:**" in markdown(plan).split("####")[0]
