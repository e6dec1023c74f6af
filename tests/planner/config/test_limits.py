"""Input that is far too much, or no text at all, is refused quickly and in one sentence."""

# ruff: noqa: E501  (the long lines are what a user reads)

import time
from pathlib import Path

import pytest

from planner.config import load
from planner.config.files import MAX_BYTES
from planner.model.diagnostic import Failure
from tests.planner.config.given import CLUSTERS, loaded, mistakes, mistakes_alone

pytestmark = pytest.mark.slow

TOPIC = "topics: [{name: orders, cluster: dc1}]\n"


@pytest.fixture
def quickly():
    started = time.process_time()
    yield
    assert time.process_time() - started < 60  # what is not refused takes minutes


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.usefixtures("quickly")
def test_a_yaml_bomb_is_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path, bomb(20)) == [
        "6:25: more than 500,000 values, aliases expanded — use fewer aliases, or split the topology"
    ]


@pytest.mark.usefixtures("quickly")
def test_a_bomb_of_merges_is_refused(tmp_path: Path) -> None:
    keys = ", ".join(f"k{n}: x" for n in range(1000))
    text = f"a: &a {{{keys}}}\nb: {{<<: [{', '.join(['*a'] * 2000)}]}}\n"
    assert mistakes(tmp_path, text)[0].endswith("use fewer aliases, or split the topology")


@pytest.mark.usefixtures("quickly")
def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "t.yaml").open("wb") as opened:
        opened.truncate(100 * 2**20)
    assert mistakes_of_file(tmp_path) == [
        f"{tmp_path / 't.yaml'}: larger than 32 MiB — that is no topology; split it into several files if it is one"
    ]


def mistakes_of_file(folder: Path) -> list[str]:
    with pytest.raises(Failure) as raised:
        load(folder / "t.yaml")
    return [str(one) for one in raised.value.diagnostics]


@pytest.mark.usefixtures("quickly")
def test_a_large_file_of_nonsense_is_refused(tmp_path: Path) -> None:
    content = ("- x\n" * (MAX_BYTES // 4 - 10)).encode()
    assert mistakes_alone(tmp_path, content) == [
        "500000:3: more than 500,000 values, aliases expanded — use fewer aliases, or split the topology"
    ]


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused(opening: str, tmp_path: Path) -> None:
    found = mistakes_alone(tmp_path, opening * 100_000)
    assert len(found) == 1
    assert "nested deeper than 50 levels" in found[0]


def test_aliases_of_deep_anchors_are_refused(tmp_path: Path) -> None:
    chain = [f"v{at}: &v{at} {'[' * 40}*v{at - 1}{']' * 40}" for at in range(1, 100)]
    (found,) = mistakes_alone(tmp_path, "\n".join(["v0: &v0 [x]", *chain]))
    assert found.startswith("3:49: nested deeper than 50 levels")


def test_many_files_are_limited_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(f"# {'x' * (20 * 2**20)}\n")
    (tmp_path / "t.yaml").write_text(CLUSTERS + TOPIC)
    with pytest.raises(Failure, match="with this file the topology is larger than 32 MiB"):
        load(tmp_path)


TEXT = {
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00\x00", "1:8: not a text file (it holds a zero byte)"),
    "a control character": (b"name: \x07\n", "1:7: a control character"),
    "not UTF-8": ("name: caf\xe9\n".encode("latin-1"), "1:10: not text in UTF-8 (byte 0xe9)"),
    "UTF-16 without its mark": (
        "name: a\n".encode("utf-16-le"),
        "1:2: not a text file (it holds a zero byte)",
    ),
}


@pytest.mark.parametrize("case", TEXT)
def test_what_is_no_text_is_said_so(case: str, tmp_path: Path) -> None:
    content, expected = TEXT[case]
    (found,) = mistakes_alone(tmp_path, content)
    assert found.startswith(expected)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_unicode_encoding_and_line_end_reads_alike(encoding: str, newline: str, tmp_path: Path) -> None:
    text = CLUSTERS + "topics:\n  - {name: orders, cluster: dc1}\n  - {name: ledger, cluster: dc9} # ≠\n"
    found = mistakes_alone(tmp_path, text.replace("\n", newline).encode(encoding))
    assert found == ['8:29: there is no cluster "dc9" — did you mean "dc2"?']


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n---\n", "---\n...\n", "{}\n", "~\n"])
def test_an_empty_file_is_an_error(text: str, tmp_path: Path) -> None:
    (found,) = mistakes_alone(tmp_path, text)
    assert "the file is empty — write a topology, or start one with `repl init`" in found


@pytest.mark.parametrize(
    "text", ["clusters:\n  dc1:\n    sasl.password: 'hunter2\n", "a: hunter2: b\n", "a: [hunter2\nb: c\n"]
)
def test_no_error_repeats_the_line_it_points_at(text: str, tmp_path: Path) -> None:
    assert all("hunter2" not in line for line in mistakes_alone(tmp_path, text))


def test_aliases_and_merges_work(tmp_path: Path) -> None:
    topology = loaded(
        tmp_path,
        """
        topics:
          - &first {name: a, cluster: dc1, partitions: 3, config: &kept {retention.ms: 7d}}
          - {<<: *first, name: b}
          - {<<: [{partitions: 5, cluster: dc2}, *first], name: c, config: {<<: *kept, segment.ms: 1h}}
        """,
    )
    assert [(one.cluster, one.name, one.partitions, dict(one.config)) for one in topology.topics] == [
        ("dc1", "a", 3, {"retention.ms": "604800000"}),
        ("dc1", "b", 3, {"retention.ms": "604800000"}),
        ("dc2", "c", 5, {"retention.ms": "604800000", "segment.ms": "3600000"}),
    ]
