"""Input that is far too much, or no text at all, is refused quickly and in one sentence."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.config import load
from planner.config.files import MAX_BYTES
from planner.model.diagnostic import Failure
from tests.fakes.tables import cases
from tests.planner.config.given import CLUSTERS, loaded, mistakes_alone

pytestmark = pytest.mark.slow

TOPIC = "topics: [{name: orders, cluster: dc1}]\n"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


MERGES = f"a: &a {{{', '.join(f'k{n}: x' for n in range(1000))}}}\nb: {{<<: [{', '.join(['*a'] * 2000)}]}}\n"
TOO_MANY = "more than 500,000 values, aliases expanded — use fewer aliases, or split the topology"
TOO_DEEP = "nested deeper than 50 levels"


@cases(
    "text why",
    {
        "a bomb of aliases": (lambda: bomb(20), f"6:25: {TOO_MANY}"),
        "a bomb of merges": (lambda: MERGES, TOO_MANY),
        "a large file of nonsense": (lambda: "- x\n" * (MAX_BYTES // 4 - 10), f"500000:3: {TOO_MANY}"),
        "too large a file": (
            lambda: "\0" * (MAX_BYTES + 1),
            "larger than 32 MiB — that is no topology; split it",
        ),
        "deep lists": (lambda: "[" * 100_000, TOO_DEEP),
        "deep maps": (lambda: "{a: " * 100_000, TOO_DEEP),
        "deep blocks": (lambda: "- " * 100_000, TOO_DEEP),
        "deep keys": (lambda: "? " * 100_000, TOO_DEEP),
    },
)
def test_what_is_too_much_is_refused_quickly(text: Callable[[], str], why: str, tmp_path: Path) -> None:
    written = text().encode()
    started = time.process_time()
    (found, *_) = mistakes_alone(tmp_path, written)
    assert why in found
    assert time.process_time() - started < 60  # what is not refused takes minutes


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


EMPTY = "the file is empty — write a topology, or start one with `repl init`"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x7fELF\x02\x01\x01\x00\x00\x00", "1:8: not a text file (it holds a zero byte)"),
        (b"name: \x07\n", "1:7: a control character"),
        ("name: caf\xe9\n".encode("latin-1"), "1:10: not text in UTF-8 (byte 0xe9)"),
        ("name: a\n".encode("utf-16-le"), "1:2: not a text file (it holds a zero byte)"),
        *((text, EMPTY) for text in ("", "# nothing\n", "---\n---\n", "---\n...\n", "{}\n", "~\n")),
    ],
)
def test_what_is_no_text_and_what_holds_nothing_is_said_so(content: Any, why: str, tmp_path: Path) -> None:
    (found,) = mistakes_alone(tmp_path, content)
    assert why in found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_unicode_encoding_and_line_end_reads_alike(encoding: str, newline: str, tmp_path: Path) -> None:
    text = CLUSTERS + "topics:\n  - {name: orders, cluster: dc1}\n  - {name: ledger, cluster: dc9} # ≠\n"
    found = mistakes_alone(tmp_path, text.replace("\n", newline).encode(encoding))
    assert found == ['8:29: there is no cluster "dc9" — did you mean "dc2"?']


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
