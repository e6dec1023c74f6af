"""docs/operations.md knows every state and every alert, and what others point at is there."""

import re
from pathlib import Path

import pytest

from runtime.contract.status import PartitionState
from tests.rights import rights
from tests.runtime.observe.expressions import DOCS, alerts

PAGE = (DOCS / "operations.md").read_text()


@pytest.mark.parametrize("state", PartitionState)
def test_every_state_says_what_to_do(state: PartitionState):
    row = re.search(rf"^\| `{state.value}` \|(.+)\|(.+)\|$", PAGE, re.MULTILINE)
    assert row is not None
    assert all(len(cell.strip()) > 3 for cell in row.groups())


@pytest.mark.parametrize("alert", [rule["alert"] for rule in alerts()])
def test_every_alert_has_a_first_look(alert: str):
    assert re.search(rf"^\| `{alert}` \| [^|]+\|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "heading", ["To plan", "To apply", "A job, at its sources", "A job, at its destination"]
)
def test_rights_are_told_as_the_tests_read_them(heading: str):
    found = rights(heading, "mine-")
    assert any(one.resource == "TOPIC" and one.name == "__repl." and one.prefixed for one in found)
    assert all(one.operations for one in found)


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (DOCS / link).resolve().exists(), link
    headings = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings_of(DOCS)}
    for anchor in re.findall(r"\]\(#([^)]+)\)", PAGE):
        assert anchor in headings, anchor


def headings_of(folder: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", (folder / "operations.md").read_text(), re.MULTILINE)
