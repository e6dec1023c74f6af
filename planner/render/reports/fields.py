"""Writes fields of a value into a JSON document. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins


def json_fields(value: Any, *names: str) -> dict[str, Any]:
    """Returns these fields of a value."""
    return {name: to_builtins(getattr(value, name)) for name in names}
