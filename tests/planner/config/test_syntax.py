"""Text that is not the YAML it was meant to be: one sentence that helps, at the place, without quoting the line."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from tests.planner.config.given import mistakes, mistakes_alone

TOPIC = "topics: [{name: orders, cluster: dc1}]\n"

SYNTAX = {
    "a tab in the indent": (
        "topics:\n\t- {name: a, cluster: dc1}\n",
        "2:1: a tab in the indent — indent by spaces",
    ),
    "a key indented too far": (
        "topics:\n  - name: a\n     cluster: dc1\n",
        (
            '3:13: a ": " stands where no value can begin — '
            'give keys of one map the same indent, and quote a value that contains ": "'
        ),
    ),
    "a key indented too little": (
        "topics:\n  - name: a\n cluster: dc1\n",
        "3:2: this line fits none of the maps above it — give keys of one map the same indent",
    ),
    "a list that is no list": (
        "topics:\n- name: a\n  cluster: dc1\nflows: x\n - a\nname: b\n- c\n",
        "7:1: this line fits none of the maps above it — give keys of one map the same indent",
    ),
    "a quote that is not closed": (
        "policies: 'x\nflows: []\n",
        "1:11: a quoted text that never ends — close the quote",
    ),
    "a bracket that is not closed": (
        "topics: [{name: a, cluster: dc1}\nflows: []\n",
        '1:9: a list in brackets that is not closed — add "," or "]"',
    ),
    "a brace that is not closed": (
        "topics:\n  - {name: a, cluster: dc1\nflows: []\n",
        '2:5: a map in braces that is not closed — add "," or "}"',
    ),
    "a backslash in double quotes": (
        'flows: [{topics: {include: "payments\\..*"}}]\n',
        (
            "1:37: a backslash in double quotes begins an escape, and this is none — "
            "write it twice (\"\\\\.\"), or use single quotes ('\\.')"
        ),
    ),
    "a star that is no alias": (
        "flows: [{topics: {include: *.x}}]\n",
        '1:29: an alias or an anchor without a name — quote a text that begins with "*" or "&"',
    ),
    "an alias of nothing": (
        "topics: *all\n",
        '1:9: no anchor "&all" stands before this alias — name one that does, or quote text that begins with "*"',
    ),
    "an alias of what it is inside": (
        "topics: &all [*all]\n",
        '1:15: the alias "*all" stands inside its own anchor — a topology can\'t contain itself',
    ),
    "an expression without quotes": (
        "topics:\n  - {name: {{ name }}, cluster: dc1}\n",
        '2:12: an expression that is not quoted is a map to YAML — quote the whole value: "{{ … }}"',
    ),
    "an expression without quotes, and more": (
        "policies: {{ x }}d\n" + TOPIC,
        '1:11: an expression that is not quoted is a map to YAML — quote the whole value: "{{ … }}"',
    ),
    "a sign that YAML keeps": ("policies: @x\n", '1:11: a value can\'t begin with "@" — quote it'),
    "a key without its colon": (
        "topics\nflows: []\n",
        '2:1: a key without ":" — write "key: value", or close the quote before it',
    ),
    "a control character": ("policies: \x07\n" + TOPIC, "1:11: a control character — remove it"),
    "a tag": (
        "topics: [{name: a, cluster: dc1, partitions: !!int 3}]\n",
        '1:46: the tag "tag:yaml.org,2002:int" is not read here — leave it out',
    ),
    "text behind a bar": (
        "policies: |x\n",
        (
            '1:12: more text behind the "|" or ">" that begins a text of several lines — '
            "go on in the next line, indented, or quote the value"
        ),
    ),
    "a colon in braces": (
        "topics: [{name: a::b, cluster: dc1}, {x :::}]\n",
        '1:43: a ":" that no value can hold here — quote the value',
    ),
    "a tag of a map": (
        "topics: !mine [{name: a, cluster: dc1}]\n",
        '1:9: the tag "!mine" is not read here — leave it out',
    ),
    "a list as a key": (
        TOPIC + "? [a, b]\n: c\n",
        "2:3: a key is text here, not a list or a map — write the key as one word",
    ),
    "a merge of text": (
        "topics:\n  - {name: a, cluster: dc1, <<: b}\n",
        '2:33: "<<" merges a map, or a list of maps — give it an alias of a map',
    ),
}


@pytest.mark.parametrize("case", SYNTAX)
def test_a_mistake_in_the_yaml_is_one_sentence_at_its_place(case: str, tmp_path: Path) -> None:
    text, expected = SYNTAX[case]
    assert mistakes(tmp_path, text) == [expected]


def test_a_key_twice_shows_both_places(tmp_path: Path) -> None:
    text = "name: a\nclusters: {dc1: {bootstrap: 'a:1'}}\nname: b\n"
    assert mistakes_alone(tmp_path, "apiVersion: repl/v1\ntopics: [{name: a, cluster: dc1}]\n" + text) == [
        '5:1: the key "name" stands here twice: first at line 3, column 1 — keep one of the two'
    ]


def test_mistakes_of_yaml_and_of_the_language_come_together(tmp_path: Path) -> None:
    text = "topics:\n  - {name: a, name: b, cluster: dc1, partition: 3, replication: !!int 1}\n"
    assert [line.split(": ")[0] for line in mistakes(tmp_path, text)] == ["2:15", "2:38", "2:65"]


def test_no_error_repeats_the_line_it_points_at(tmp_path: Path) -> None:
    for text in (
        "clusters:\n  dc1:\n    sasl.password: 'hunter2\n",
        "a: hunter2: b\n",
        "a: [hunter2\nb: c\n",
    ):
        assert all("hunter2" not in line for line in mistakes_alone(tmp_path, text))
