"""Diagnostics are values: they are gathered, sorted and shown together, never printed where they arise.

So is the progress of work that takes long.
"""

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import PurePath

from msgspec import Struct


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class ExitCode(IntEnum):
    """The exit codes of the command line, which CI depends on."""

    DONE = 0
    ERROR = 1
    DIFFERENT = 2
    REFUSED = 3
    STALE = 4
    INTERRUPTED = 130


class SourceLocation(Struct, frozen=True, order=True):
    """A place in a file that the user wrote."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def folder_of(source: SourceLocation | None) -> PurePath:
    """Returns the folder at which relative paths start that stand at this place; "." without a place."""
    return PurePath(source.file).parent if source is not None else PurePath()


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong, where, and what to do."""

    severity: Severity
    summary: str
    hint: str = ""
    _: KW_ONLY
    address: str | None = None
    source: SourceLocation | None = None
    code: str = ""
    exit: ExitCode = ExitCode.ERROR

    @property
    def place(self) -> str:
        """Returns the place in the file, and the object where the summary does not name it."""
        named = self.address is None or (self.source is not None and self._is_named(self.address))
        parts = (self.source, None if named else self.address)
        return ": ".join(str(part) for part in parts if part is not None)

    def _is_named(self, address: str) -> bool:
        return re.search(rf"(?<![\w.-]){re.escape(address)}(?![\w.-])", self.summary) is not None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        tail = f" — {self.hint}" if self.hint else ""
        return f"{where}{self.summary}{tail}"


error = partial(Diagnostic, Severity.ERROR)  # the plan can't be applied
# The plan can be applied, and has a consequence to know.
warning = partial(Diagnostic, Severity.WARNING, exit=ExitCode.DONE)
note = partial(Diagnostic, Severity.NOTE, exit=ExitCode.DONE)


class Failure(Exception):
    """The only exception that reaches the command line: shows its diagnostics and sets the exit code."""

    def __init__(
        self, diagnostics: Diagnostic | Iterable[Diagnostic], exit_code: ExitCode | None = None
    ) -> None:
        gathered = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in gathered))
        self.diagnostics = gathered
        self.exit_code = exit_code if exit_code is not None else worst(gathered)


def worst(diagnostics: Iterable[Diagnostic]) -> ExitCode:
    """Returns the exit code: a refusal goes before a stale plan, and a stale plan before an error."""
    codes = {diagnostic.exit for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR}
    for code in (ExitCode.REFUSED, ExitCode.STALE, ExitCode.ERROR):
        if code in codes:
            return code
    return ExitCode.DONE


class WorkProgress(Struct, frozen=True):
    """`done` of `total` parts of some work are complete; a total of 0 is not known.

    `subject` is a cluster that is read, or the command that runs Spark. With `parts`, the count is news for a
    log too: `compared 3 of 40 stretches`.
    """

    subject: str
    what: str
    done: int = 0
    total: int = 0
    parts: str = ""
