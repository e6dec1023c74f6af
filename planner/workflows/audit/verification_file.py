"""Where a comparison remembers what it has done, so that it can go on after a cut."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import click
from msgspec.structs import replace

from planner.model.diagnostic import Failure, error
from planner.workflows.applying.launchers import launcher_home
from runtime.audit.verify.request import VerifyRequest, encode_request


@contextmanager
def verification_file(request: VerifyRequest, path: Path, *, resume: bool) -> Iterator[Path | None]:
    """One file for each comparison: the same flow, topics, range and sample, at whatever rate. None where
    nothing can be written: then it only can't go on.
    """
    from runtime.launch.folder import hold

    file = launcher_home(path) / "verify" / f"{quote(request.flow.name, safe='')}-{_digest(request)}.jsonl"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = hold(file.with_suffix(".lock"))
    except OSError as problem:
        click.echo(f"It can't go on after a cut: {file.parent}: {problem.strerror or problem}", err=True)
        yield None
        return
    if lock is None:
        raise Failure(error(f"the same comparison of {request.flow.name} runs already", "wait for its end"))
    try:
        if resume and not file.exists():
            click.echo("There is nothing to go on with: it begins at the beginning.", err=True)
        yield file
    except KeyboardInterrupt:
        if file.exists():
            click.echo("\nWhat was compared is kept: the same command with --resume goes on there.", err=True)
        raise
    finally:
        file.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


def _digest(request: VerifyRequest) -> str:
    asked = encode_request(replace(request, rate=None, within_s=0.0))
    return hashlib.sha256(asked).hexdigest()[:12]
