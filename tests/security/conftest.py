"""What a person or a program gets from the command."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from planner.cli.app import run


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """command("plan", file) → how `repl plan` ended in this process, and what it printed."""

    def ended(*arguments: object) -> Ended:
        code = run([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    return ended
