"""`repl pause` and `repl resume` where nothing comes of it: the file stays as it was."""

from pathlib import Path

import pytest

from planner.cli.app import run
from planner.model.diagnostic import ExitCode

TEXT = """\
apiVersion: repl/v1
name: shop   # ours
clusters:
  dc1: {bootstrap: 127.0.0.1:1}
  dc2: {bootstrap: 127.0.0.1:1}
flows:
  - {name: there, from: dc1, to: dc2, topics: {include: orders}}   # the way there
  - {name: gone, from: dc1, to: dc2, topics: {include: old}, state: failed_over}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop.yaml"
    made.write_text(TEXT)
    return made


@pytest.mark.parametrize(
    ("command", "flow", "code", "said"),
    [
        ("pause", "ther", ExitCode.ERROR, "there is no flow ther in this topology — did you mean there?"),
        ("pause", "gone", ExitCode.REFUSED, "flow.gone is failed_over and can't be paused"),
        ("resume", "gone", ExitCode.REFUSED, "flow.gone is failed_over and can't be resumed"),
        ("pause", "there", ExitCode.ERROR, "nothing listens there"),
        ("resume", "there", ExitCode.ERROR, "nothing listens there"),
    ],
)
def test_nothing_came_of_it(
    file: Path,
    command: str,
    flow: str,
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [command, flow, "--path", str(file), "--auto-approve", "--timeout", "1s"]

    assert run(arguments) == code
    assert said in capsys.readouterr().err
    assert file.read_text() == TEXT
