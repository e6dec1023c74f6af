"""What `repl locate` and `repl offsets` are asked, read from the command line."""

import pytest

from planner.cli.locate import RecordPosition, parse_place
from planner.model.diagnostic import Failure
from tests.commands import repl

EXAMPLE = "plans/examples/active-active.yaml"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("orders:0:42", RecordPosition("orders", 0, 42, None)),
        ("a.b_c-d:12:0", RecordPosition("a.b_c-d", 12, 0, None)),
        ("orders:1@1700000000000", RecordPosition("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T22:13:20Z", RecordPosition("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T23:13:20+01:00", RecordPosition("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T22:13:20.5", RecordPosition("orders", 1, None, 1_700_000_000_500)),
    ],
)
def test_places(text: str, place: RecordPosition) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["orders", "orders:0", "orders:x:1", "orders:0:-1", ":0:1", "orders:0@soon"])
def test_what_is_no_place_says_what_is(text: str) -> None:
    with pytest.raises(Failure, match="2026-01-31T08:00:00Z"):
        parse_place(text)


def test_a_flow_that_is_not_there_names_those_that_are() -> None:
    for command in (("offsets", "nope", "g"), ("locate", "nope", "orders:0:1")):
        said = repl(*command, "--path", EXAMPLE)
        assert said.returncode == 1
        assert "there is no flow nope in this topology — its flows: dc1-to-dc2, dc2-to-dc1" in said.stderr


def test_a_destination_that_does_not_answer_is_one_sentence(tmp_path) -> None:
    topology = tmp_path / "repl.yaml"
    topology.write_text(
        "apiVersion: repl/v1\nname: t\nclusters:\n  a: {bootstrap: '127.0.0.1:1'}\n"
        "  b: {bootstrap: '127.0.0.1:2'}\nflows:\n"
        "  - {name: f, from: a, to: b, topics: {include: [orders]}}\n"
    )
    said = repl("offsets", "f", "g", "--path", str(topology), "--timeout", "2s")
    assert said.returncode == 1
    assert said.stderr.startswith("error: b: ")
    assert "— is b up, and is its bootstrap right?" in said.stderr
    assert "Traceback" not in said.stderr
