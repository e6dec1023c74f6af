"""Everything that reaches a terminal leaves here: text from elsewhere is escaped, our own colours are kept.

`guarded` replaces stdout and stderr for one command, so that whatever is written there is escaped. Colours go
round it by `say`, and by the consoles of `printing`, which escape the text before they style it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

import click

from planner.cli.colour import coloured
from planner.render import escape


class _Guarded:
    """A stream that escapes what is written to it. It has no `buffer`, by which bytes would go round it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str | bytes) -> int:
        """Bytes are text in UTF-8 here: click writes a shell's completions so."""
        words = text.decode(errors="replace") if isinstance(text, bytes) else text
        self.stream.write(escape.lines(words))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.stream, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Escapes what is written to stdout and stderr meanwhile."""
    before = sys.stdout, sys.stderr
    for stream in before:
        # A terminal that is not UTF-8 shows an escape where it has no sign: that is no reason to stop.
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = (cast("TextIO", _Guarded(one)) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unguarded(*, err: bool = False) -> IO[str]:
    """The stream itself, for text that is escaped already and then styled."""
    stream = sys.stderr if err else sys.stdout
    return stream.stream if isinstance(stream, _Guarded) else stream


def say(
    text: str, *, label: str = "", colour: str | None = None, bold: bool = False, err: bool = False
) -> None:
    """One message, which may have several lines. The colour is the label's where there is one."""
    safe = escape.indented(text)
    styled = click.style(label or safe, fg=colour, bold=bold)
    words = f"{styled} {safe}" if label else styled
    click.echo(words, file=unguarded(err=err), color=coloured())
