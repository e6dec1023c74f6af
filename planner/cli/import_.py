"""`repl import`: live clusters, or configurations of MirrorMaker 2 or Replicator → a topology in YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path_after,
    var_file_option,
)
from planner.cli.output import diagnostic_trees, emit, show
from planner.model.diagnostic import ExitCode, Failure, error

if TYPE_CHECKING:
    from planner.workflows.importing import ImportedCopy

FORMAT_VERSION = 1


@click.command()
@click.argument("clusters", nargs=-1, metavar="[CLUSTER]... [PATH]")
@topology_path_after("clusters", repeated=True)
@var_file_option
@click.option("--topics", "pattern", metavar="RE", help="Only topics whose whole name matches this regex.")
@click.option("--mm2", type=click.Path(path_type=Path), metavar="FILE", help="A MirrorMaker 2 configuration.")
@click.option(
    "--replicator",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A connector configuration of Confluent Replicator as JSON; may be given several times.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="With --mm2: read how far MirrorMaker 2 has copied, and begin the flows there.",
)
@click.option(
    "--from-group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="With --replicator: begin the flow where Replicator's group has committed at the source; may be"
    " given several times.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --take-over or --from-group: go on where the tool seems to run, or a topic was recreated.",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="Where CLUSTER is, if no topology declares it; it may be any name.",
)
@click.option(
    "--client-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --bootstrap: librdkafka settings to connect by, as key=value lines.",
)
@click.option("--name", metavar="NAME", help="The new topology's name.  [default: imported-CLUSTER]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to stdout."
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Register what is as declared (in FILE, else in PATH) as the topology's own.",
)
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    clusters: tuple[str, ...],
    path: Path,
    var_files: tuple[Path, ...],
    pattern: str | None,
    mm2: Path | None,
    replicator: tuple[Path, ...],
    take_over: bool,
    groups: tuple[str, ...],
    force: bool,
    bootstrap: str | None,
    client_config: Path | None,
    name: str | None,
    output: Path | None,
    adopt: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Write what live clusters hold as a topology, so that planning it changes nothing.

    Only what is set explicitly is written; what most topics share goes to the defaults. CLUSTER is one of the
    topology PATH, which says how to connect, or any name with --bootstrap. Clusters that hold the same
    are written once. With --mm2 or --replicator an existing configuration of MirrorMaker 2 or of Confluent
    Replicator becomes flows, no cluster is asked, and every key that has no counterpart is listed. Secrets
    are never written, only references to them.

    With --take-over or --from-group the clusters of the file are asked how far the tool has copied, and the
    flows begin behind it, so that no record is copied twice and none is left out. Stop the tool first.

    With --adopt the registry of the clusters changes, and nothing else: what is there as declared is owned by
    the topology that -o writes, or, without -o, by the topology PATH. It asks first, as an apply does.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.importing import (
        AdoptRequest,
        ImportRequest,
        TakeOver,
        declared_clusters,
        import_clusters,
        import_mm2,
        import_replicator,
    )
    from planner.workflows.importing import adopt as run_adoption

    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise Failure(error(f"{name!r} is no name for a topology", "use letters, digits, dots, _ and -"))
    if output is not None and output.exists():
        raise Failure(error(f"{output} is there already", "name another file, or remove it first"))
    continuing = take_over or groups or force
    if continuing and (
        (take_over and mm2 is None) or (groups and not replicator) or (force and not take_over and not groups)
    ):
        raise Failure(
            error(
                "--take-over goes with --mm2, --from-group with --replicator, and --force with one of them",
                "repl import --mm2 FILE --take-over, or repl import --replicator FILE --from-group GROUP",
            )
        )
    if mm2 is not None or replicator:
        option = "--mm2" if mm2 is not None else "--replicator"
        if clusters or bootstrap or client_config or pattern or adopt or (mm2 is not None and replicator):
            raise Failure(
                error(f"{option} reads a file and asks no cluster", "leave the other arguments away")
            )
        before = TakeOver(groups=groups, timeout_ms=timeout, force=force) if continuing else None
        converted = (
            import_mm2(mm2, name, before) if mm2 is not None else import_replicator(replicator, name, before)
        )
        return _write(converted, output, as_json)
    request = ImportRequest(
        path,
        var_files,
        timeout,
        clusters=clusters,
        bootstrap=bootstrap,
        client_config=client_config,
        pattern=pattern,
        name=name,
    )
    declared = declared_clusters(request)
    view = TerminalView(as_json=as_json)
    if output is not None or not adopt:
        code = _write(import_clusters(request, view), output, as_json)
        if not adopt:
            return code
    elif bootstrap or pattern or name:
        raise Failure(
            error("--adopt needs a topology to adopt for", "write one with -o FILE, or name it as PATH")
        )
    adopting = AdoptRequest(
        output or path,
        () if output is not None else var_files,
        timeout,
        lock_timeout_ms=lock_timeout,
        clusters=tuple(declared),
    )
    return run_adoption(adopting, interaction(view, auto_approve=auto_approve)).exit_code


def _write(imported: ImportedCopy, output: Path | None, as_json: bool) -> int:
    from planner.render.topology import secret_notes, topology_yaml
    from planner.workflows.importing import comment

    secrets = [one for cluster in imported.clusters for one in secret_notes(cluster)]
    comments = [*imported.comments, *map(comment, secrets)]
    text = topology_yaml(imported.topology, imported.header, comments)
    diagnostics = (*imported.diagnostics, *secrets)
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except OSError as wrong:
            raise Failure(error(f"{output}: {wrong.strerror}", "name a file that can be written")) from None
    if as_json:
        emit(
            {
                "format_version": FORMAT_VERSION,
                "yaml": text,
                "file": str(output) if output is not None else None,
                "diagnostics": diagnostic_trees(diagnostics),
            }
        )
        return ExitCode.DONE
    show(diagnostics)
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"Wrote {output}: {imported.summary}. Next: repl plan {output}")
    return ExitCode.DONE
