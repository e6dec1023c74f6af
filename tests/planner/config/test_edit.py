"""A flow's state in a text that people wrote: nothing else of it moves."""

from pathlib import Path

import pytest
import yaml

from planner.config.edit import with_state
from planner.config.files import in_form_of, text_to_edit

BLOCK = """\
# who copies what
flows:
  - name: there   # the way there
    from: dc1
    to: dc2
    topics: {include: [a]}

  - name: back
    state: active # for now
    from: dc2
"""
FLOW = (
    "name: shop\nflows:\n  - {name: there, from: dc1}   # ö\n  - {name: back, state: 'paused', from: dc2}\n"
)
JSON = '{"flows": [{"name": "there", "from": "dc1"}]}'


@pytest.mark.parametrize(
    ("text", "flow", "before", "after"),
    [
        (BLOCK, "there", "# the way there\n", "# the way there\n    state: paused\n"),
        (BLOCK, "back", "state: active # for now", "state: paused # for now"),
        (FLOW, "there", "{name: there, from", "{name: there, state: paused, from"),
        (FLOW.replace("'paused'", "'active'"), "back", "'active'", "'paused'"),
        (JSON, "there", '"name": "there"', '"name": "there", "state": "paused"'),
        ("flows:\n- name: there", "there", "- name: there", "- name: there\n  state: paused\n"),
    ],
)
def test_only_the_state_moves(text: str, flow: str, before: str, after: str) -> None:
    edited = with_state(text, flow, "paused")

    assert edited == text.replace(before, after, 1)
    assert edited is not None
    told = next(one for one in yaml.safe_load(edited)["flows"] if one["name"] == flow)
    assert told["state"] == "paused"


@pytest.mark.parametrize("text", ["name: shop\n", "flows: []\n", "flows:\n  - {name: other}\n", "[]"])
def test_a_flow_that_stands_elsewhere(text: str) -> None:
    assert with_state(text, "there", "paused") is None


def test_the_second_document_of_a_file() -> None:
    text = "name: shop\n---\nflows: [{name: there}]\n"

    assert with_state(text, "there", "paused") == "name: shop\n---\nflows: [{name: there, state: paused}]\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_file_keeps_its_encoding_and_its_line_ends(tmp_path: Path, encoding: str, ends: str) -> None:
    file = tmp_path / "shop.yaml"
    before = BLOCK.replace("active # for", "active # für").replace("\n", ends).encode(encoding)
    file.write_bytes(before)

    after = with_state(text_to_edit(file), "there", "paused")

    assert after is not None
    way = f"# the way there{ends}"
    expected = before.decode(encoding).replace(way, f"{way}    state: paused{ends}")
    assert in_form_of(before, after) == expected.encode(encoding)
    assert in_form_of(before, text_to_edit(file)) == before
