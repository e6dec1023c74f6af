"""An exception that nothing expects: one line for the user, and the traceback in a file."""

import stat
from pathlib import Path

import pytest

from planner.cli import app
from runtime.contract.client.secrets import remember


def test_a_command_that_breaks_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("divided hush-hush by 0\nsecond line")

    remember("hush-hush")
    monkeypatch.setenv("REPL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(app.root, "main", broken)

    code = app.run(["plan"])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert line.startswith(
        "error: unexpected ZeroDivisionError: divided (sensitive value) by 0; its traceback is in "
    )
    (file,) = (tmp_path / "home" / "errors").iterdir()
    assert str(file) in line
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "in broken" in file.read_text()
