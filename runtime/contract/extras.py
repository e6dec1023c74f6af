"""This module knows the extras of the distribution, and the command that installs one that is missing.

The base talks to Kafka: it validates, plans, applies, shows the status and fails over. An import of a package
that an extra brings stands in a function, or in a module that the base does not import.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "kafka-repl"  # the command is `repl`, a name that another project has had since 2015


class Extra(StrEnum):
    """These are the extras, as pyproject.toml declares them."""

    SPARK = "spark"
    FILES = "files"
    UI = "ui"
    DRILL = "drill"
    POLICIES = "policies"
    KEYSTORES = "keystores"
    MSK = "msk"


_SPARK = ("pyspark", "py4j")  # where SPARK_HOME is set, they come from there

# The modules by which a process sees that an extra is there. Where two bring a module, the first is named.
_MODULES = {
    Extra.SPARK: (*_SPARK, "numpy", "pandas", "pyarrow", "fastavro", "prometheus_client", "uvloop"),
    Extra.FILES: ("obstore", "pyarrow"),
    Extra.UI: ("starlette", "uvicorn"),
    Extra.POLICIES: ("cel_expr_python",),
    Extra.DRILL: ("pytest", "pytest_bdd", "cryptography"),
    Extra.KEYSTORES: ("cryptography",),
    Extra.MSK: ("aws_msk_iam_sasl_signer",),
}


def extra_of(module: str) -> Extra | None:
    """Returns the extra that brings a module, None for a module of the base."""
    package = module.partition(".")[0]
    return next((extra for extra, modules in _MODULES.items() if package in modules), None)


def is_missing(extra: Extra, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a module of the extra is missing. Nothing is imported, so it takes no time."""
    elsewhere = _SPARK if environ.get("SPARK_HOME") else ()
    return any(find_spec(module) is None for module in _MODULES[extra] if module not in elsewhere)


def spark_package() -> Path | None:
    """Returns the folder of the package pyspark, which is not imported for it: that takes a second."""
    package = find_spec("pyspark")
    places = package.submodule_search_locations if package is not None else None
    return Path(places[0]) if places else None


def missing_extra(extra: Extra, what: str) -> tuple[str, str]:
    """Returns the error and the hint of a missing extra: what needs it, and the command to type."""
    return f"{what} needs the extra {extra}, which is not installed", install_command(extra)


def install_command(extra: Extra, environment: Path = Path(sys.prefix)) -> str:
    """Returns the command that adds the extra to an environment, that of this process unless said.

    `uv tool` and pipx install an environment as a whole, so the extras that are there are named again.
    """
    together = sorted({extra, *(other for other in Extra if not is_missing(other))})
    whole = shlex.quote(f"{DISTRIBUTION}[{','.join(together)}]")
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {whole}"
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {whole}"
    python = shlex.quote(sys.executable)
    added = shlex.quote(f"{DISTRIBUTION}[{extra}]")
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {added}"
    return f"{python} -m pip install {added}"
