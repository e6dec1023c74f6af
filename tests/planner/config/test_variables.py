"""Variables and expressions: computed before values are interpreted, errors at the user's own place."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from planner.config import load
from planner.model.diagnostic import Failure
from tests.planner.config.given import loaded, mistakes, warnings, written

VARS = "vars: {flat: [x], retention: 7d, n: 3, on: true, names: [a, b], per: {dc1: 5}, text: '10', off_word: off, z: }\n"


def computed(folder: Path, expression: str) -> str:
    text = f'{VARS}topics:\n  - {{name: a, cluster: dc1, config: {{vendor.key: "{expression}"}}}}\n'
    return str(loaded(folder, text).topics[0].config["vendor.key"])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{{ retention }}", "7d"),
        ("{{retention}}", "7d"),
        ("x-{{ retention }}-{{ n }}", "x-7d-3"),
        ("{{ n + 1 }}", "4"),
        ("{{ n * 2 }}", "6"),
        ("{{ 2 ** 10 }}", "1024"),
        ("{{ 'a' if on else 'b' }}", "a"),
        ("{{ off_word }}", "off"),
        ("{{ per.dc1 }}", "5"),
        ("{{ names | join('+') }}", "a+b"),
        ("{{ missing | default('none') }}", "none"),
        ("{{ text | int + n }}", "13"),
        ("{{ '{{' }}", "{{"),
        ("{{ on }}", "true"),
        ("a{{ on }}", "atrue"),
        ("{{ flat[0] }}/{{ per }}", "x/{'dc1': 5}"),
        ("{{ n > 2 }}", "true"),
        ("{{ n > 2 }}-{{ per | length }}", "true-1"),
        ("{{ z | default('none') }}", "none"),
        ("{{- retention -}} ", "7d"),
        ("{# said #}{{ n }}", "3"),
    ],
)
def test_expressions(expression: str, expected: str, tmp_path: Path) -> None:
    assert computed(tmp_path, expression).strip() == expected


def test_a_value_that_is_one_expression_keeps_its_type(tmp_path: Path) -> None:
    topology = loaded(
        tmp_path,
        VARS
        + """\
topics: [{name: a, cluster: dc1, partitions: "{{ n }}", replication: "{{ n + 2 }}", protect: "{{ on }}"}]
flows: [{name: f, from: dc1, to: dc2, topics: {include: "{{ names }}"}, provenance: "{{ off_word }}"}]
""",
    )
    (topic,), flow = topology.topics, topology.flows["f"]
    assert (topic.partitions, topic.replication, topic.protect) == (3, 5, True)
    assert (flow.topics.include, flow.provenance) == (("a", "b"), "off")


def test_a_whole_map_may_be_a_variable(tmp_path: Path) -> None:
    text = """
    vars: {kept: {retention.ms: 7d, cleanup.policy: [compact, delete]}}
    topics: [{name: a, cluster: dc1, config: "{{ kept }}"}]
    """
    assert loaded(tmp_path, text).topics[0].config == {
        "retention.ms": "604800000",
        "cleanup.policy": "compact,delete",
    }


TOO_MUCH = {
    "long": ("{{ n" + " + 1" * 1_000 + " }}", "an expression in more than 2,000 characters"),
    "deep": ("{{ " + "(" * 900 + "n" + ")" * 900 + " }}", "the expression has no value: it is too deep"),
    "large": (
        "{{ l | replace('x', l) | replace('x', l) | replace('x', l) }}",
        "the expression has no value: it comes to more than 100,000 characters",
    ),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_an_expression_that_is_too_much(case: str, tmp_path: Path) -> None:
    expression, expected = TOO_MUCH[case]
    text = f'vars: {{n: 3, l: {"x" * 60}}}\ntopics: [{{name: "{expression}", cluster: dc1}}]\n'
    (found,) = mistakes(tmp_path, text)
    assert found.startswith(f"2:17: {expected}")


def test_what_a_secret_variable_holds_is_never_shown(tmp_path: Path) -> None:
    given = written(tmp_path, "password: hunter2\n", "given.vars.yaml")
    text = 'topics:\n  - {name: "{{ password }}/", cluster: dc1, partitions: "{{ password }}"}\n'
    found = mistakes(tmp_path, text, given)
    assert found[1] == '2:57: "partitions" is "{{ password }}" — it takes a whole number from 1 to 1000000'
    assert all("hunter2" not in line for line in found)


class TestFiles:
    TEXT = 'vars: {retention: 1d, region: }\ntopics: [{name: "{{ region }}", cluster: dc1, partitions: 1}]\n'

    def test_the_later_file_wins(self, tmp_path: Path) -> None:
        first = written(tmp_path, "region: eu\nretention: 2d\n", "eu.vars.yaml")
        second = written(tmp_path, "region: us\n", "us.vars.yaml")
        assert [topic.name for topic in loaded(tmp_path, self.TEXT, first, second).topics] == ["us"]

    def test_what_nothing_knows_is_a_warning(self, tmp_path: Path) -> None:
        given = written(tmp_path, "region: eu\nretntion: 2d\n", "eu.vars.yaml")
        (found,) = warnings(tmp_path, self.TEXT, given)
        assert found.endswith(
            'the variable "retntion" is neither under vars nor used — did you mean "retention"?'
        )

    def test_what_is_used_need_not_be_declared(self, tmp_path: Path) -> None:
        given = written(tmp_path, "partitions: 4\n", "eu.vars.yaml")
        text = 'topics: [{name: a, cluster: dc1, partitions: "{{ partitions + 1 }}"}]\n'
        assert loaded(tmp_path, text, given).topics[0].partitions == 5
        assert warnings(tmp_path, text, given) == []

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a\n", "1:1: a file of variables is a list — it takes a map of variables, as name: value"),
            (
                "a-b: 1\n",
                '1:1: "a-b" can\'t be the name of a variable — use letters, digits and _, no word of Jinja2',
            ),
            (
                "if: 1\n",
                '1:1: "if" can\'t be the name of a variable — use letters, digits and _, no word of Jinja2',
            ),
            ("a: [\n", "2:1: "),
        ],
    )
    def test_a_file_that_is_none(self, text: str, expected: str, tmp_path: Path) -> None:
        given = written(tmp_path, text, "eu.vars.yaml")
        topology = written(
            tmp_path,
            "apiVersion: repl/v1\nname: a\nclusters: {dc1: {bootstrap: 'a:1'}}\n"
            "topics: [{name: a, cluster: dc1}]\n",
        )
        with pytest.raises(Failure) as raised:
            load(topology, [given])
        assert str(raised.value.diagnostics[0]).startswith(f"{given}:{expected}")
