"""`repl validate`: the checks of a topology that need no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option, policy_option, topology_path, var_file_option
from planner.cli.output import diagnostic_trees, emit, show
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity

if TYPE_CHECKING:
    from planner.model.topology import Topology
    from planner.workflows.topology import TopologyRequest

FORMAT_VERSION = 1


@click.command()
@topology_path
@var_file_option
@policy_option
@json_option
def command(path: Path, var_files: tuple[Path, ...], policies: tuple[Path, ...], as_json: bool) -> int:
    """Check a topology offline: no cluster and no credentials are needed.

    All errors are shown at once, each as file:line:column: what — how to correct it.
    """
    from planner.workflows.topology import TopologyRequest, validate

    request = TopologyRequest(path, var_files, policies=policies)
    if as_json:
        return _as_json(request)
    loaded = validate(request)
    show(loaded.warnings)
    click.echo(f"Valid: {summary(loaded.topology)}.")
    return ExitCode.DONE


def summary(topology: Topology) -> str:
    """Returns, for example, `2 clusters, 3 topics, 2 flows, 1 job`."""
    counts = counted(topology)
    for rare in ("acls", "quotas"):
        if not counts[rare]:
            del counts[rare]
    words = {"acls": "ACLs"}
    return ", ".join(_counted(number, words.get(name, name)) for name, number in counts.items())


def _counted(number: int, plural: str) -> str:
    return f"{number:,} {plural if number != 1 else plural.removesuffix('s')}"


def counted(topology: Topology) -> dict[str, int]:
    return {
        "clusters": len(topology.clusters),
        "topics": len(topology.topics),
        "acls": len(topology.acls),
        "quotas": len(topology.quotas),
        "flows": len(topology.job_flows),
        "jobs": len(topology.jobs),
    }


def _as_json(request: TopologyRequest) -> int:
    from planner.workflows.topology import validate

    try:
        loaded = validate(request)
    except Failure as failure:
        emit({"format_version": FORMAT_VERSION, "valid": False, **_found(failure.diagnostics)})
        return failure.exit_code
    emit(
        {
            "format_version": FORMAT_VERSION,
            "valid": True,
            "topology": loaded.topology.name,
            "digest": loaded.topology.digest,
            "files": [str(file) for file in loaded.files],
            "counts": counted(loaded.topology),
            **_found(loaded.warnings),
        }
    )
    return ExitCode.DONE


def _found(diagnostics: Sequence[Diagnostic]) -> dict[str, object]:
    return {
        "errors": sum(one.severity is Severity.ERROR for one in diagnostics),
        "warnings": sum(one.severity is Severity.WARNING for one in diagnostics),
        "diagnostics": diagnostic_trees(diagnostics),
    }
