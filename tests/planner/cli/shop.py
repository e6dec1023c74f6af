"""A topology whose clusters nobody listens at, for commands of which nothing may come."""

from pathlib import Path

import pytest

from planner.cli.app import run
from planner.model.diagnostic import ExitCode

HEAD = """\
apiVersion: repl/v1
name: shop   # ours
clusters:
  dc1: {bootstrap: 127.0.0.1:1}
  dc2: {bootstrap: 127.0.0.1:1}
flows:
"""


def shop(folder: Path, flows: str) -> Path:
    file = folder / "shop.yaml"
    file.write_text(HEAD + flows)
    return file


def refused(
    file: Path, code: ExitCode, said: str, capsys: pytest.CaptureFixture[str], *arguments: str
) -> None:
    """It ends with the code and says why; the file stays as it was."""
    before = file.read_text()

    assert run([*arguments, "--path", str(file), "--auto-approve"]) == code
    assert said in capsys.readouterr().err
    assert file.read_text() == before
