"""Options and arguments as a person writes them, and what a command gets of them."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli.app import root
from planner.cli.command import ApprovedOutput, CommandWithWords, command
from planner.cli.inspection import start
from planner.workflows.options import OFFSET_RANGE, PATTERN, PERCENT, RATE, TextFormat
from planner.workflows.requests import (
    ChangeRequest,
    ClusterRequest,
    ImportRequest,
    TranslateOffsetsRequest,
    record_place,
)
from runtime.audit.read.records import Start
from runtime.contract.spec.flow import AtTimestamp, Earliest, Latest


@command
def change(request: ChangeRequest, output: ApprovedOutput) -> int:
    files = [str(file) for file in request.var_files]
    click.echo(f"{request.path} {files} {output.as_json} {output.auto_approve} {request.lock_timeout_ms}")
    return 0


@pytest.mark.parametrize("name", ["status", "ui"])
def test_clusters_are_not_read_without_a_pause(name: str) -> None:
    done = CliRunner().invoke(root, [name, "--every", "0s"])
    assert (done.exit_code, '"0s" is less than 100ms' in done.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ". [] False False 60000\n"),
        (["--path", "x", "--var-file", "a", "--var-file", "b"], "x ['a', 'b'] False False 60000\n"),
        (["x"], "x [] False False 60000\n"),
        (["x", "--path", "x"], "x [] False False 60000\n"),
        (["--json", "--auto-approve", "--lock-timeout", "2m"], ". [] True True 120000\n"),
    ],
)
def test_what_a_command_gets(arguments: list[str], expected: str) -> None:
    assert CliRunner().invoke(change, arguments).output == expected


@pytest.mark.parametrize("text", ["60", "soon", "-5s", "5 parsecs"])
def test_a_duration_that_is_none(text: str) -> None:
    done = CliRunner().invoke(change, ["--lock-timeout", text])
    assert done.exit_code == 2
    assert f'"{text}" is ' in done.output


def test_a_path_given_twice_is_an_error() -> None:
    done = CliRunner().invoke(change, ["x", "--path", "y"])
    assert done.exit_code == 2
    assert "the topology is given twice: x and --path y" in done.output


@command
def one_topic(request: ClusterRequest) -> int:
    click.echo(f"{request.cluster} {request.topic} {request.path}")
    return 0


@command
def translate(request: TranslateOffsetsRequest) -> int:
    click.echo(f"translate {request.flow} {request.file} {request.path}")
    return 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dc1", "orders"], "dc1 orders .\n"),
        (["translate", "f", "file"], "translate f file .\n"),
        (["translate", "f", "file", "--path", "x"], "translate f file x\n"),
        # A flow, or here a cluster, may have the name too: the words that follow are too few for the other.
        (["translate", "orders"], "translate orders .\n"),
        (["translate", "orders", "--path", "x"], "translate orders x\n"),
        (["translate"], "Missing argument"),
        (["translate", "--help"], "Usage: one-topic translate [OPTIONS]"),
        (["--help"], "Usage: one-topic [OPTIONS] CLUSTER"),
    ],
)
def test_a_first_word_that_is_a_command_of_its_own(arguments: list[str], expected: str) -> None:
    words = CommandWithWords(one_topic, translate)
    assert expected in CliRunner().invoke(words, arguments, prog_name="one-topic").output


@command
def some_clusters(request: ImportRequest) -> int:
    click.echo(f"{' '.join(request.clusters)} at {request.path}")
    return 0


@pytest.mark.parametrize(
    ("tried", "arguments", "expected"),
    [
        (one_topic, ["dc1"], "dc1 None .\n"),
        (one_topic, ["dc1", "orders"], "dc1 orders .\n"),
        (one_topic, ["dc1", "orders", "shop"], "dc1 orders shop\n"),
        (one_topic, ["dc1", "shop/"], "dc1 None shop\n"),
        (one_topic, ["dc1", "shop.yaml"], "dc1 None shop.yaml\n"),
        (one_topic, ["dc1", "orders.yaml"], "dc1 orders.yaml .\n"),
        (one_topic, ["dc1", "orders", "--path", "shop"], "dc1 orders shop\n"),
        (some_clusters, ["dc1", "dc2"], "dc1 dc2 at .\n"),
        (some_clusters, ["dc1", "dc2", "shop/"], "dc1 dc2 at shop\n"),
        (some_clusters, ["dc1", ".."], "dc1 at ..\n"),
        (some_clusters, [], " at .\n"),
    ],
)
def test_the_last_word_is_the_path_where_it_can_be_nothing_else(
    tried: click.Command, arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shop.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(tried, arguments).output == expected


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("10:20", (10, 20, None)),
        ("10:", (10, None, None)),
        (":20", (None, 20, None)),
        ("last:500", (None, None, 500)),
    ],
)
def test_ranges(text: str, bounds: tuple[int | None, ...]) -> None:
    assert OFFSET_RANGE.read(text) == bounds


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (OFFSET_RANGE, "20:10", "is none of FROM:TO"),
        (OFFSET_RANGE, "last:", "is none of FROM:TO"),
        (PERCENT, "0%", "is no share"),
        (PERCENT, "many", "is no share"),
        (PERCENT, "101", "is no share"),
        (RATE, "20", "is no rate"),
        (PATTERN, "a(", "is no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: TextFormat, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind.read(text)


def test_shares_and_rates() -> None:
    assert PERCENT.read("2.5%") == 2.5
    assert RATE.read("20MB/s") == 20_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("orders:0:42", ("orders", 0, 42, None)),
        ("a.b_c-d:12:0", ("a.b_c-d", 12, 0, None)),
        ("orders:1@1700000000000", ("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T22:13:20Z", ("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T23:13:20+01:00", ("orders", 1, None, 1_700_000_000_000)),
        ("orders:1@2023-11-14T22:13:20.5Z", ("orders", 1, None, 1_700_000_000_500)),
    ],
)
def test_places(text: str, place: tuple[str, int, int | None, int | None]) -> None:
    assert record_place(text) == place


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (text, "orders:0@2026-01-31T08:00")
            for text in ("orders", "orders:0", "orders:x:1", "o:0:-1", ":0:1")
        ),
        ("orders:0@soon", "write it as 2026-01-01T00:00:00Z"),
        ("orders:0@2023-11-14T22:13:20", "write the zone"),
    ],
)
def test_what_is_no_place_says_what_is(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        record_place(text)


FROM: list[tuple[str, Start]] = [
    ("earliest", Earliest()),
    ("latest", Latest()),
    ("3:4711", (3, 4711)),
    ("2026-01-31T12:00:00Z", AtTimestamp(1_769_860_800_000)),
]


@pytest.mark.parametrize(("text", "expected"), FROM)
def test_where_to_read_from(text: str, expected: Start):
    assert start(text) == expected
