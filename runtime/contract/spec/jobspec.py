"""The job spec is the one JSON file with which a job is started. The planner writes it, the driver reads it.

It holds no secret: a client setting is text, or `{"env": VAR}` / `{"file": path}`, resolved where the job
runs. Durations are milliseconds, sizes are bytes, rates are bytes per second. A duty that is off has null as
its interval.

A file that the topology names by a relative path is stored as `FOLDER/./WRITTEN`: the text after `/./` is the
path as written, as in rsync. The whole path opens the same file, and the written part lets a planner in
another checkout compare it with its topology.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Annotated, Any, Literal, Self

import msgspec

from runtime.contract.client.stores import Setting
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec, LinesSpec, folder_problem, layout_problem, store_problem
from runtime.contract.spec.flow import FlowSettings
from runtime.contract.spec.launch import LaunchSpec, MetricsSpec
from runtime.contract.spec.rename import SAME_NAME, Match, Rename, pattern_problem
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import NamePatterns, SelectionSpec
from runtime.contract.spec.shapes import CENTURY_MS, LARGEST, Count, Interval, SpecStruct
from runtime.contract.spec.topic_settings import InternalSpec

VERSION = 1
_PIECE_BYTES = 1 << 30  # the largest buffer of a slot that a setting may ask for

ProvenanceMode = Literal["off", "batch", "headers"]
WithFiles = Literal["", "into", "from"]  # the end of a flow that is files

Size = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Held = Annotated[int, msgspec.Meta(ge=1, le=_PIECE_BYTES)]


FROM_HERE = "/./"


def written_path(path: str) -> str:
    """Returns a file reference as the topology writes it; the whole path where that was absolute."""
    _, mark, written = path.partition(FROM_HERE)
    return written if mark else path


class FlowSpec(FlowSettings, frozen=True):
    """Describes one flow of the job.

    `provenance` is the resolved mode, never `auto`. `native_only` copies no record that any flow wrote at the
    source. `shared` says that other producers write to the destination's topics by design (a two-way flow, an
    identity merge), so that foreign writers are not reported there. `rename` of a failback flow
    (`reverse_of`) is the rule that it inverts. A flow into files has `files`, and its source as destination:
    the internal topics of its job are there. A flow from files has `lines`, and its destination as source.
    """

    name: str
    source: str
    destination: str
    topics: SelectionSpec
    provenance: ProvenanceMode = "off"
    native_only: bool = False
    shared: bool = False
    files: FilesSpec | None = None
    lines: LinesSpec | None = None

    @property
    def endpoint(self) -> FilesSpec | LinesSpec | None:
        """The files that the flow writes or reads."""
        return self.files or self.lines

    def with_endpoint(self, **changes: Any) -> Self:
        """Returns a flow into or from files with these changes of its endpoint."""
        if self.files is not None:
            return msgspec.structs.replace(self, files=msgspec.structs.replace(self.files, **changes))
        assert self.lines is not None, "a flow between clusters has no endpoint"
        return msgspec.structs.replace(self, lines=msgspec.structs.replace(self.lines, **changes))

    @property
    def source_name(self) -> str:
        """The name of the endpoint or cluster that the flow reads."""
        return self.lines.endpoint if self.lines is not None else self.source

    @property
    def destination_name(self) -> str:
        """The name of the endpoint or cluster that the flow writes."""
        return self.files.endpoint if self.files is not None else self.destination

    @property
    def with_files(self) -> WithFiles:
        """Which end of the flow is files, for texts."""
        return "into" if self.files is not None else "from" if self.lines is not None else ""

    @property
    def commits_every_ms(self) -> int:
        """How often a flow that copies in rounds commits at least; 0 where slots commit as records come."""
        return self.endpoint.every_ms if self.endpoint is not None else 0

    @property
    def folder(self) -> str | None:
        """The folder of a flow into files or from files."""
        return self.endpoint.folder if self.endpoint is not None else None

    @property
    def reached(self) -> tuple[str | None, Mapping[str, Setting], bool]:
        """The folder of a flow with files, how the store that it is in is reached, and whether its
        sub-folders are read.
        """
        recursive = self.lines is not None and self.lines.recursive
        return self.folder, self.endpoint.client if self.endpoint is not None else {}, recursive


class Route(SpecStruct, frozen=True):
    """Describes a flow of the topology as far as names go.

    A failback flow (`reverse_of`) inverts the rename of the flow that it reverses, and holds that flow's
    selection in `undoes`: it takes the topics that the other flow copied. Its own `topics`, where it has any,
    may only narrow this, by either name of a topic.
    """

    name: str
    source: str
    destination: str
    topics: SelectionSpec
    rename: Rename = SAME_NAME
    undoes: SelectionSpec | None = None
    reverse_of: str | None = None


class CopySettings(SpecStruct, frozen=True, kw_only=True):
    """Configures how a slot copies. The defaults are for a slot of 1 GB with one core.

    `buffer_bytes` bounds the bytes that are fetched and not yet acknowledged (R8); a single larger batch may
    exceed it. After a fetch that brought all there was, the next one follows after `linger_ms`. A transaction
    is committed when nothing is left to send and never later than `transaction_ms`, or half of a flow's rpo;
    brokers abort a transaction after `transaction_timeout_ms`.
    """

    lanes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    spare_lanes: Annotated[int, msgspec.Meta(ge=0, le=64)] = 2
    buffer_bytes: Size = 96 << 20
    fetch_bytes: Held = 16 << 20
    partition_fetch_bytes: Held = 4 << 20
    fetch_wait_ms: Annotated[int, msgspec.Meta(ge=0, le=CENTURY_MS)] = 500
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=CENTURY_MS)] = 3
    transaction_ms: Interval = 2_000
    transaction_bytes: Size = 256 << 20
    transaction_timeout_ms: Interval = 30_000
    request_bytes: Held = 8 << 20
    tail_every_ms: Interval = 1_000
    retry_ms: Interval = 200
    retry_max_ms: Interval = 5_000
    stop_retry_ms: Interval = 60_000


class ProtectionSpec(SpecStruct, frozen=True, kw_only=True):
    """Says what `protect: acl` must know of the destination.

    `principal` is that of the job. With `open_without_rules`, everyone may write a topic that no rule speaks
    of (`allow.everyone.if.no.acl.found`).
    """

    principal: str
    open_without_rules: bool = False


class JobSpec(SpecStruct, frozen=True, kw_only=True):
    """Describes a job: all its flows write to `destination`.

    `slots` is a number, or 0 for as many slots as there are cores. `routes` holds every flow of the topology,
    because the topics of one flow depend on the others; it is empty when the job's own flows are all there
    are. `declared` holds topics of the destination with the settings that the topology declares itself, which
    no flow may change. `protection` is set where a flow has `protect: acl` and the principal of the job is
    known. `metrics` is None where they are off. `registries` holds the schema registry of each cluster
    between which a flow syncs schemas.
    """

    version: int = VERSION
    job: str
    topology: str
    destination: str
    clusters: dict[str, ClusterSpec]
    flows: list[FlowSpec]
    slots: Count = 0
    launch: LaunchSpec = LaunchSpec()
    copy: CopySettings = CopySettings()
    internal: InternalSpec = InternalSpec()
    routes: list[Route] = msgspec.field(default_factory=list)
    declared: dict[str, list[str]] = msgspec.field(default_factory=dict)
    protection: ProtectionSpec | None = None
    metrics: MetricsSpec | None = MetricsSpec()
    registries: dict[str, RegistrySpec] = msgspec.field(default_factory=dict)

    @property
    def metrics_limit(self) -> int:
        """With more partitions, topics or groups than this, their metrics are summed."""
        return (self.metrics or MetricsSpec()).partitions

    @property
    def executors(self) -> int:
        """How many executors of Spark run the slots; 0 for as many as the cluster offers.

        Kubernetes offers no fixed number: without `slots`, a job has one there.
        """
        return self.slots or (1 if self.launch.launcher == "kubernetes" else 0)

    @property
    def in_rounds(self) -> bool:
        """Whether the flows of the job copy in rounds of tasks, because an end of each is files."""
        return any(flow.endpoint is not None for flow in self.flows)

    @property
    def transform_registries(self) -> list[tuple[str, RegistrySpec]]:
        """The schema registries that transforms decode by, each with its flow."""
        transforms = [(flow.name, flow.transform) for flow in self.flows if flow.transform is not None]
        return [(flow, registry) for flow, transform in transforms for registry in transform.registries]

    def flow(self, name: str) -> FlowSpec:
        """Returns the flow of this name."""
        return next(flow for flow in self.flows if flow.name == name)

    @property
    def stores(self) -> dict[str, FilesSpec | LinesSpec]:
        """The endpoints in object stores that flows write to or read, by their names."""
        endpoints = [flow.endpoint for flow in self.flows if flow.endpoint is not None]
        return {endpoint.endpoint: endpoint for endpoint in endpoints if endpoint.in_store}


class BadJobSpec(ValueError):
    """The file is no job spec of this version; the text says where the error is."""


def encode(spec: JobSpec) -> bytes:
    return msgspec.json.format(msgspec.json.encode(spec), indent=2)


_decoder = msgspec.json.Decoder(JobSpec)


def decode(text: bytes | str) -> JobSpec:
    """Decodes a job spec. Raises BadJobSpec for anything that no job could start with."""
    try:
        spec = record_values.decode(_decoder, text.encode() if isinstance(text, str) else text)
    except UnreadableValue as error:
        raise BadJobSpec(f"not a job spec: {error}") from error
    check(spec)
    return spec


def check(spec: JobSpec) -> None:
    """Checks a job spec. Raises BadJobSpec for another version, an undefined cluster or an invalid regex."""
    if spec.version != VERSION:
        raise BadJobSpec(f"job spec version {spec.version}: this runtime reads version {VERSION}")
    for flow in spec.flows:
        if flow.source not in spec.clusters:
            raise BadJobSpec(f"flow {flow.name}: cluster {flow.source} is not in clusters")
        for cluster in (flow.source, flow.destination) if flow.schemas.sync else ():
            if cluster not in spec.registries:
                raise BadJobSpec(f"flow {flow.name}: the schema registry of {cluster} is not in registries")
        if flow.destination != spec.destination:
            raise BadJobSpec(
                f"flow {flow.name} goes to {flow.destination}, the job's destination is {spec.destination}"
            )
    if spec.destination not in spec.clusters:
        raise BadJobSpec(f"the destination {spec.destination} is not in clusters")
    _check_files(spec)
    for where, patterns in _patterns(spec):
        try:
            NamePatterns(patterns)
        except (re.error, ValueError, RecursionError, OverflowError) as error:
            raise BadJobSpec(f"{where}: not a regular expression: {error}") from error
    renames = [(flow.name, flow.rename) for flow in spec.flows]
    renames += [(route.name, route.rename) for route in spec.routes]
    for name, rule in renames:
        if isinstance(rule, Match) and (why := pattern_problem(rule.match, rule.to)):
            raise BadJobSpec(f"{name}: rename: {why}")


def _check_files(spec: JobSpec) -> None:
    """Checks the file endpoints: no record makes a job read or write outside of a folder of its own."""
    folders = [(flow.name, flow.folder) for flow in spec.flows if flow.folder is not None]
    if folders and len(folders) < len(spec.flows):
        raise BadJobSpec("a job has flows into or from files, or flows between clusters: not both")
    for name, folder in folders:
        if (problem := folder_problem(folder)) is not None:
            raise BadJobSpec(f"flow {name}: {problem[0]}")
    for flow in spec.flows:
        problem = layout_problem(flow.files.layout, flow.files.format) if flow.files is not None else None
        if problem is not None:
            raise BadJobSpec(f"flow {flow.name}: {problem[0]}")
        if flow.endpoint is not None and (wrong := store_problem(flow.endpoint)):
            raise BadJobSpec(f"flow {flow.name}: {wrong}")
        if flow.files is not None and flow.lines is not None:
            raise BadJobSpec(f"flow {flow.name} has files on both sides")


def _patterns(spec: JobSpec) -> Iterator[tuple[str, Iterable[str]]]:
    """Yields every list of regexes, with the place where it stands."""
    for flow in spec.flows:
        for key, selection in (("topics", flow.topics), ("groups", flow.groups)):
            yield f"flow {flow.name}: {key}", (*selection.include, *selection.exclude)
        yield f"flow {flow.name}: promoted", flow.promoted
        yield f"flow {flow.name}: configs.exclude", flow.configs.exclude
    for route in spec.routes:
        undoes = route.undoes
        more = (*undoes.include, *undoes.exclude) if undoes is not None else ()
        yield f"route {route.name}: topics", (*route.topics.include, *route.topics.exclude, *more)


class JobExit(IntEnum):
    """Lists the exit codes of a job's process.

    STOPPED, BAD_SPEC and FENCED are final. After FAILED or any other number the supervisor starts the job
    again.
    """

    STOPPED = 0  # stopped on request
    FAILED = 1
    BAD_SPEC = 64
    FENCED = 75  # another driver runs the job: a fenced driver no longer acts (R10)

    @property
    def final(self) -> bool:
        """Returns whether the supervisor does not start the job again."""
        return self is not JobExit.FAILED


# How a final exit code reads, such as `fenced`.
FINAL_EXITS = {int(code): code.name.lower().replace("_", " ") for code in JobExit if code.final}
