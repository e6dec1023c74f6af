"""The real command as a real process, for tests of what a person sees."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import forkserver

REPL = (sys.executable, "-m", "planner")
HERE = Path(__file__).resolve().parent.parent


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    changed = {"PYTHONPATH": str(HERE), **os.environ, **changes}
    return {key: value for key, value in changed.items() if value is not None}


_AT_START = forkserver.read_at_start(environment({}))


def repl(
    *arguments: str,
    env: Mapping[str, str | None] | None = None,
    timeout: float = 240.0,
    through: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `through` is a command that runs it in its place.

    It is forked by a server, unless its environment can only be had from the start of an interpreter.
    """
    wanted, usual = environment(env or {}), environment({})
    if not through and forkserver.read_at_start(wanted) == _AT_START:
        return forkserver.next_server(usual).run(arguments, wanted, timeout)
    return subprocess.run(
        [*through, *REPL, *arguments],
        env=wanted,
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
