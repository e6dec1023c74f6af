"""The PromQL of the dashboards and of the alert rules."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import runtime.metrics

_FOLDER = Path(runtime.metrics.__file__).parent / "dashboards"
BOARDS = sorted(_FOLDER.glob("*.json"))
ALERTS = _FOLDER / "alerts.yaml"
DOCS = Path(__file__).parents[3] / "docs"
_VARIABLES = {"$instance": ".*", "$flow": ".*", "$slot": ".*"}


@functools.cache
def alerts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return found


def panels(window: str = "1m") -> Iterator[tuple[str, str]]:
    """Each expression of each panel as Grafana would send it, with all of everything chosen."""
    for board in BOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{board.stem}: {panel['title']}", _chosen(target["expr"], window)


def expressions() -> list[str]:
    return sorted({expression for _, expression in panels()} | {rule["expr"] for rule in alerts()})


def _chosen(expression: str, window: str) -> str:
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression.replace("$__rate_interval", window)
