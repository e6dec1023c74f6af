"""Publishes the language: a JSON Schema for editors, Markdown for people, and a commented starter file."""

import json
from importlib.resources import files

from planner.config.schema.publish import json_schema, reference


def starter() -> str:
    """Returns the commented topology that `repl init` writes."""
    return files(__name__).joinpath("starter.yaml").read_text(encoding="utf-8")


def schema_text() -> str:
    """Returns the JSON Schema as `repl init` writes it, beside the topology."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


__all__ = ["json_schema", "reference", "schema_text", "starter"]
