"""Text to stdout and stderr: it is escaped here, and our own colours are kept.

`guarded` replaces stdout and stderr for one command, so that whatever is written there is escaped. Colours go
around it by `say`, and by the consoles of `console`, which escape the text before they style it. It imports
no rich: `repl --help` must stay quick.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import click

from planner.model.diagnostic import Diagnostic, Failure, error
from planner.render import readable

if TYPE_CHECKING:
    from planner.model.plan import Plan

_LINES_A_WRITE = 500
_NOWHERE = Path(os.devnull)
_SEVERITY_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


class _Writer:
    """A stream that writes what it can. After the first error the rest goes to nowhere, and the work goes on.

    It has no `buffer`: bytes could not be escaped there.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # Python has no stream where the command was started with a closed file descriptor.
        self.stream = stream if stream is not None else _NOWHERE.open("w")
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        with self._to_nowhere_after_an_error():
            self.stream.write(text)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        with self._to_nowhere_after_an_error():
            self.stream.flush()

    @contextmanager
    def _to_nowhere_after_an_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            self.failure = failure
            with _NOWHERE.open("w") as nowhere:  # what the stream still holds goes there, too
                os.dup2(nowhere.fileno(), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.stream, name)


class _Guarded(_Writer):
    """A writer that escapes what is written to it; its `unguarded` takes text that is escaped already."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__(stream)
        self.unguarded = _Writer(self.stream)

    def write(self, text: str | bytes) -> int:
        """Writes text. Bytes are UTF-8: click writes a shell's completions so."""
        words = text.decode(errors="replace") if isinstance(text, bytes) else text
        super().write(readable.lines(words))
        return len(text)


@contextmanager
def guarded() -> Iterator[None]:
    """Escapes what is written to stdout and stderr meanwhile. A stream that was closed leads to nowhere."""
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in before[1:]:
        # A terminal that is not UTF-8 shows an escape for a sign that it lacks.
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(errors="backslashreplace")
    sys.stdin = before[0] if before[0] is not None else _NOWHERE.open()
    sys.stdout, sys.stderr = (cast("TextIO", _Guarded(stream)) for stream in before[1:])
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def unguarded(*, err: bool = False) -> IO[str]:
    """Returns the stream itself, for text that is escaped already and then styled."""
    stream = sys.stderr if err else sys.stdout
    return cast("IO[str]", stream.unguarded) if isinstance(stream, _Guarded) else stream


def unwritten() -> OSError | None:
    """Returns why the rest of stdout went to nowhere: BrokenPipeError where its reader left (| head)."""
    stream = sys.stdout
    return stream.failure or stream.unguarded.failure if isinstance(stream, _Guarded) else None


def say(
    text: str, *, label: str = "", colour: str | None = None, bold: bool = False, err: bool = False
) -> None:
    """Prints one message, which may have several lines. The colour is the label's where there is one."""
    safe = readable.indented(text)
    styled = click.style(label or safe, fg=colour, bold=bold)
    words = f"{styled} {safe}" if label else styled
    # As click wants it: None is colour on a terminal alone, False never, as NO_COLOR asks.
    click.echo(words, file=unguarded(err=err), color=False if os.environ.get("NO_COLOR") else None)


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Prints diagnostics to stderr, each with its severity."""
    for diagnostic in diagnostics:
        severity = diagnostic.severity.value
        say(str(diagnostic), label=f"{severity}:", colour=_SEVERITY_COLOURS[severity], bold=True, err=True)


def emit(document: Mapping[str, Any]) -> None:
    """Prints one JSON document to stdout. Each carries its own `format_version`."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def emit_event(event: Mapping[str, Any]) -> None:
    """Prints one JSON event on a line of its own."""
    click.echo(json.dumps(event, ensure_ascii=False))


def write_report(file: Path, text: str) -> None:
    """Writes a report for people into a file. Failure where it can't be written."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{file}: the report can't be written: {why}", "name another file")) from None


def print_plan(plan: "Plan") -> None:
    """Prints a plan to stdout. Its errors are printed by the caller, on stderr."""
    from planner.render.plan.text import text

    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    print_lines(text(plan, width=width, colour=on_terminal and not os.environ.get("NO_COLOR")))


def print_lines(lines: Iterator[str]) -> None:
    """Prints lines that are escaped already to stdout, many at once, as long as they are read."""
    while unwritten() is None and (some := list(islice(lines, _LINES_A_WRITE))):
        click.echo("\n".join(some), file=unguarded())
