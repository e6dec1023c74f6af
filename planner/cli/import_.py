"""`repl import`: live clusters, or what other tools keep → a topology in YAML."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec.structs import replace

from planner.cli.command import ApprovedOutput, Output, command
from planner.cli.output import show
from planner.model.diagnostic import ExitCode, Failure, error
from planner.workflows.new_files import new_file
from planner.workflows.options import Option
from planner.workflows.requests import ChangeRequest, ImportRequest, TakeOver

if TYPE_CHECKING:
    from planner.workflows.importing import ImportedCopy


@command
def import_(
    request: ImportRequest,
    take: TakeOver,
    change: ChangeRequest,
    output: ApprovedOutput,
    mm2: Annotated[Path | None, Option("--mm2", "A MirrorMaker 2 configuration.", "FILE")] = None,
    replicator: Annotated[
        tuple[Path, ...],
        Option(
            "--replicator",
            "A connector configuration of Confluent Replicator as JSON; may be given several times.",
            "FILE",
        ),
    ] = (),
    strimzi: Annotated[
        Path | None, Option("--strimzi", "A KafkaMirrorMaker2 resource of Strimzi.", "FILE")
    ] = None,
    terraform: Annotated[
        tuple[Path, ...],
        Option(
            "--terraform",
            "terraform.tfstate, or terraform show -json of a state or plan, of the providers Mongey/kafka and"
            " confluent; repeatable.",
            "FILE",
        ),
    ] = (),
    topicctl: Annotated[
        tuple[Path, ...], Option("--topicctl", "A folder, or files, of topicctl; repeatable.", "PATH")
    ] = (),
    jikkou: Annotated[
        tuple[Path, ...], Option("--jikkou", "A folder, or files, of Jikkou; repeatable.", "PATH")
    ] = (),
    msk_replicator: Annotated[
        tuple[Path, ...],
        Option(
            "--msk-replicator",
            "What aws kafka describe-replicator answers, or a CloudFormation template; repeatable.",
            "FILE",
        ),
    ] = (),
    redpanda_migrator: Annotated[
        tuple[Path, ...],
        Option(
            "--redpanda-migrator",
            "A configuration of Redpanda Connect with redpanda_migrator; repeatable.",
            "FILE",
        ),
    ] = (),
    take_over: Annotated[
        bool,
        Option(
            "--take-over",
            "With --mm2: read how far MirrorMaker 2 has copied, and begin the flows there.",
        ),
    ] = False,
    file: Annotated[Path | None, Option("-o/--output", "Write there, not to stdout.", "FILE")] = None,
    adopt: Annotated[
        bool,
        Option("--adopt", "Register what is as declared (in FILE, else in PATH) as the topology's own."),
    ] = False,
) -> int:
    """Write what live clusters hold as a topology, so that planning it changes nothing.

    Only what is set explicitly is written; what most topics share goes to the defaults. CLUSTER is one of the
    topology PATH, which says how to connect, or any name with --bootstrap. Clusters that hold the same
    are written once. With an option that names FILE or PATH, what another tool keeps becomes flows, topics
    and ACLs, no cluster is asked, and every key that has no counterpart is listed. Secrets are never written,
    only references to them.

    With --take-over or --from-group the clusters of the file are asked how far the tool has copied, and the
    flows begin behind it, so that no record is copied twice and none is left out. Stop the tool first.

    With --adopt the registry of the clusters changes, and nothing else: what is there as declared is owned by
    the topology that -o writes, or, without -o, by the topology PATH. It asks first, as an apply does.
    """
    from planner.workflows.importing import adopt as adopt_clusters
    from planner.workflows.importing import (
        declared_clusters,
        import_clusters,
        import_files,
    )

    name = request.name
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise Failure(error(f"{name!r} is no name for a topology", "use letters, digits, dots, _ and -"))
    if file is not None and file.exists():
        raise Failure(error(f"{file} is there already", "name another file, or remove it first"))
    groups, force = take.groups, take.force
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
    named = {
        "mm2": (mm2,) if mm2 is not None else (),
        "replicator": replicator,
        "strimzi": (strimzi,) if strimzi is not None else (),
        "terraform": terraform,
        "topicctl": topicctl,
        "jikkou": jikkou,
        "msk-replicator": msk_replicator,
        "redpanda-migrator": redpanda_migrator,
    }
    options = [option for option, files in named.items() if files]
    if options:
        of_clusters = request.clusters or request.bootstrap or request.client_config or request.pattern
        if of_clusters or adopt or len(options) > 1:
            raise Failure(
                error(f"--{options[0]} reads a file and asks no cluster", "leave the other arguments away")
            )
        before = take if continuing else None
        return _write(import_files(options[0], named[options[0]], name, before), file, output)
    clusters = tuple(declared_clusters(request))
    if file is not None or not adopt:
        code = _write(import_clusters(request, output.progress()), file, output)
        if not adopt:
            return code
    elif request.bootstrap or request.pattern or name:
        raise Failure(
            error("--adopt needs a topology to adopt for", "write one with -o FILE, or name it as PATH")
        )
    if file is not None:
        change = replace(change, path=file, var_files=())
    return adopt_clusters(change, clusters, output.interaction()).exit_code


def _write(imported: "ImportedCopy", file: Path | None, output: Output) -> int:
    from planner.render.plan.json import diagnostic_trees
    from planner.render.topology import secret_notes, topology_yaml
    from planner.workflows.importing import comment

    secrets = [note for cluster in imported.clusters for note in secret_notes(cluster)]
    comments = [*imported.comments, *map(comment, secrets)]
    text = topology_yaml(imported.topology, imported.header, comments)
    diagnostics = (*imported.diagnostics, *secrets)
    if file is not None:
        with new_file(file, private=False) as write:
            write(text)
    if output.as_json:
        output.emit(
            {
                "yaml": text,
                "file": str(file) if file is not None else None,
                "diagnostics": diagnostic_trees(diagnostics),
            }
        )
        return ExitCode.DONE
    show(diagnostics)
    if file is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"Wrote {file}: {imported.summary}. Next: repl plan {file}")
    return ExitCode.DONE
