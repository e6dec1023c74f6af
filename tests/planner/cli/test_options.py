"""Options and arguments as a person writes them, and what a command gets of them."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli import options
from planner.cli.locate import RecordPosition, parse_place
from planner.cli.options import PatternParam, RateParam
from planner.cli.read import StartParam
from planner.cli.verify import OffsetBounds, PercentParam, RangeParam
from planner.model.diagnostic import Failure
from runtime.audit.read.records import ReadFromEarliest, ReadFromOffset, ReadFromTimestamp, ReadNewest, Start


@click.command()
@options.topology_path
@options.var_file_option
@options.json_option
@options.auto_approve_option
@options.lock_timeout_option
def command(
    path: Path, var_files: tuple[Path, ...], as_json: bool, auto_approve: bool, lock_timeout: int
) -> None:
    click.echo(f"{path} {[str(file) for file in var_files]} {as_json} {auto_approve} {lock_timeout}")


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
    assert CliRunner().invoke(command, arguments).output == expected


@pytest.mark.parametrize("text", ["60", "soon", "-5s", "5 parsecs"])
def test_a_duration_that_is_none(text: str) -> None:
    done = CliRunner().invoke(command, ["--lock-timeout", text])
    assert done.exit_code == 2
    assert f'"{text}" is ' in done.output


def test_a_path_given_twice_is_an_error() -> None:
    done = CliRunner().invoke(command, ["x", "--path", "y"])
    assert done.exit_code == 2
    assert "the topology is given twice: x and --path y" in done.output


@click.command()
@click.argument("cluster")
@click.argument("topic", required=False)
@options.topology_path_after("topic")
def one_topic(cluster: str, topic: str | None, path: Path) -> None:
    click.echo(f"{cluster} {topic} {path}")


@click.command()
@click.argument("clusters", nargs=-1)
@options.topology_path_after("clusters", repeated=True)
def some_clusters(clusters: tuple[str, ...], path: Path) -> None:
    click.echo(f"{' '.join(clusters)} at {path}")


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
        ("10:20", OffsetBounds(10, 20)),
        ("10:", OffsetBounds(10)),
        (":20", OffsetBounds(None, 20)),
        ("last:500", OffsetBounds(None, None, 500)),
    ],
)
def test_ranges(text: str, bounds: OffsetBounds) -> None:
    assert RangeParam().convert(text, None, None) == bounds


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (RangeParam(), "20:10", "is none of FROM:TO"),
        (RangeParam(), "last:", "is none of FROM:TO"),
        (PercentParam(), "0%", "is no share"),
        (PercentParam(), "many", "is no share"),
        (PercentParam(), "101", "is no share"),
        (RateParam(), "20", "is no rate"),
        (PatternParam(), "a(", "is no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: click.ParamType[object], text: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        kind.convert(text, None, None)


def test_shares_and_rates() -> None:
    assert PercentParam().convert("2.5%", None, None) == 2.5
    assert RateParam().convert("20MB/s", None, None) == 20_000_000


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


FROM: list[tuple[str, Start]] = [
    ("earliest", ReadFromEarliest()),
    ("latest", ReadNewest()),
    ("3:4711", ReadFromOffset(3, 4711)),
    ("2026-01-31T12:00:00Z", ReadFromTimestamp(1_769_860_800_000)),
]


@pytest.mark.parametrize(("text", "start"), FROM)
def test_where_to_read_from(text: str, start: Start):
    assert StartParam().convert(text, None, None) == start
