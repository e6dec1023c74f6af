"""`repl init`: writes a topology to start with, of live clusters where there is a terminal to ask on."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from planner.cli.command import Output, command
from planner.cli.output import show
from planner.model.diagnostic import ExitCode, Failure, error
from planner.workflows.options import Argument, Option, Timeout

if TYPE_CHECKING:
    from planner.model.observed import ObservedCluster
    from planner.model.topology import Cluster

_SHOWN = 5


@command
def init(
    output: Output,
    place: Annotated[Path, Argument(metavar="[PATH]")] = Path(),
    no_input: Annotated[bool, Option("--no-input", "Ask nothing: write the commented starter.")] = False,
    timeout_ms: Timeout = 10_000,
) -> int:
    """Write a new topology, and the JSON Schema by which an editor completes it; it overwrites nothing.

    PATH is a folder (default: the current one), or a file whose name ends with .yaml or .yml. On a terminal
    it asks for the addresses of your clusters, reads their topics and proposes flows. Otherwise, or with an
    empty answer, it writes a commented starter. No cluster is changed.
    """
    from planner.config.schema import starter
    from planner.workflows.topology import new_file_of, write_new

    file = new_file_of(place)
    asks = not (no_input or output.as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    text = _of_clusters(file, timeout_ms) if asks else None
    written = write_new(file, text or starter())
    if output.as_json:
        output.emit({"files": [str(path) for path in written]})
        return ExitCode.DONE
    where = "" if place == Path() else f" {place}"
    beside = " and ".join(str(path) for path in written)
    edit = "" if text else "edit it, then "
    click.echo(f"Wrote {beside}. Next: {edit}repl validate{where} and repl plan{where}.")
    return ExitCode.DONE


def _of_clusters(file: Path, timeout_ms: int) -> str | None:
    """Returns a topology of the clusters that a person names; None where no cluster is named."""
    from planner.render.topology import secret_notes, topology_yaml
    from planner.workflows.importing import comment, proposed_directions, proposed_topology
    from planner.workflows.topology import SCHEMA, STARTER

    click.echo("Which Kafka clusters are copied? They are only read now. An empty answer ends the list;")
    click.echo("without any, a commented starter is written.\n")
    declared: dict[str, Cluster] = {}
    clusters: list[ObservedCluster] = []
    while (named := _cluster(declared, clusters, timeout_ms)) is not None:
        cluster, observed = named
        declared[cluster.name] = cluster
        clusters.append(observed)
    if not clusters:
        return None
    if len(clusters) == 1:
        (only,) = declared.values()
        hint = f"repl import {only.name} --bootstrap {only.bootstrap} writes what one holds"
        raise Failure(error("a flow needs two clusters, so nothing was written", hint))
    proposed = ", ".join(f"{source}>{destination}" for source, destination in proposed_directions(clusters))
    click.echo()
    while True:
        try:
            answer = _prompt("What is copied where, as FROM>TO with commas between", proposed)
            directions = _directions(answer, list(declared))
            break
        except Failure as failure:
            show(failure.diagnostics)
    # the file's name, or its folder's where the file has the usual name
    stem = file.absolute().parent.name if file.name == STARTER else file.stem
    name = re.sub(r"[^A-Za-z0-9._-]", "-", stem).strip("-._") or "my-topology"
    topology = proposed_topology(name, declared, clusters, directions)
    notes = [note for cluster in declared.values() for note in secret_notes(cluster)]
    show(notes)
    header = (
        f"yaml-language-server: $schema={SCHEMA}",
        "Proposed by repl init of what the clusters hold. The topics at the sources stay as they are, and a",
        "flow creates its mirror topics. To manage topics here too: repl import CLUSTER. repl explain KEY",
        "explains a key.",
    )
    return topology_yaml(topology, header, [comment(note) for note in notes])


def _cluster(
    declared: "dict[str, Cluster]", clusters: "Sequence[ObservedCluster]", timeout_ms: int
) -> "tuple[Cluster, ObservedCluster] | None":
    """Asks for one cluster until it can be read; None for an empty answer."""
    from planner.cli.view import TerminalView
    from planner.graph.messages import few
    from planner.render.readable import plural
    from planner.workflows.importing import connection, own_topics, read_names

    while True:
        bootstrap = _prompt(f"Address of {'another' if declared else 'a'} cluster (HOST:PORT)")
        if not bootstrap:
            return None
        name = _prompt("  Its name", default=f"dc{len(declared) + 1}")
        file = _prompt("  A file of settings to connect by, if it needs one")
        try:
            cluster = connection(name, bootstrap, Path(file).expanduser() if file else None)
            if name in declared:
                raise Failure(error(f"there is a cluster {name} already", "give it another name"))
            observed = read_names(cluster, timeout_ms / 1000, TerminalView(as_json=False))
            if same := [other.name for other in clusters if other.id == observed.id]:
                raise Failure(error(f"this is {same[0]} again: both have the id {observed.id}"))
        except Failure as failure:
            show(failure.diagnostics)
            continue
        topics = own_topics(observed)
        names = f": {few(topics, _SHOWN)}" if topics else ""
        brokers = plural(len(observed.brokers), "broker")
        click.echo(f"  {name}: {brokers}, {plural(len(topics), 'topic')}{names}")
        return cluster, observed


def _prompt(question: str, default: str = "") -> str:
    answer: str = click.prompt(question, default=default, show_default=bool(default))
    return answer.strip()


def _directions(answer: str, clusters: Sequence[str]) -> list[tuple[str, str]]:
    from planner.config.hints import did_you_mean

    directions: list[tuple[str, str]] = []
    for direction in answer.split(","):
        words = [word.strip() for word in direction.split(">")]
        if len(words) != 2 or words[0] == words[1]:
            raise Failure(
                error(f'"{direction.strip()}" is no direction', f"write {clusters[0]}>{clusters[1]}")
            )
        for word in words:
            if word not in clusters:
                raise Failure(error(f"there is no cluster {word}", did_you_mean(word, clusters)))
        if (words[0], words[1]) not in directions:
            directions.append((words[0], words[1]))
    return directions
