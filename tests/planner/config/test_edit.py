"""A change of a flow in a text that people wrote: nothing else of the text moves."""

import pytest
import yaml

from planner.config.edit import with_fenced, with_promoted, with_reverse_flow, with_states, without_promoted

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
    edited = with_states(text, {flow: "paused"})

    assert edited == text.replace(before, after, 1)
    assert edited is not None
    told = next(one for one in yaml.safe_load(edited)["flows"] if one["name"] == flow)
    assert told["state"] == "paused"


def test_the_states_of_several_flows_move_at_once() -> None:
    edited = with_states(BLOCK, {"back": "promoted", "there": "failed_over"})

    assert edited == BLOCK.replace(
        "# the way there\n", "# the way there\n    state: failed_over\n", 1
    ).replace("state: active # for now", "state: promoted # for now")
    assert with_states(BLOCK, {"there": "paused", "elsewhere": "paused"}) is None


@pytest.mark.parametrize("text", ["name: shop\n", "flows: []\n", "flows:\n  - {name: other}\n", "[]"])
def test_a_flow_that_stands_elsewhere(text: str) -> None:
    assert with_states(text, {"there": "paused"}) is None
    assert with_promoted(text, "there", "a") is None


# A way back is written beside its flow, in the same style.

DETAILED = """\
flows:
  - name: there   # the way there
    from: dc1
    to: dc2
    topics: {include: [a]}
    groups:
      include: ['x{2}', y]   # who moves
      every: 300ms
    schemas: {sync: true}
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
    schemas: {sync: true}
    rpo: 5s
"""
ONE_LINE = "flows:\n  - {name: there, from: dc1, to: dc2, follow: off}   # ö\n  - {name: z}\n"
COMPACT = '{"flows": [{"name": "there", "from": "dc1", "to": "dc2"}], "name": "shop"}'
ENDS = "reverse_of: there, from: dc2, to: dc1"
PRETTY = '{\n  "flows": [\n    {"name": "there", "from": "dc1", "to": "dc2"}\n  ]\n}\n'
MADE = (
    '{"name": "there-back", "reverse_of": "there", "from": "dc2", "to": "dc1", "topics": {"include": [".*"]}}'
)


@pytest.mark.parametrize(
    ("text", "after", "added"),
    [
        (DETAILED, "rpo: 5s       # promised\n", "\n" + BACK),
        (
            ONE_LINE,
            "# ö\n",
            f"  - {{name: there-back, {ENDS}, topics: {{include: ['.*']}}, follow: off}}\n",
        ),
        (COMPACT, '"to": "dc2"}', f", {MADE}"),
        (PRETTY, '"to": "dc2"}', f",\n    {MADE}"),
        (
            "flows:\n- name: there\n  from: dc1\n  to: dc2  # far\n  # rpo: 5s\n# - name: other\n",
            "# rpo: 5s",
            "\n" + BACK.partition("    groups")[0].replace("\n    ", "\n  ").strip(),
        ),
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


def test_its_job_and_no_groups() -> None:
    edited = with_reverse_flow(COMPACT, "there", "there-back", job="into-dc1", groups=False)

    assert edited is not None
    assert '"topics": {"include": [".*"]}, "job": "into-dc1", "groups": {"sync": false}}' in edited


@pytest.mark.parametrize("text", ["flows: []\n", "flows:\n  -\n    name: there\n    from: a\n    to: b\n"])
def test_where_nothing_can_be_put(text: str) -> None:
    assert with_reverse_flow(text, "there", "there-back") is None


# One more pattern under `promoted`.

LISTED = """\
flows:
  - name: there   # the way there
    from: dc1
    promoted:
      - 'orders'   # in March
    # who
    to: dc2
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (LISTED, "- 'orders'   # in March\n", "- 'orders'   # in March\n      - 'pay\\.(eu|us)'\n"),
        (LISTED.replace("      -", "    -"), "# in March\n", "# in March\n    - 'pay\\.(eu|us)'\n"),
        ("flows: [{name: there, promoted: [a]}]", "[a]", "[a, 'pay\\.(eu|us)']"),
        ("flows: [{name: there, promoted: [ a, b ]}]", "b ]", "b, 'pay\\.(eu|us)' ]"),
        ("flows: [{name: there, promoted: []}]", "[]", "['pay\\.(eu|us)']"),
        ("flows: [{name: there, promoted: a}]", ": a}", ": [a, 'pay\\.(eu|us)']}"),
        ("flows:\n- name: there # x\n", "# x\n", "# x\n  promoted: ['pay\\.(eu|us)']\n"),
        ("flows:\n- {name: there, to: b}\n", "there,", "there, promoted: ['pay\\.(eu|us)'],"),
        ('{"flows": [{"name": "there"}]}', '"there"', '"there", "promoted": ["pay\\\\.(eu|us)"]'),
    ],
)
def test_only_the_pattern_is_new(text: str, before: str, after: str) -> None:
    edited = with_promoted(text, "there", r"pay\.(eu|us)")

    assert edited == text.replace(before, after, 1)
    assert edited is not None
    (flow,) = yaml.safe_load(edited)["flows"]
    assert flow["promoted"][-1] == r"pay\.(eu|us)"


WAVES = """\
cutovers:
  - name: to-cloud   # for good
    waves:
      - {name: billing, topics: [a]}
      - name: rest
        topics: [b]
"""


@pytest.mark.parametrize(
    ("wave", "before", "after"),
    [
        ("billing", "{name: billing, topics", "{name: billing, fenced: true, topics"),
        ("rest", "- name: rest\n", "- name: rest\n        fenced: true\n"),
    ],
)
def test_a_wave_is_fenced_and_no_longer(wave: str, before: str, after: str) -> None:
    fenced = with_fenced(WAVES, "to-cloud", wave, fenced=True)
    assert fenced == WAVES.replace(before, after)
    assert fenced is not None
    assert with_fenced(fenced, "to-cloud", wave, fenced=False) == fenced.replace("true", "false")
    assert with_fenced(WAVES, "to-cloud", "other", fenced=True) is None
    assert with_fenced(WAVES, "other", wave, fenced=True) is None


@pytest.mark.parametrize(
    "promoted",
    [
        "    promoted: [a, 'b.*'] # moved\n",
        "    promoted:\n      - a\n      - 'b.*'\n",
        "    promoted: a\n",
        "",
    ],
)
def test_no_topic_stays_promoted_when_all_return(promoted: str) -> None:
    text = BLOCK.replace("    to: dc2\n", f"    to: dc2\n{promoted}")
    edited = without_promoted(text, "there")
    assert edited is not None
    before, after = (yaml.safe_load(one)["flows"] for one in (text, edited))
    assert after[0] == before[0] | {"promoted": []}
    assert after[1] == before[1]
    assert without_promoted(text, "nowhere") is None
    kept = without_promoted(text, "there", ["it's", "b.*"])
    assert kept is not None
    assert yaml.safe_load(kept)["flows"][0] == before[0] | {"promoted": ["it's", "b.*"]}
