"""Publishes the language: a JSON Schema for editors, Markdown for people, and a commented starter file."""

from importlib.resources import files

from planner.config.schema.publish import json_schema, reference


def starter() -> str:
    """Returns the commented topology that `repl init` writes."""
    return files(__name__).joinpath("starter.yaml").read_text(encoding="utf-8")


def schema_text() -> str:
    """Returns the JSON Schema as it is published with this release."""
    return files(__name__).joinpath("topology.schema.json").read_text(encoding="utf-8")


__all__ = ["json_schema", "reference", "schema_text", "starter"]
