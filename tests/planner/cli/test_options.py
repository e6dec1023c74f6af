"""The options that commands share, on a command of their own."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli import options


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
