"""The page: self-contained, whatever is in a name, with everything a search must find."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from planner.render.plan.documents import html
from tests.fakes.states import cluster, desired, wanted
from tests.planner.render.scenes import SCENES, drifted, everything, many, nothing, planned, silent

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


def test_a_name_is_never_markup() -> None:
    page = html(planned(desired(wanted("x", vendor_key="<script>alert(1)</script>")), cluster()))

    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_no_changes_and_a_silent_cluster_and_a_drift() -> None:
    assert "1 object compared" in html(nothing())
    assert re.search(r'class="box silent" data-cluster="dc1"', html(silent()))
    assert "topics unknown" in html(silent())
    assert "was deleted and made again" in html(drifted())


def test_a_plan_without_clusters_or_with_targets() -> None:
    bare = replace(nothing(), clusters={}, connections={}, flows=())

    assert "<svg" not in html(bare)
    assert "This plan is partial" in html(replace(everything(), targets=("flow.dc1-to-dc2",)))


def test_many_changes_are_grouped_and_all_their_names_can_be_searched() -> None:
    page = html(many(500))

    assert "500 topics of dc1" in page
    assert "events.00499" in page
