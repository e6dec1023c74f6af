"""`repl validate`: everything that can be known about a topology without a cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.app import show
from planner.cli.options import json_option, topology_path, var_file_option
from planner.config import LoadedTopology, in_order, load_with_warnings
from planner.config.load import NOTHING_EDITED
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity
from planner.model.topology import Topology

FORMAT_VERSION = 1


@click.command()
@topology_path
@var_file_option
@json_option
def command(path: Path, var_files: tuple[Path, ...], as_json: bool) -> int:
    """Check a topology offline: no cluster and no credentials are needed.

    All mistakes are shown at once, each as file:line:column: what — how to mend it.
    """
    if as_json:
        return _as_json(path, var_files)
    loaded = checked(path, var_files)
    show(loaded.warnings)
    click.echo(f"Valid: {summary(loaded.topology)}.")
    return ExitCode.DONE


def checked(
    path: Path,
    var_files: Sequence[Path],
    *,
    may_declare_nothing: bool = False,
    edited: Mapping[Path, str] = NOTHING_EDITED,
) -> LoadedTopology:
    """The topology, without errors that can be found offline. `edited` stands in for what files hold."""
    from planner.graph import lint_offline

    loaded = load_with_warnings(path, var_files, may_declare_nothing=may_declare_nothing, edited=edited)
    found = in_order([*loaded.warnings, *lint_offline(loaded.topology)])
    if any(one.severity is Severity.ERROR for one in found):
        raise Failure(found)
    return LoadedTopology(loaded.topology, found, loaded.files)


def summary(topology: Topology) -> str:
    """2 clusters, 3 topics, 2 flows, 1 job"""
    counts = counted(topology)
    if not topology.acls:
        del counts["acls"]
    words = {"acls": "ACLs"}
    return ", ".join(_counted(number, words.get(name, name)) for name, number in counts.items())


def _counted(number: int, plural: str) -> str:
    return f"{number:,} {plural if number != 1 else plural.removesuffix('s')}"


def counted(topology: Topology) -> dict[str, int]:
    return {
        "clusters": len(topology.clusters),
        "topics": len(topology.topics),
        "acls": len(topology.acls),
        "flows": len(topology.flows),
        "jobs": len(topology.jobs),
    }


def _as_json(path: Path, var_files: Sequence[Path]) -> int:
    try:
        loaded = checked(path, var_files)
    except Failure as failure:
        json_output.emit({"format_version": FORMAT_VERSION, "valid": False, **_found(failure.diagnostics)})
        return failure.exit_code
    json_output.emit(
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
        "diagnostics": json_output.diagnostics(diagnostics),
    }
