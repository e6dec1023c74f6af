"""`repl import`: live clusters, or what other tools keep → a topology; adoption.

The caller writes the topology as YAML: `ImportedCopy` holds everything for that.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, structs

from planner.config.hints import prose
from planner.config.importing.document import ConvertedTopology
from planner.config.language.reader import ShapeReader
from planner.config.yaml_tree import documents
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import Observed, ObservedCluster, Request
from planner.model.plan import ApplyResult
from planner.model.topology import Cluster, Flow, Selection, Topology
from planner.model.topology.resources import CLUSTER_NAME
from planner.workflows.applying.apply import execute
from planner.workflows.edge import Workflow
from planner.workflows.interaction import UNATTENDED, Interaction, ProgressHandler, silent
from planner.workflows.requests import ChangeRequest, ImportRequest, TakeOver
from planner.workflows.topology import cluster_of, load_and_lint, load_topology
from runtime.contract.spec.flow import OriginCommitsSpec
from runtime.contract.spec.rename import SAME_NAME, Template
from runtime.contract.spec.selection import SelectionSpec, Selector, UnreadableRegex, regex
from runtime.contract.spec.shapes import record_of

_UNMANAGED = (
    "Nothing here is managed before the first repl apply, and on_remove: keep never deletes anything."
)


class ImportedCopy(Struct, frozen=True):
    """An imported topology, the comments that open and close its file, and what was left out.

    `clusters` are those that it was read of; `summary` says in a line what it holds.
    """

    topology: Topology
    header: tuple[str, ...]
    comments: tuple[str, ...]
    summary: str
    diagnostics: tuple[Diagnostic, ...]
    clusters: tuple[Cluster, ...] = ()


def declared_clusters(request: ImportRequest) -> dict[str, Cluster]:
    """Returns how to reach the clusters of an import. Failure: unknown names, or options that don't fit."""
    names = request.clusters
    if not names:
        raise Failure(error("which cluster?", "repl import CLUSTER, or repl import --mm2 FILE"))
    if request.bootstrap is not None:
        if len(names) != 1:
            raise Failure(error("--bootstrap is for one cluster", "import the clusters one by one"))
        return {names[0]: connection(names[0], request.bootstrap, request.client_config)}
    if request.client_config is not None:
        raise Failure(
            error("--client-config goes with --bootstrap", "a topology has client: in its clusters")
        )
    topology = load_topology(request)
    return {name: cluster_of(topology, name) for name in dict.fromkeys(names)}


@Workflow
async def import_clusters(request: ImportRequest, progress: ProgressHandler = silent) -> ImportedCopy:
    """Reads what clusters hold, so that planning the imported topology changes nothing.

    Only what is set explicitly is part of it. Secrets never are, only references to them.
    """
    from planner.observe.imported import import_request, import_topology
    from planner.workflows.observing import answering, read_clusters

    declared = declared_clusters(request)
    pattern = request.pattern
    try:
        regex(pattern or "")
    except UnreadableRegex as wrong:
        raise Failure(error(f"--topics {pattern!r} is no regex: it {wrong.what}", wrong.hint)) from None

    def wanted(names: Observed) -> Request:
        return {name: import_request(cluster, pattern) for name, cluster in names.live.items()}

    observed = await read_clusters(declared, request.timeout_s, wanted, progress)
    name = request.name or f"imported-{'-'.join(declared)}"
    topology, left_out = import_topology(name, declared, answering(observed), pattern)
    clusters = " and ".join(declared)
    if not (topology.topics or topology.acls or topology.quotas):
        nothing = error(f"nothing to import: {clusters} holds no topic of yours", "look at --topics")
        raise Failure([nothing, *left_out])
    diagnostics = (*observed.diagnostics, *left_out)
    return ImportedCopy(
        topology,
        (
            f"What {clusters} held on {datetime.now(UTC):%Y-%m-%d}: only what is set explicitly.",
            _UNMANAGED,
        ),
        tuple(map(comment, diagnostics)),
        f"{_counted(topology)} of {clusters}",
        diagnostics,
        tuple(declared.values()),
    )


def comment(diagnostic: Diagnostic) -> str:
    """Returns a diagnostic as a comment of the written topology."""
    summary, hint = diagnostic.summary, diagnostic.hint
    return f"{summary} — {hint}" if hint else summary


@Workflow
async def import_files(
    option: str, files: Sequence[Path], name: str | None = None, take_over: TakeOver | None = None
) -> ImportedCopy:
    """Converts what another tool keeps to a topology. `option` says which one, as on the command line: "mm2".

    It reads no cluster, unless the flows take over: then they begin where MirrorMaker 2 stopped, or where the
    groups of Replicator have committed at the source. Every key without a counterpart is a diagnostic with
    its line.
    """
    from planner.config.importing.readers import READERS

    reader = READERS[option]
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", files[0].stem).strip("-_") if len(files) == 1 else ""
    usual = stem or option
    converted = reader.read(files, name or usual)
    if take_over is None:
        return _copy(converted, files, reader.tool)
    from planner.workflows.predecessor import Predecessor, commits_of

    if option == "mm2":
        before = Predecessor("MirrorMaker 2", converted.positions, take_over.force)
    else:
        commits = commits_of(converted.topology, take_over.groups)
        before = Predecessor("Replicator", commits, take_over.force)
    topology, positions = await before.continued(converted.topology, take_over.timeout_ms / 1000)
    return _copy(replace(converted, topology=topology), files, reader.tool, positions)


def _copy(
    converted: ConvertedTopology,
    files: Sequence[Path],
    product: str,
    positions: tuple[Diagnostic, ...] | None = None,
) -> ImportedCopy:
    """Returns what was converted of the files of a tool, `product`, which ran it so far.

    `positions` are the diagnostics of flows that begin where that tool stopped; None if they do not.
    """
    names = " and ".join(file.name for file in files)
    places = {str(file) for file in files if file.is_file()} | {
        key.source.file for key in converted.notes if key.source
    }
    several = {place: f"{Path(place).name}, " for place in places} if len(places) > 1 else {}
    comments = [comment(position) for position in positions or ()]
    if converted.notes:
        comments.append(f"Keys of {names} without a counterpart, or with a remark:")
    diagnostics = list(positions or ())
    for key in converted.notes:
        assert key.source is not None
        name, reason = _printable(key.address or ""), _printable(key.summary)
        comments.append(f"{name} ({several.get(key.source.file, '')}line {key.source.line}): {reason}")
        diagnostics.append(replace(key, summary=f"{name}: {reason}", address=None))
    topology = converted.topology
    header = (f"What {names} declares.", _UNMANAGED)
    if topology.flows:
        header = (
            f"The flows of {names}. They begin where their ledger begins, not where {product}",
            "stopped: see docs/import.md for taking over without copying twice.",
        )
    if positions is not None:
        began = f"They begin behind what {product} had copied on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        header = (
            f"The flows of {names}. {began}",
            "Do not start it again: the same records would arrive twice.",
        )
    summary = f"{_counted(topology)} of {names}"
    return ImportedCopy(topology, header, tuple(comments), summary, tuple(diagnostics))


def _counted(topology: Topology) -> str:
    """Returns `3 flows, 1 topic and 2 ACLs`."""
    declared = {
        "flow": topology.flows,
        "topic": topology.topics,
        "ACL": topology.acls,
        "quota": topology.quotas,
    }
    counts = {kind: len(parts) for kind, parts in declared.items() if parts}
    return prose((f"{count:,} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items()), "and")


def _printable(text: str) -> str:
    """Returns a text of a file on one line, so that no line of it looks like a message of its own."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


_NAMED = 20  # more topics than this are proposed as one pattern


def connection(name: str, bootstrap: str, client_config: Path | None) -> Cluster:
    """Returns a cluster by what a person types: its addresses, and a file of settings to connect by."""
    shape = record_of(Cluster).by_name["bootstrap"].shape
    addresses = [address for address in re.split(r"[,\s]+", bootstrap) if address]
    (node,), _ = documents(json.dumps(addresses), "bootstrap")
    reader = ShapeReader()
    reader.read(shape, node, "bootstrap")
    if reader.diagnostics:
        raise Failure([error(problem.summary, problem.hint) for problem in reader.diagnostics])
    if not CLUSTER_NAME.matches(name):
        raise Failure(error(f"{name!r} is no name for a cluster", "use letters, digits, _ and -"))
    return Cluster(name, bootstrap=",".join(addresses), client=_client_settings(client_config))


@Workflow
async def read_names(
    cluster: Cluster, timeout_s: float, progress: ProgressHandler = silent
) -> ObservedCluster:
    """Returns the brokers and topics of a cluster. Failure: it can't be read."""
    from planner.workflows.observing import answering, read_clusters

    return answering(await read_clusters({cluster.name: cluster}, timeout_s, progress=progress))[0]


def own_topics(cluster: ObservedCluster) -> list[str]:
    """Returns the topics that a flow with `.*` copies: not those of Kafka and its tools."""
    every = Selector(SelectionSpec((".*",)))
    return sorted(name for name in cluster.topics if every.answer(name).taken)


def proposed_directions(clusters: Sequence[ObservedCluster]) -> list[tuple[str, str]]:
    """Returns which cluster could be copied to which, by the topics that they hold.

    A cluster with all topics of the others is the source; where several have topics of their own, each is.
    """
    topics = {cluster.name: set(own_topics(cluster)) for cluster in clusters}
    everything = set().union(*topics.values())
    sources = [name for name in topics if topics[name] == everything][:1]
    sources = sources or [name for name in topics if topics[name]]
    return [(source, name) for source in sources for name in topics if name != source]


def proposed_topology(
    name: str,
    declared: Mapping[str, Cluster],
    clusters: Sequence[ObservedCluster],
    directions: Sequence[tuple[str, str]],
) -> Topology:
    """Returns a topology with these clusters, pinned, and a flow for each direction.

    Where a cluster is both source and destination, or the destination of two, copies get the source's name
    in front.
    """
    observed = {cluster.name: cluster for cluster in clusters}
    sources = [source for source, _ in directions]
    destinations = [destination for _, destination in directions]
    prefixed = len(set(destinations)) < len(destinations) or not set(sources).isdisjoint(destinations)
    flows = {}
    for source, destination in directions:
        topics = own_topics(observed[source])
        if prefixed:
            prefixes = tuple(f"{other}." for other in observed)
            topics = [topic for topic in topics if not topic.startswith(prefixes)]
        selection = Selection(tuple(topics))
        if not topics or len(topics) > _NAMED:
            others = tuple(f"{other}\\..*" for other in observed if prefixed and other != source)
            selection = Selection((".*",), others)
        flow = f"{source}-to-{destination}"
        rename = Template("{source}.{topic}") if prefixed else SAME_NAME
        commits = OriginCommitsSpec(f"repl.{flow}")
        flows[flow] = Flow(flow, source, destination, selection, rename=rename, origin_commits=commits)
    pinned = {key: structs.replace(cluster, id=observed[key].id or None) for key, cluster in declared.items()}
    return Topology(name, pinned, flows=flows)


@Workflow
async def adopt(
    request: ChangeRequest, clusters: tuple[str, ...], interaction: Interaction = UNATTENDED
) -> ApplyResult:
    """Registers what these clusters hold as declared, as the topology's own. It changes nothing else."""
    from planner.workflows.plans import observe_and_plan

    topology = load_and_lint(request).topology
    for name in clusters:
        cluster_of(topology, name)
    plan = await observe_and_plan(topology, request.timeout_s, interaction.progress, adopt=clusters)
    return await execute(plan, request, interaction)


def _client_settings(file: Path | None) -> dict[str, str]:
    from planner.config.importing.connect import properties_of

    if file is None:
        return {}
    try:
        return {key: value for key, (value, _) in properties_of(file.read_text(encoding="utf-8")).items()}
    except OSError as wrong:
        raise Failure(error(f"{file} can't be read: {wrong.strerror}", "look at --client-config")) from None
