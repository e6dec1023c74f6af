"""The topology that a workflow is about: its place, its offline check, its names, and its folder for jobs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from planner.config import LoadedTopology, in_order, load, load_with_warnings
from planner.config.files import (
    SUFFIXES,
    decoded,
    in_form_of,
    is_topology_file,
    read_bytes,
    topology_files,
    write_edited,
)
from planner.config.hints import nearest
from planner.config.load import NOTHING_EDITED
from planner.graph.messages import few
from planner.model.diagnostic import Diagnostic, Failure, Severity, error
from planner.model.topology import Cluster, FileEndpoint, Flow, Topology
from planner.workflows.new_files import new_file
from planner.workflows.requests import TopologyRequest
from runtime.contract.spec.shapes import record_of

HOME = "REPL_HOME"
STARTER = "topology.yaml"
SCHEMA = "topology.schema.json"
_SHOWN = 20
Declared = TypeVar("Declared")


def load_topology(request: TopologyRequest) -> Topology:
    """Returns the topology of a request as it is written. Failure holds every error of its files."""
    return load(request.path, request.var_files)


def load_and_lint(
    request: TopologyRequest,
    *,
    may_declare_nothing: bool = False,
    edited: Mapping[Path, str] = NOTHING_EDITED,
) -> LoadedTopology:
    """Returns the topology and its warnings. Failure holds every error that can be found offline.

    `edited` replaces the content of files, so that an edit can be planned before it is written.
    """
    from planner.graph.expansion import lint_offline

    loaded = load_with_warnings(
        request.path, request.var_files, may_declare_nothing=may_declare_nothing, edited=edited
    )
    diagnostics = in_order([*loaded.warnings, *lint_offline(loaded.topology)])
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise Failure(diagnostics)
    return LoadedTopology(loaded.topology, diagnostics, loaded.files)


def format_files(path: Path, *, write: bool) -> tuple[Path, ...]:
    """Formats the files of a topology, and returns those that change; without `write` they stay.

    Failure names every file that can't be read as YAML: then no file is written.
    """
    from planner.config.format import formatted

    before: dict[Path, bytes] = {}
    after: dict[Path, bytes] = {}
    problems: list[Diagnostic] = []
    for file in topology_files(path):
        before[file] = read_bytes(file)
        try:
            text = decoded(before[file], str(file)).replace("\r\n", "\n")
            result = formatted(text, record_of(Topology) if is_topology_file(file) else None, str(file))
        except Failure as failure:
            problems += failure.diagnostics
            continue
        if result != text:
            after[file] = in_form_of(before[file], result)
    if problems:
        raise Failure(problems)
    if write and after:
        write_edited({file: before[file] for file in after}, after)
    return tuple(after)


def flow_of(topology: Topology, name: str) -> Flow:
    """Returns the flow between clusters of this name. Failure lists the flows and the nearest name."""
    if name in topology.file_flows:
        flow = topology.file_flows[name]
        from_files = f"comes from the files of {flow.source_cluster}"
        goes = from_files if flow.from_files else f"goes into the files of {flow.destination_cluster}"
        what = f"flow {name} {goes}"
        hint = (
            "this is for flows between clusters; such a flow can be paused and resumed, has a status, and"
            f" repl verify {name} compares both sides"
        )
        raise Failure(error(what, hint, source=flow.source))
    return declared_in("flow", name, topology.flows)


def job_flow_of(topology: Topology, name: str) -> Flow:
    """Returns the flow of this name as its job runs it. Failure lists the flows and the nearest name."""
    return declared_in("flow", name, topology.job_flows)


def cluster_of(topology: Topology, name: str) -> Cluster:
    """Returns the cluster of this name. Failure lists the clusters and the nearest name."""
    return declared_in("cluster", name, topology.clusters)


def endpoint_of(topology: Topology, name: str) -> FileEndpoint:
    """Returns the file endpoint of this name. Failure lists the endpoints and the nearest name."""
    return declared_in("endpoint", name, topology.endpoints)


def declared_in(kind: str, name: str, declared: Mapping[str, Declared]) -> Declared:
    """Returns what is declared under this name. Failure lists the names and the nearest one."""
    if name in declared:
        return declared[name]
    near = nearest(name, declared)
    hint = f"did you mean {near}? " if near else ""
    names = few(sorted(declared), _SHOWN) or "none"
    raise Failure(error(f"there is no {kind} {name} in this topology", f"{hint}its {kind}s: {names}"))


def folder_of(path: Path) -> Path:
    """Returns the folder of a topology that is named by its file or its folder."""
    return path if path.is_dir() else path.parent


def launcher_home(path: Path) -> Path:
    """Returns REPL_HOME, else `.repl` beside the topology.

    Failure where there is a link in the place of `.repl`, or of a part of it: a checkout may bring one, and
    files elsewhere would be overwritten or removed.
    """
    if os.environ.get(HOME):
        return Path(os.environ[HOME]).absolute()
    home = folder_of(path).absolute() / ".repl"
    for part in (home, *(part for parts in _OWN_PARTS for part in home.glob(parts))):
        if part.is_symlink():
            what = f"{part} is a link, and would lead what repl keeps of jobs and drills to another folder"
            raise Failure(error(what, f"remove it, or set {HOME} to a folder outside of the checkout"))
    return home


_OWN_PARTS = ("*", "*/*", "jobs/*/*")  # of `.repl`


def kill_all_below(home: Path) -> None:
    """Kills every process of this machine whose REPL_HOME is `home`: commands, supervisors and Spark.

    Nothing is recorded at clusters. Failure where a process is still alive after 10 s.
    """
    from runtime.launch.processes import sweep

    if not sweep(f"{HOME}={home}"):
        raise Failure(
            error(f"processes of {home} could not be killed", "look at them with ps, and run it again")
        )


def processes_below(home: Path) -> int:
    """Returns how many processes of this machine have `home` as their REPL_HOME."""
    from runtime.launch.processes import marked

    return sum(1 for _ in marked(f"{HOME}={home}"))


def new_file_of(place: Path) -> Path:
    """Returns the file that a new topology is written to: in a folder, or the YAML file that is named.

    Failure: something is there already.
    """
    hint = "name another folder or file: repl init PATH"
    is_file = place.name.lower().endswith(SUFFIXES) and not place.is_dir()
    if is_file and not is_topology_file(place):
        what = f"{place} is hidden, or a file of variables by its name, and no topology"
        raise Failure(error(what, hint))
    file = place if is_file else place / STARTER
    if file.exists():
        raise Failure(error(f"{file} is there already", hint))
    if file.parent.exists() and not file.parent.is_dir():
        raise Failure(error(f"{file.parent} is no folder", hint))
    others = sorted(other for other in file.parent.glob("*") if is_topology_file(other))
    if not is_file and others:
        what = f"{others[0]} is there already, and the YAML files of a folder are one topology"
        raise Failure(error(what, hint))
    return file


def write_new(file: Path, text: str) -> list[Path]:
    """Writes a new topology, and beside it the JSON Schema that its first line names; returns what it wrote.

    It overwrites nothing: a schema that is there stays.
    """
    from planner.config.schema import schema_text

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise Failure(error(f"{file}: {wrong.strerror}", "name a folder that can be written to")) from None
    schema = file.parent / SCHEMA
    written = {file: text} if schema.exists() else {file: text, schema: schema_text()}
    for path, content in written.items():
        with new_file(path, private=False) as write:
            write(content)
    return list(written)
