"""What `--json` prints, where several commands print the same."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from planner.model.diagnostic import Diagnostic


def emit(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout. Each carries its own `format_version`."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def diagnostics(found: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return [
        {
            "severity": one.severity.value,
            "summary": one.summary,
            "way_out": one.way_out,
            "code": one.code,
            "address": one.address,
            "source": (
                {"file": one.source.file, "line": one.source.line, "column": one.source.column}
                if one.source
                else None
            ),
        }
        for one in found
    ]
