"""A folder of files, and the documents of a file, are one topology."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from planner.config import load, load_with_warnings
from planner.model.diagnostic import ExitCode, Failure, Severity
from tests.planner.config.given import CLUSTERS, written

TOPICS = "topics:\n  - {name: orders, cluster: dc1}\n"
FLOWS = "flows:\n  - {name: dc1-to-dc2, from: dc1, to: dc2, topics: {include: orders}}\n"


def failures(path: Path) -> list[str]:
    with pytest.raises(Failure) as raised:
        load(path)
    assert raised.value.exit_code is ExitCode.ERROR
    errors = [one for one in raised.value.diagnostics if one.severity is Severity.ERROR]
    return [str(one).replace(f"{path}/", "") for one in errors]


def test_one_file_or_many_is_the_same_topology(tmp_path: Path) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir()
    many.mkdir()
    written(one, CLUSTERS + TOPICS + FLOWS)
    for name, text in {"c.yaml": CLUSTERS, "b.yaml": FLOWS, "a.yaml": TOPICS}.items():
        written(many, text, name)
    documents = load(written(tmp_path, f"{FLOWS}---\n{CLUSTERS}---\n---\n{TOPICS}"))
    assert load(one).digest == load(many).digest == documents.digest


def test_hidden_files_and_variables_are_no_part_of_it(tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS + TOPICS)
    (tmp_path / ".git").mkdir()
    for name in (".hidden.yaml", ".git/x.yaml", "eu.vars.yaml", "README.md"):
        written(tmp_path, "not: a topology\n", name)
    given = written(tmp_path, "region: eu\n", "eu.yaml")
    loaded = load_with_warnings(tmp_path, [given])
    assert loaded.files == (tmp_path / "t.yaml",)


@pytest.mark.parametrize(
    ("text", "place", "named", "keep"),
    [
        (TOPICS, "2:12", 'the topic "orders" at dc1', "keep one"),
        (FLOWS, "2:12", 'the flow "dc1-to-dc2"', "keep one"),
        ("clusters: {dc3: {bootstrap: 'a:1'}}\n", "1:12", '"dc3"', "keep one of the two"),
        ("jobs: {dc2: {}}\n", "1:8", '"dc2"', "keep one of the two"),
        ("vars: {x: 1}\n", "1:8", '"x"', "keep one of the two"),
    ],
    ids=["topic", "flow", "cluster", "job", "variable"],
)
def test_a_name_twice_shows_both_places(text: str, place: str, named: str, keep: str, tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS + "acls: [{cluster: dc1, principal: 'User:a', allow: READ, topic: a}]\n")
    written(tmp_path, text, "a.yaml")
    written(tmp_path, text, "b.yaml")
    assert failures(tmp_path) == [
        f"b.yaml:{place}: {named} stands in two places, first at a.yaml:{place} — {keep}"
    ]


SAID_TWICE = {
    "policies: {max_deletes: 1}\n": 'b.yaml:1:12: "max_deletes" stands in two places, first at a.yaml:1:12 — say it once',
    "defaults: {topic: {config: {retention.ms: 1d}}}\n": (
        'b.yaml:1:29: "retention.ms" stands in two places, first at a.yaml:1:29 — keep one of the two'
    ),
    "name: other\n": 'a.yaml:1:1: "name" stands in two places, first at 0.yaml:2:1 — say it once',
}


@pytest.mark.parametrize("text", SAID_TWICE)
def test_a_setting_of_the_whole_topology_is_said_once(text: str, tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS + TOPICS, "0.yaml")
    written(tmp_path, text, "a.yaml")
    written(tmp_path, text.replace("max_deletes: 1", "max_deletes: 2"), "b.yaml")
    assert SAID_TWICE[text] in failures(tmp_path)


def test_the_same_version_and_name_may_stand_in_every_file(tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS, "a.yaml")
    written(tmp_path, "apiVersion: repl/v1\nname: test\n" + TOPICS, "b.yaml")
    assert load(tmp_path).name == "test"


def test_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    written(tmp_path, "clusters: {dc1: [\n", "a.yaml")
    written(tmp_path, "topics: [{name: a, clustr: dc1}]\n", "b.yaml")
    written(tmp_path, "apiVersion: v1\nkind: ConfigMap\n", "c.yaml")
    assert [line.split(": ")[0] for line in failures(tmp_path)] == [
        "a.yaml:2:1",
        "b.yaml:1:20",
        "c.yaml:1:13",
    ]


def test_no_folder_no_file_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "comments").mkdir()
    written(tmp_path / "comments", "# later\n")
    assert failures(tmp_path / "absent") == [
        f"{tmp_path / 'absent'}: no such file or folder — name the topology's file or folder"
    ]
    assert failures(tmp_path / "empty")[0].endswith(
        "empty: no .yaml or .yml file in this folder — name the topology's file or folder, or start one with `repl init`"
    )
    assert "nothing is declared here" in failures(tmp_path / "comments")[0]


def test_an_unknown_key_is_shown_in_each_file(tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS + TOPICS + "topcs: []\n", "a.yaml")
    written(tmp_path, "topcs: []\n", "b.yaml")
    assert failures(tmp_path) == [
        'a.yaml:8:1: unknown key "topcs" in a topology — did you mean "topics"?',
        'b.yaml:1:1: unknown key "topcs" in a topology — did you mean "topics"?',
    ]


def test_too_many_files(tmp_path: Path) -> None:
    for number in range(2_001):
        (tmp_path / f"{number}.yaml").touch()
    (found,) = failures(tmp_path)
    assert found.endswith("more than 2,000 YAML files in this folder — name the topology's own folder")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    written(tmp_path, CLUSTERS + TOPICS)
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(load(tmp_path).topics) == 1
    (tmp_path / "broken.yaml").symlink_to(tmp_path / "nowhere")
    assert failures(tmp_path) == [
        f"{tmp_path}/broken.yaml: No such file or directory — make it readable, or name another".replace(
            f"{tmp_path}/", ""
        )
    ]
