"""One more pattern under `promoted` in a text that people wrote: nothing else of it moves."""

import pytest
import yaml

from planner.config.edit import with_promoted

BLOCK = """\
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
        (BLOCK, "- 'orders'   # in March\n", "- 'orders'   # in March\n      - 'pay\\.(eu|us)'\n"),
        (BLOCK.replace("      -", "    -"), "# in March\n", "# in March\n    - 'pay\\.(eu|us)'\n"),
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


def test_a_flow_that_stands_elsewhere() -> None:
    assert with_promoted("flows: [{name: other}]", "there", "a") is None


def test_a_pattern_with_a_quote() -> None:
    edited = with_promoted("flows: [{name: there}]", "there", "it's")
    assert yaml.safe_load(edited or "")["flows"][0]["promoted"] == ["it's"]
