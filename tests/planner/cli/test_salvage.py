"""`repl salvage --replay` where it is refused, before any cluster is asked."""

from pathlib import Path

import pytest

from planner.cli.app import run
from planner.model.diagnostic import ExitCode

TEXT = """\
apiVersion: repl/v1
name: shop
clusters:
  dc1: {bootstrap: 127.0.0.1:1}
  dc2: {bootstrap: 127.0.0.1:1}
flows:
  - {name: there, from: dc1, to: dc2, topics: {include: orders}}
  - {name: still, from: dc1, to: dc2, topics: {include: payments}, state: paused}
  - {name: gone, from: dc1, to: dc2, topics: {include: old}, state: failed_over}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop.yaml"
    made.write_text(TEXT)
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("there", "--replay"), ExitCode.REFUSED, "flow.there is active: it copies what is left"),
        (("still", "--replay"), ExitCode.REFUSED, "flow.still is paused: it copies what is left"),
        (("gone", "--replay"), ExitCode.ERROR, "dc1 can't be read"),
        (("gone", "--to", "aside"), ExitCode.ERROR, "--to goes with --replay"),
        (("gone", "--replay", "--export", "x"), ExitCode.ERROR, "--export and --replay are two commands"),
    ],
)
def test_refused(
    file: Path, arguments: tuple[str, ...], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["salvage", *arguments, "--path", str(file), "--timeout", "1s"]) == code
    assert said in capsys.readouterr().err
