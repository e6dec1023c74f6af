"""Defines what the operator lets a topology use: environment variables, folders and addresses.

The three lists come from the environment alone. A list that is not set has a default; a list that is set and
empty allows nothing.

    REPL_ALLOW_ENV        names of variables, separated by commas; `DC1_*` stands for all that begin so
    REPL_ALLOW_FILES      folders, separated by commas
    REPL_ALLOW_BOOTSTRAP  host or host:port, separated by commas; `*` stands for any run of characters
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ALLOW_ENV = "REPL_ALLOW_ENV"
ALLOW_FILES = "REPL_ALLOW_FILES"
ALLOW_BOOTSTRAP = "REPL_ALLOW_BOOTSTRAP"
VARIABLES = (ALLOW_ENV, ALLOW_FILES, ALLOW_BOOTSTRAP)

# Secrets are usually mounted here.
USUAL_FOLDERS = ("/run/secrets", "/etc/repl")
# The system generates the content of these: the environment of processes, devices.
_GENERATED_FOLDERS = tuple(Path(folder) for folder in ("/proc", "/sys", "/dev"))
# Secrets of repl itself: no topology may use them.
_OWN_SECRETS = frozenset({"REPL_PLAN_KEY"})


@dataclass(frozen=True, slots=True)
class Allowances:
    """Holds the operator's three lists. None stands for a list that is not set."""

    variables: tuple[str, ...] | None = None
    folders: tuple[str, ...] | None = None
    addresses: tuple[str, ...] | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Allowances:
        """Reads the lists from the environment."""
        return cls(*(_listed(environ.get(name)) for name in VARIABLES))

    def allows_variable(self, name: str) -> bool:
        """Returns whether a topology may use this environment variable."""
        if name in _OWN_SECRETS:
            return False
        return self.variables is None or any(
            name.startswith(one[:-1]) if one.endswith("*") else name == one for one in self.variables
        )

    def allows_address(self, host: str, port: int) -> bool:
        """Returns whether clients may connect to this address."""
        if self.addresses is None:
            return True
        return any(_matches(pattern, host, port) for pattern in self.addresses)

    def allows_file(self, path: Path, defaults: Iterable[Path] | None) -> bool:
        """Returns whether a file may be read, after its links are resolved.

        `defaults` are the folders that are allowed where the operator set no list; None stands for every
        folder.
        """
        real = path.resolve()
        if is_made_up(real):
            return False
        if self.folders is not None:
            folders: Iterable[Path] | None = [Path(one) for one in self.folders]
        else:
            folders = defaults
        return folders is None or any(real.is_relative_to(folder.resolve()) for folder in folders)


def is_made_up(path: Path) -> bool:
    """Returns whether the system generates the content of this path: processes, devices."""
    return any(path.is_relative_to(folder) for folder in _GENERATED_FOLDERS)


def not_set(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the lists that the operator has not set."""
    return tuple(name for name in VARIABLES if name not in environ)


def _listed(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part for part in (one.strip() for one in text.split(",")) if part)


def _matches(pattern: str, host: str, port: int) -> bool:
    """Matches `host`, `host:port`, `[v6]` or `[v6]:port`; case and a final dot do not count."""
    if pattern.startswith("["):
        wanted, _, rest = pattern[1:].partition("]")
        wanted_port = rest.removeprefix(":")
    elif pattern.count(":") > 1:
        wanted, wanted_port = pattern, ""
    else:
        wanted, _, wanted_port = pattern.partition(":")
    if wanted_port not in ("", "*") and wanted_port != str(port):
        return False
    return _host_matches(wanted, host)


def _host_matches(pattern: str, host: str) -> bool:
    parts = (re.escape(part) for part in _folded(pattern).split("*"))
    return re.fullmatch(".*".join(parts), _folded(host)) is not None


def _folded(host: str) -> str:
    return host.lower().removesuffix(".")
