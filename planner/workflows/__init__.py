"""This package offers the commands of `repl` as a Python API without a terminal. See docs/python.md.

    from planner.workflows import ApplyRequest, PlanRequest, apply, plan

Each workflow takes a frozen request and returns a frozen result; Failure holds the diagnostics of a
refused request. No module here prints, reads a terminal, or imports click and rich. The public
names are those of `__init__.pyi`, which type checkers read. Modules are loaded on first use.
"""

import ast
import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _modules() -> Mapping[str, str]:
    """Returns the module that defines each public name."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (statement for statement in stub.body if isinstance(statement, ast.ImportFrom))
    return {alias.name: str(each.module) for each in imports for alias in each.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_modules())
    if name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_modules()]
