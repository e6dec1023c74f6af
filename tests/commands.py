"""The real command as a real process, for tests of what a person sees."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPL = (sys.executable, "-m", "planner")
HERE = Path(__file__).resolve().parent.parent


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    changed = {"PYTHONPATH": str(HERE), **os.environ, **changes}
    return {key: value for key, value in changed.items() if value is not None}


def repl(
    *arguments: str,
    env: Mapping[str, str | None] | None = None,
    timeout: float = 240.0,
    through: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `through` is a command that runs it in its place."""
    return subprocess.run(
        [*through, *REPL, *arguments],
        env=environment(env or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def begin(*arguments: str, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[str]:
    """Start it in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [*REPL, *arguments],
        env=environment(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
