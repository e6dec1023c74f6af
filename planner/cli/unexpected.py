"""Where the traceback of an exception that nothing expects is kept, so that a user reads one line."""

import os
import traceback
from pathlib import Path

import click

from planner.apply.executor import Report
from planner.model.diagnostic import Diagnostic, error
from runtime.contract.client.redaction import redacted


def unexpected(wrong: Exception) -> Diagnostic:
    """Keep the traceback of what ended a command, and return the line for the user."""
    home = Path(os.environ.get("REPL_HOME") or ".repl")
    where = reporting(home / "errors", f"command-{os.getpid()}")(wrong)
    text = redacted(str(wrong).splitlines()[0]) if str(wrong) else "no reason given"
    return error(
        f"unexpected {type(wrong).__name__}: {text}; {where}", "this is a mistake in repl: report it"
    )


def reporting(folder: Path | None, apply_id: str) -> Report:
    """Keeps tracebacks in one file of this apply, readable by its owner only; else shows them on stderr.

    REPL_LOG=debug shows them on stderr as well.
    """

    def report(wrong: BaseException) -> str:
        text = "".join(traceback.format_exception(wrong))
        why_not = "there is no folder for it"
        if folder is not None:
            file = folder / f"{apply_id}.log"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as opened:
                    opened.write(text)
            except OSError as failure:
                why_not = f"{file} can't be written: {failure.strerror}"
            else:
                if os.environ.get("REPL_LOG") == "debug":
                    click.echo(text, err=True)
                return f"its traceback is in {file}"
        click.echo(text, err=True)
        return f"its traceback stands above ({why_not})"

    return report
