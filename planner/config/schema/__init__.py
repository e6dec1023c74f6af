"""The language published: JSON Schema for editors, Markdown for people, a starter to begin with."""

from importlib.resources import files

from planner.config.schema.json_schema import json_schema
from planner.config.schema.reference import reference


def starter() -> str:
    """The commented topology that `repl init` writes."""
    return files(__name__).joinpath("starter.yaml").read_text(encoding="utf-8")


__all__ = ["json_schema", "reference", "starter"]
