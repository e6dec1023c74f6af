"""`repl fmt`: one order and one style; the loaded topology and every comment stay."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.config import load
from planner.config.files import decoded
from planner.config.format import WIDTH, formatted
from planner.config.schema import starter
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from runtime.contract.spec.shapes import record_of
from tests.planner.config.test_edit_odd_files import EXAMPLES, HEAD, ODD
from tests.planner.config.test_properties import PIECES

TOPOLOGY = record_of(Topology)
FOLDER = tempfile.TemporaryDirectory()  # one for all, since a relative path is part of a digest
SCHEMA = Path("planner/config/schema")
TEXTS = {
    **{name: odd if isinstance(odd, str) else decoded(odd, name) for name, odd in ODD.items()},
    **{path.name: path.read_text(encoding="utf-8") for path in [*EXAMPLES, SCHEMA / "example.yaml"]},
    "starter.yaml": starter(),
}


def fmt(text: str) -> str:
    return formatted(text, TOPOLOGY, "t.yaml")


def loaded(text: str) -> str:
    """The digest of the topology: what it says, without the places in its file."""
    file = Path(FOLDER.name) / "t.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file).digest


def comments(text: str) -> list[str]:
    """The comments of a text without # in its values."""
    return sorted("#" + line.partition("#")[2].strip() for line in text.splitlines() if "#" in line)


@pytest.mark.parametrize("name", TEXTS)
def test_the_topology_and_the_comments_stay(name: str) -> None:
    text = TEXTS[name].replace("\r\n", "\n")
    result = fmt(text)
    assert loaded(result) == loaded(text)
    assert comments(result) == comments(text)
    assert fmt(result) == result


@given(st.data())
def test_comments_blank_lines_and_shuffled_keys(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from([starter(), *(TEXTS[one.name] for one in EXAMPLES)])).splitlines()
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["above", "behind", "blank", "swap"])):
            case "above":
                lines.insert(at, " " * data.draw(st.integers(0, 8)) + "# a remark")
            case "behind" if lines[at].strip():
                lines[at] += " " * data.draw(st.integers(1, 40)) + "# behind"
            case "blank":
                lines[at:at] = [""] * data.draw(st.integers(1, 3))
            case "swap" if at:
                lines[at - 1], lines[at] = lines[at], lines[at - 1]
            case _:
                pass
    text = "\n".join(lines) + "\n"
    try:
        before = loaded(text)
    except Failure:
        return
    result = fmt(text)
    assert loaded(result) == before
    assert comments(result) == comments(text)
    assert fmt(result) == result


@given(st.data())
def test_damaged_text_is_formatted_without_a_loss_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(list(TEXTS.values())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 20)))
        text = (
            text[:at] + data.draw(st.sampled_from([*PIECES, "# x\n", " |\n", "\u2028", "\r"])) + text[until:]
        )
    try:
        result = fmt(text)
    except Failure:
        return
    assert fmt(result) == result


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\t\n <{%}1~.\\"))
def test_any_text_is_formatted_or_refused(text: str) -> None:
    try:
        result = fmt(text)
    except Failure:
        return
    assert fmt(result) == result


STYLES = {
    "keys in the order of the language": (
        "flows:\n- to: dc2\n  topics: {include: a}\n  from: dc1\n  name: x\napiVersion: repl/v1\n",
        "apiVersion: repl/v1\n\nflows:\n  - name: x\n    from: dc1\n    to: dc2\n    topics: {include: a}\n",
    ),
    "keys that the language does not know stay behind": (
        "clusters:\n  b: {z: 1, bootstrap: 'a:1'}\n  a: {bootstrap: 'a:1'}\n",
        "clusters:\n  b: {bootstrap: 'a:1', z: 1}\n  a: {bootstrap: 'a:1'}\n",
    ),
    "indents of two": (
        "clusters:\n      dc1:\n         bootstrap:   'a:1'\ntopics:\n- name: a\n  cluster: dc1\n",
        "clusters:\n  dc1:\n    bootstrap: 'a:1'\n\ntopics:\n  - name: a\n    cluster: dc1\n",
    ),
    "a dash alone": ("topics:\n  -\n    # the first\n    name: a\n", "topics:\n  # the first\n  - name: a\n"),
    "braces without inner spaces": (
        "defaults: { topic: { partitions: 3 ,config: {  } } }\n",
        "defaults: {topic: {partitions: 3, config: {}}}\n",
    ),
    "braces over lines": ("defaults: {topic:\n  {partitions: 3}}\n", "defaults: {topic: {partitions: 3}}\n"),
    "a comment in braces opens them": (
        "topics:\n  - {name: a,  # first\n     cluster: dc1}\n",
        "topics:\n  - name: a   # first\n    cluster: dc1\n",
    ),
    "a comment moves with its key": (
        "flows:\n  # here\n  - to: dc2  # there\n    # the name\n    name: x\n    # at the end\n# far\n",
        "flows:\n  # here\n  # the name\n  - name: x\n    to: dc2  # there\n    # at the end\n# far\n",
    ),
    "the top of a file stays": (
        "# yaml-language-server: $schema=x.json\n\n# mine\ntopics: []\nname: t\n",
        "# yaml-language-server: $schema=x.json\n\n# mine\nname: t\ntopics: []\n",
    ),
    "a key that is commented out": (
        "clusters:\n  # dc1: {}\ntopics: []\n",
        "clusters:\n  # dc1: {}\n\ntopics: []\n",
    ),
    "an anchor stays before its alias": (
        "name: &n t\napiVersion: repl/v1\nvars: {a: *n}\n",
        "apiVersion: repl/v1\nname: &n t\nvars: {a: *n}\n",
    ),
    "an alias keeps the order of its file": (
        "flows:\n  - &f {name: a, from: b}\ndefaults: {flow: *f}\n",
        "flows:\n  - &f {name: a, from: b}\n\ndefaults: {flow: *f}\n",
    ),
    "text of several lines": (
        "vars:\n    a: |-\n        one\n          two\n    b: >2\n        three\n",
        "vars:\n  a: |-\n    one\n      two\n  b: >2\n      three\n",
    ),
    "line ends that a text keeps": (
        "vars:\n  a: |+\n    x\n\n\nname: t\n",
        "name: t\n\nvars:\n  a: |+\n    x\n\n\n",
    ),
    "JSON": ('{"name": "t",\n "apiVersion": "repl/v1"}\n', '{"name": "t",\n "apiVersion": "repl/v1"}\n'),
    "nothing": ("# nothing yet\n", "# nothing yet\n"),
}


@pytest.mark.parametrize("name", STYLES)
def test_style(name: str) -> None:
    text, expected = STYLES[name]
    assert fmt(text) == expected
    assert fmt(expected) == expected


def test_what_does_not_fit_goes_to_lines_of_its_own() -> None:
    names = ", ".join(f"orders-{number}" for number in range(20))
    result = fmt(
        f"{HEAD}flows:\n  - {{name: there, from: dc1, to: dc2, topics: {{include: [{names}]}}}}  # all\n"
    )
    assert "\n  # all\n  - name: there\n" in result
    assert "\n        - orders-19\n" in result
    assert max(map(len, result.splitlines())) <= WIDTH


def test_a_mistake_in_the_text_is_told_with_its_place() -> None:
    with pytest.raises(Failure) as told:
        fmt("name: a\nname: b\n")
    assert str(told.value.diagnostics[0]).startswith('t.yaml:2:1: the key "name" stands here twice')
