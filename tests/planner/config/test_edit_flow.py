"""A way home is written beside its flow, in the same style; nothing else of the text moves."""

import pytest
import yaml

from planner.config.edit import with_reverse_flow, with_value

BLOCK = """\
flows:
  - name: there   # the way there
    from: dc1
    to: dc2
    topics: {include: [a]}
    groups:
      include: ['x{2}', y]   # who moves
      every: 300ms
    rpo: 5s       # promised

# and back
  - name: other
    from: dc2
"""
BACK = """\
  - name: there-back
    reverse_of: there
    from: dc2
    to: dc1
    topics: {include: ['.*']}
    groups: {include: ['x{2}', y], every: 300ms}
    rpo: 5s
"""
FLOW = "flows:\n  - {name: there, from: dc1, to: dc2, follow: off}   # ö\n  - {name: z}\n"
JSON = '{"flows": [{"name": "there", "from": "dc1", "to": "dc2"}], "name": "shop"}'
ENDS = "reverse_of: there, from: dc2, to: dc1"
PRETTY = '{\n  "flows": [\n    {"name": "there", "from": "dc1", "to": "dc2"}\n  ]\n}\n'
MADE = (
    '{"name": "there-back", "reverse_of": "there", "from": "dc2", "to": "dc1", "topics": {"include": [".*"]}}'
)


@pytest.mark.parametrize(
    ("text", "after", "added"),
    [
        (BLOCK, "rpo: 5s       # promised\n", "\n" + BACK),
        (
            FLOW,
            "# ö\n",
            f"  - {{name: there-back, {ENDS}, topics: {{include: ['.*']}}, follow: off}}\n",
        ),
        (JSON, '"to": "dc2"}', f", {MADE}"),
        (PRETTY, '"to": "dc2"}', f",\n    {MADE}"),
        (
            "flows:\n- name: there\n  from: dc1\n  to: dc2",
            "to: dc2",
            "\n" + BACK.partition("    groups")[0].replace("\n    ", "\n  ").lstrip(),
        ),
    ],
)
def test_the_way_back_stands_behind_its_flow(text: str, after: str, added: str) -> None:
    edited = with_reverse_flow(text, "there", "there-back")

    assert edited == text.replace(after, after + added, 1)
    assert edited is not None
    names = [one["name"] for one in yaml.safe_load(edited)["flows"]]
    assert names[:2] == ["there", "there-back"]


def test_what_comes_home_otherwise_is_left_out() -> None:
    edited = with_reverse_flow(BLOCK, "there", "there-back", ["a.b", "c"])

    assert edited is not None
    (back,) = [one for one in yaml.safe_load(edited)["flows"] if one["name"] == "there-back"]
    assert back["topics"] == {"include": [".*"], "exclude": ["a.b", "c"]}


def test_its_job_and_no_groups() -> None:
    edited = with_reverse_flow(JSON, "there", "there-back", job="into-dc1", groups=False)

    assert edited is not None
    assert '"topics": {"include": [".*"]}, "job": "into-dc1", "groups": {"sync": false}}' in edited


@pytest.mark.parametrize("text", ["flows: []\n", "flows:\n  -\n    name: there\n    from: a\n    to: b\n"])
def test_where_nothing_can_be_put(text: str) -> None:
    assert with_reverse_flow(text, "there", "there-back") is None


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (BLOCK, "# the way there\n", '# the way there\n    restart_from: {"timestamp": 5}\n'),
        (FLOW, "{name: there,", '{name: there, restart_from: {"timestamp": 5},'),
        (
            "flows:\n  - name: there\n    restart_from:\n      timestamp: 1\n\n    to: dc2\n",
            "\n      timestamp: 1\n",
            '\n      {"timestamp": 5}\n',
        ),
    ],
)
def test_a_value_is_set(text: str, before: str, after: str) -> None:
    assert with_value(text, "there", "restart_from", {"timestamp": 5}) == text.replace(before, after, 1)
