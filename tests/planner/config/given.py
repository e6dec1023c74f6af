"""Short ways to write a topology and to read what is wrong with it."""

import textwrap
from pathlib import Path

from planner.config import load, load_with_warnings
from planner.model.diagnostic import Diagnostic, Failure, Severity
from planner.model.topology import Topology

CLUSTERS = """\
apiVersion: repl/v1
name: test
clusters:
  dc1: {bootstrap: "127.0.0.1:19092"}
  dc2: {bootstrap: "127.0.0.1:29092"}
"""
LINES_BEFORE = CLUSTERS.count("\n")  # what is written in a test begins at the line behind


def written(folder: Path, text: str, name: str = "t.yaml") -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def loaded(folder: Path, text: str, *var_files: Path) -> Topology:
    """The topology of two clusters and what the test adds."""
    return load(written(folder, CLUSTERS + textwrap.dedent(text)), var_files)


def mistakes(folder: Path, text: str, *var_files: Path) -> list[str]:
    """Errors as `line:column: what — how to mend it`, lines counted in the text of the test."""
    try:
        load(written(folder, CLUSTERS + textwrap.dedent(text)), var_files)
    except Failure as failure:
        found = [one for one in failure.diagnostics if one.severity is Severity.ERROR]
        assert all(one.hint for one in found)
        return [_short(one, LINES_BEFORE) for one in found]
    return []


def mistakes_alone(folder: Path, text: str | bytes) -> list[str]:
    """The same for a file that the test writes as a whole."""
    file = folder / "t.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        load(file)
    except Failure as failure:
        return [_short(one, 0) for one in failure.diagnostics if one.severity is Severity.ERROR]
    return []


def said_of(folder: Path, text: str, severity: Severity) -> list[str]:
    """Errors or warnings of a topology, behind two clusters if it is not a whole one."""
    alone = text.startswith(("apiVersion", "name: a", "# no topology"))
    file = written(folder, text if alone else CLUSTERS + text)
    try:
        found = load_with_warnings(file).warnings
    except Failure as failure:
        found = tuple(one for one in failure.diagnostics if one.severity is severity)
    return [_short(one, 0 if alone else LINES_BEFORE) for one in found]


def warnings(folder: Path, text: str, *var_files: Path) -> list[str]:
    found = load_with_warnings(written(folder, CLUSTERS + textwrap.dedent(text)), var_files).warnings
    return [_short(one, LINES_BEFORE) for one in found]


def _short(one: object, lines_before: int) -> str:
    assert isinstance(one, Diagnostic)
    tail = f" — {one.hint}" if one.hint else ""
    if one.source is None:
        return f"{one.summary}{tail}"
    return f"{one.source.line - lines_before}:{one.source.column}: {one.summary}{tail}"
