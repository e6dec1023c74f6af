"""The options that commands share, on a command of their own."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli import options


@click.command()
@options.path_option
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
