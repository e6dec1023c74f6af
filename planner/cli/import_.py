"""`repl import`: a live cluster, or a MirrorMaker 2 configuration → a topology in YAML."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli import as_json as json_output
from planner.cli.app import show
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path_after,
    var_file_option,
)
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, note, warning
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.topology import Cluster
from runtime.contract.spec.regex import UnreadableRegex, regex

FORMAT_VERSION = 1


class ImportResult(NamedTuple):
    """What comes out: the topology's text, a line that sums it up, and what to look at."""

    yaml: str
    summary: str
    diagnostics: tuple[Diagnostic, ...]


@click.command()
@click.argument("clusters", nargs=-1, metavar="[CLUSTER]... [PATH]")
@topology_path_after("clusters", repeated=True)
@var_file_option
@click.option("--topics", "pattern", metavar="RE", help="Only topics whose whole name matches this regex.")
@click.option("--mm2", type=click.Path(path_type=Path), metavar="FILE", help="A MirrorMaker 2 configuration.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Where CLUSTER is, if no topology says so; it may be any name."
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
    are written once. With --mm2 an existing MirrorMaker 2 configuration becomes flows, no cluster is asked,
    and every key that has no counterpart is listed. Secrets are never written, only references to them.

    With --adopt the registry of the clusters changes, and nothing else: what is there as declared is owned by
    the topology that -o writes, or, without -o, by the topology PATH. It asks first, as an apply does.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise Failure(error(f"{name!r} is no name for a topology", "use letters, digits, dots, _ and -"))
    if output is not None and output.exists():
        raise Failure(error(f"{output} is there already", "name another file, or remove it first"))
    if mm2 is not None:
        if clusters or bootstrap or client_config or pattern or adopt:
            raise Failure(error("--mm2 reads a file and asks no cluster", "leave the other arguments away"))
        written = from_mm2(mm2, name)
        return _out(written, output, as_json)
    declared = _declared(clusters, path, var_files, bootstrap, client_config)
    if output is not None or not adopt:
        code = _out(from_clusters(declared, name, _regex(pattern), timeout), output, as_json)
        if not adopt:
            return code
    elif bootstrap or pattern or name:
        raise Failure(
            error("--adopt needs a topology to adopt for", "write one with -o FILE, or name it as PATH")
        )
    from planner.cli import adopting

    return adopting.adopt(
        output or path,
        () if output is not None else var_files,
        tuple(declared),
        auto_approve=auto_approve,
        lock_timeout=lock_timeout,
        timeout=timeout,
        as_json=as_json,
    )


def from_clusters(
    declared: Mapping[str, Cluster], name: str | None, pattern: str | None, timeout_ms: int
) -> ImportResult:
    from planner.cli.observing import observe_for_import
    from planner.observe.imported import import_topology
    from planner.render.yaml.topology import topology_yaml

    observed = observe_for_import(declared, pattern, timeout_ms)
    reachable = _reachable(observed)
    result = import_topology(name or f"imported-{'-'.join(declared)}", declared, reachable, pattern)
    topology = result.topology
    if not topology.topics and not topology.acls:
        what = " and ".join(declared)
        raise Failure(
            [
                error(f"nothing to import: {what} holds no topic of yours", "look at --topics"),
                *result.diagnostics,
            ]
        )
    secrets = [one for cluster in declared.values() for one in _secrets(cluster)]
    diagnostics = (*observed.diagnostics, *result.diagnostics, *secrets)
    header = [
        f"What {' and '.join(declared)} held on {datetime.now(UTC):%Y-%m-%d}: only what is set explicitly.",
        "Nothing here is managed before the first repl apply, and on_remove: keep never deletes anything.",
    ]
    text = topology_yaml(topology, header, [_comment(one) for one in diagnostics])
    counted = f"{len(topology.topics):,} topics and {len(topology.acls):,} ACLs of {' and '.join(declared)}"
    return ImportResult(text, counted, diagnostics)


def from_mm2(file: Path, name: str | None) -> ImportResult:
    from planner.config.mm2 import convert
    from planner.model.diagnostic import SourceLocation
    from planner.render.yaml.topology import topology_yaml

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not UTF-8"
        raise Failure(
            error(f"{file} can't be read: {reason}", "name the MirrorMaker 2 configuration")
        ) from None
    converted = convert(
        text, str(file), name or re.sub(r"[^A-Za-z0-9_-]", "-", file.stem).strip("-_") or "mm2"
    )
    diagnostics = tuple(
        (warning if one.loss else note)(
            f"{one.key}: {one.reason}", source=SourceLocation(str(file), one.line, 1)
        )
        for one in converted.notes
    )
    header = [
        f"The flows of {file.name}. They begin where their ledger begins, not where MirrorMaker stopped: see",
        "docs/import.md for taking over without copying twice.",
    ]
    comments = [f"{one.key} (line {one.line}): {one.reason}" for one in converted.notes]
    if comments:
        comments.insert(0, f"Keys of {file.name} without a counterpart, or with a word to say:")
    flows = len(converted.topology.flows)
    counted = f"{flows} flow{'s' if flows != 1 else ''} of {file.name}"
    return ImportResult(topology_yaml(converted.topology, header, comments), counted, diagnostics)


def _declared(
    names: Sequence[str],
    path: Path,
    var_files: Sequence[Path],
    bootstrap: str | None,
    client_config: Path | None,
) -> dict[str, Cluster]:
    if not names:
        raise Failure(error("which cluster?", "repl import CLUSTER, or repl import --mm2 FILE"))
    if bootstrap is not None:
        if len(names) != 1:
            raise Failure(error("--bootstrap is for one cluster", "import the clusters one by one"))
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", names[0]):
            raise Failure(error(f"{names[0]!r} is no name for a cluster", "use letters, digits, _ and -"))
        return {names[0]: Cluster(names[0], bootstrap, client=_client_settings(client_config))}
    if client_config is not None:
        raise Failure(
            error("--client-config goes with --bootstrap", "a topology has client: in its clusters")
        )
    from planner.config import load
    from planner.config.hints import did_you_mean

    topology = load(path, var_files)
    for name in names:
        if name not in topology.clusters:
            known = ", ".join(topology.clusters)
            way_out = did_you_mean(name, topology.clusters) or f"it has {known}; or give --bootstrap"
            raise Failure(error(f"the topology has no cluster {name!r}", way_out))
    return {name: topology.clusters[name] for name in dict.fromkeys(names)}


def _client_settings(file: Path | None) -> dict[str, str]:
    from planner.config.mm2.properties import properties_of

    if file is None:
        return {}
    try:
        return {one.key: one.value for one in properties_of(file.read_text(encoding="utf-8"))}
    except OSError as wrong:
        raise Failure(error(f"{file} can't be read: {wrong.strerror}", "look at --client-config")) from None


def _regex(pattern: str | None) -> str | None:
    if pattern is not None:
        try:
            regex(pattern)
        except UnreadableRegex as wrong:
            raise Failure(error(f"--topics {pattern!r} is no regex: it {wrong.what}", wrong.hint)) from None
    return pattern


def _reachable(observed: Observed) -> list[ObservedCluster]:
    silent = [one for one in observed.clusters.values() if isinstance(one, Unreachable)]
    if silent:
        raise Failure([error(f"{one.name} can't be read: {one.why}", one.way_out) for one in silent])
    return [one for one in observed.clusters.values() if isinstance(one, ObservedCluster)]


def _secrets(cluster: Cluster) -> list[Diagnostic]:
    from planner.model.topology import looks_secret
    from planner.render.yaml.topology import secret_variable

    return [
        warning(
            f"{key} of {cluster.name} is a secret and not written out",
            f"set the environment variable {secret_variable(cluster.name, key)}",
        )
        for key, value in cluster.client.items()
        if isinstance(value, str) and looks_secret(key)
    ]


def _comment(one: Diagnostic) -> str:
    return f"{one.summary} — {one.way_out}" if one.way_out else one.summary


def _out(written: ImportResult, output: Path | None, as_json: bool) -> int:
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as opened:
                opened.write(written.yaml)
        except OSError as wrong:
            raise Failure(error(f"{output}: {wrong.strerror}", "name a file that can be written")) from None
    if as_json:
        json_output.emit(
            {
                "format_version": FORMAT_VERSION,
                "yaml": written.yaml,
                "file": str(output) if output is not None else None,
                "diagnostics": json_output.diagnostics(written.diagnostics),
            }
        )
        return ExitCode.DONE
    show(written.diagnostics)
    if output is None:
        click.echo(written.yaml, nl=False)
    else:
        click.echo(f"Wrote {output}: {written.summary}. Next: repl plan {output}")
    return ExitCode.DONE
