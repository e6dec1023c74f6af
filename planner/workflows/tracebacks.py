"""Tracebacks of exceptions that no handler expects: each is kept in a file, so that a user reads one line.

Two places need it: the steps of an apply, and the outermost edge of the command line.
"""

import os
import traceback
from collections.abc import Callable
from pathlib import Path


def traceback_reporter(
    folder: Path | None, name: str, show: Callable[[str], None]
) -> Callable[[BaseException], str]:
    """Returns a function that keeps a traceback in `folder/name.log` and says where it is.

    Only the file's owner may read it. `show` receives the traceback where no file can be written, and with
    REPL_LOG=debug as well.
    """

    def report(wrong: BaseException) -> str:
        text = "".join(traceback.format_exception(wrong))
        why_not = "there is no folder for it"
        if folder is not None:
            file = folder / f"{name}.log"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as opened:
                    opened.write(text)
            except OSError as failure:
                why_not = f"{file} can't be written: {failure.strerror}"
            else:
                if os.environ.get("REPL_LOG") == "debug":
                    show(text)
                return f"its traceback is in {file}"
        show(text)
        return f"its traceback stands above ({why_not})"

    return report
