"""The plan as JSON text."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from planner.model.diagnostic import Diagnostic
from planner.model.forecast import Simulation
from planner.model.plan import Plan
from planner.plan.document import FORMAT_VERSION, diagnostic_tree, json_tree


def json_text(plan: Plan, signature: str | None = None, simulation: Simulation | None = None) -> str:
    """Returns the plan as JSON text. `signature` is the result of checking a saved plan's signature."""
    tree = json_tree(plan)
    if signature is not None:
        tree["signature"] = signature
    if simulation is not None:
        tree["simulation"] = [{**asdict(flow), "keeps_up": flow.keeps_up} for flow in simulation]
    return as_json(tree)


def as_json(tree: Any) -> str:
    """Returns indented JSON text."""
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode()


def failure_tree(diagnostics: tuple[Diagnostic, ...]) -> dict[str, Any]:
    """Returns the tree for a plan that could not be made."""
    return {
        "format_version": FORMAT_VERSION,
        "complete": False,
        "errored": True,
        "applyable": False,
        "changed": False,
        "resource_changes": [],
        "diagnostics": diagnostic_trees(diagnostics),
    }


def diagnostic_trees(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Returns diagnostics as `--json` prints them in every command."""
    return [diagnostic_tree(diagnostic) for diagnostic in diagnostics]
