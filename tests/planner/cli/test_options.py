"""Options and arguments as a person writes them, and what a command gets of them."""

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli.app import root
from planner.cli.command import ApprovedOutput, CommandWithWords, command
from planner.cli.inspection import start
from planner.workflows.options import OFFSET_RANGE, PATTERN, PERCENT, RATE
from planner.workflows.requests import (
    ChangeRequest,
    ClusterRequest,
    ImportRequest,
    TranslateOffsetsRequest,
    record_place,
)
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


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--lock-timeout", "5 parsecs"], '"5 parsecs" is '),
        (["x", "--path", "y"], "the topology is given twice: x and --path y"),
    ],
)
def test_what_a_command_refuses(arguments: list[str], why: str) -> None:
    done = CliRunner().invoke(change, arguments)
    assert (done.exit_code, why in done.output) == (2, True), done.output


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
    ("read", "text", "value"),
    [
        (OFFSET_RANGE.read, "10:20", (10, 20, None)),
        (OFFSET_RANGE.read, "10:", (10, None, None)),
        (OFFSET_RANGE.read, ":20", (None, 20, None)),
        (OFFSET_RANGE.read, "last:500", (None, None, 500)),
        (PERCENT.read, "2.5%", 2.5),
        (RATE.read, "20MB/s", 20_000_000),
        (record_place, "orders:0:42", ("orders", 0, 42, None)),
        (record_place, "a.b_c-d:12:0", ("a.b_c-d", 12, 0, None)),
        (record_place, "orders:1@1700000000000", ("orders", 1, None, 1_700_000_000_000)),
        (record_place, "orders:1@2023-11-14T22:13:20Z", ("orders", 1, None, 1_700_000_000_000)),
        (record_place, "orders:1@2023-11-14T23:13:20+01:00", ("orders", 1, None, 1_700_000_000_000)),
        (record_place, "orders:1@2023-11-14T22:13:20.5Z", ("orders", 1, None, 1_700_000_000_500)),
        (start, "earliest", Earliest()),
        (start, "latest", Latest()),
        (start, "3:4711", (3, 4711)),
        (start, "2026-01-31T12:00:00Z", AtTimestamp(1_769_860_800_000)),
    ],
)
def test_what_is_read_of_a_word(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (OFFSET_RANGE.read, "20:10", "is none of FROM:TO"),
        (OFFSET_RANGE.read, "last:", "is none of FROM:TO"),
        (PERCENT.read, "0%", "is no share"),
        (PERCENT.read, "many", "is no share"),
        (PERCENT.read, "101", "is no share"),
        (RATE.read, "20", "is no rate"),
        (PATTERN.read, "a(", "is no regular expression"),
        (record_place, "orders", "orders:0@2026-01-31T08:00"),
        (record_place, "orders:0", "orders:0@2026-01-31T08:00"),
        (record_place, "orders:x:1", "orders:0@2026-01-31T08:00"),
        (record_place, "o:0:-1", "orders:0@2026-01-31T08:00"),
        (record_place, ":0:1", "orders:0@2026-01-31T08:00"),
        (record_place, "orders:0@soon", "write it as 2026-01-01T00:00:00Z"),
        (record_place, "orders:0@2023-11-14T22:13:20", "write the zone"),
    ],
)
def test_a_word_that_makes_no_sense_is_refused(read: Callable[[str], object], text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)
