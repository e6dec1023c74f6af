"""`repl plan --untrusted`: the checks before a machine with credentials plans a pull request."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.graph.lints.security import CLEAR_TEXT, UNCHECKED
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error
from runtime.contract.client.secrets import ALLOW_BOOTSTRAP, ALLOW_ENV, ALLOW_FILES, not_set

# Warnings of a trusted topology that are errors of an untrusted one: its author could read what is sent.
_REFUSED = frozenset({CLEAR_TEXT, UNCHECKED})
_WHAT = {
    ALLOW_ENV: "the environment variables that a topology may use, for example DC1_*",
    ALLOW_FILES: "the folders whose files it may use, for example /run/secrets",
    ALLOW_BOOTSTRAP: "the addresses it may connect to, for example *.example.org:9093",
}


def check_operator(environ: Mapping[str, str] | None = None) -> None:
    """Failure names every list that the operator has not set: without one, everything would be allowed."""
    missing = not_set(os.environ if environ is None else environ)
    if missing:
        raise Failure(
            [
                error(
                    f"--untrusted needs {name} in the environment",
                    f"set it to {_WHAT[name]}",
                    code="untrusted",
                )
                for name in missing
            ]
        )


def check_options(path: Path, var_files: Iterable[Path], rollback: str | None) -> None:
    """Failure for options that would give the topology more than its own folder."""
    folder = (path if path.is_dir() else path.parent).resolve()
    for file in var_files:
        if not file.resolve().is_relative_to(folder):
            what = f"--untrusted takes no variables from {file}: the topology could show what stands in it"
            raise Failure(error(what, f"name a file below {folder}", code="untrusted"))
    if rollback is not None:
        raise Failure(
            error(
                "--untrusted does not go with --rollback",
                "plan a rollback from the topology that was merged",
                code="untrusted",
            )
        )


def judged(found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns the diagnostics of the topology. Failure where an untrusted one may not have them."""
    strict = tuple(
        replace(one, severity=Severity.ERROR, exit=ExitCode.ERROR) if one.code in _REFUSED else one
        for one in found
    )
    if any(one.severity is Severity.ERROR for one in strict):
        raise Failure(strict)
    return strict
