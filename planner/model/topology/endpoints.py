"""File endpoints: folders and object stores that flows write to or read from, in place of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from msgspec import structs

from planner.model.diagnostic import SourceLocation
from planner.model.topology.flows import Flow
from planner.model.topology.resources import Setting
from runtime.contract.client.stores import is_store
from runtime.contract.spec.files import DEFAULT_LAYOUT, DEFAULT_SNAPSHOTS_MS, Format, SourceFormat
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.shapes import DurationShape, Key, RecordName, SettingsShape, TextShape

# The keys of a flow into an endpoint. The others are about topics and groups at a destination cluster.
FILE_FLOW_KEYS: Final = frozenset(
    {
        "name",
        "from",
        "to",
        "topics",
        "every",
        "start",
        "state",
        "rate_limit",
        "rpo",
        "on_data_loss",
        "transform",
        "job",
    }
)
# The keys of a flow from an endpoint.
LINES_FLOW_KEYS: Final = frozenset(
    {"name", "from", "to", "topics", "every", "state", "rate_limit", "on_data_loss", "job"}
)
DEFAULT_EVERY_MS: Final = 60_000
DEFAULT_LOOK_MS: Final = 1_000


class FileFormat(StrEnum):
    JSON = "json"
    PARQUET = "parquet"
    RAW = "raw"
    TEXT = "text"


SOURCE_FORMATS: Final = frozenset({FileFormat.TEXT, FileFormat.JSON, FileFormat.PARQUET})
_WRITTEN: Final[Mapping[FileFormat, Format]] = {FileFormat.JSON: "json", FileFormat.PARQUET: "parquet"}
_READ: Final[Mapping[FileFormat, SourceFormat]] = {FileFormat.JSON: "json", FileFormat.PARQUET: "parquet"}
_SIZE: Final = TextShape("a size as Spark writes it", r"\d+[kmgtKMGT][bB]?", "write it as 128m or 1g")


def bytes_of(size: str) -> int:
    """Returns a size in bytes, from text such as 128m or 1g."""
    number = size.rstrip("bB")
    return int(number[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[number[-1].lower()]


@dataclass(frozen=True, slots=True)
class Compaction:
    """How small files of one partition in one folder are merged into larger ones."""

    record: ClassVar = RecordName("compact", "the merge of small files")

    every_ms: Annotated[int, Key("How often small files are merged.", DurationShape(), example="1h")] = (
        3_600_000
    )
    below: Annotated[
        str,
        Key("Files smaller than this are merged, up to the `size` of a file.", _SIZE, example="16m"),
    ] = "16m"
    retention_ms: Annotated[
        int,
        Key(
            "How long the files that a merged one replaces can still be read, under `_repl`.",
            DurationShape(),
            example="1d",
        ),
    ] = 86_400_000

    @property
    def below_bytes(self) -> int:
        """Returns the limit in bytes."""
        return bytes_of(self.below)


@dataclass(frozen=True, slots=True)
class FileEndpoint:
    """A folder that every machine of a job sees under the same path, or a prefix of a bucket.

    Flows write files below it, or one flow reads the lines or rows of the files in it.
    """

    record: ClassVar = RecordName("endpoint", "an endpoint")

    name: str
    folder: Annotated[
        str,
        Key(
            "The absolute path of a folder, which must exist on every machine of the job, or"
            " `s3a://bucket/prefix` of an object store, whose bucket must exist.",
            TextShape("the path of a folder, or s3a://bucket/prefix"),
            name="file",
            example="/data/lake",
        ),
    ]
    format: Annotated[
        FileFormat,
        Key(
            "`json` is a line for each record, `raw` holds record batches byte for byte, with offsets. Lines"
            " of `text` and `json` and rows of `parquet` can be read.",
            example="parquet",
        ),
    ] = FileFormat.PARQUET
    recursive: Annotated[
        bool,
        Key(
            "Whether files in folders below the endpoint's folder are read, too. Only flows from files have"
            " it.",
            example="true",
        ),
    ] = False
    layout: Annotated[
        str,
        Key(
            "The folder of a file, with `{topic}` once, and `{partition}`, `{date}` and `{hour}` (UTC)."
            " Files of the format raw have no dates.",
            TextShape("a layout"),
            default_doc="`{topic}/`",
            example='"{topic}/date={date}/"',
        ),
    ] = DEFAULT_LAYOUT
    size: Annotated[
        str,
        Key(
            "A file that has reached this size is closed; all are closed at the end of each round.",
            _SIZE,
            example="256m",
        ),
    ] = "128m"
    snapshots_every_ms: Annotated[
        int,
        Key(
            "How often a snapshot of topic configs, ACLs and group offsets is kept. Only the format raw"
            " has them.",
            DurationShape(),
            name="snapshots",
            example="10m",
        ),
    ] = DEFAULT_SNAPSHOTS_MS
    compact: Annotated[
        Compaction | None,
        Key(
            "Merges small files, a pass after a round. A plain listing of the folder may show a record twice"
            " for a moment.",
            example="{every: 1h, below: 16m}",
            unset=True,
        ),
    ] = None
    client: Annotated[
        Mapping[str, Setting],
        Key(
            "How an object store is reached: `region`, `endpoint` (AWS without it), `access.key`,"
            " `secret.key`, `session.token`, `ssl.ca.location`. Secrets are `{env: VARIABLE}` or"
            " `{file: path}`. Without keys, the machine's own credentials are used.",
            SettingsShape(store=True, expected="a map of settings"),
            example="{region: eu-central-1, access.key: {env: S3_KEY}, secret.key: {env: S3_SECRET}}",
        ),
    ] = field(default_factory=dict, repr=False)
    source: SourceLocation | None = None

    @property
    def in_store(self) -> bool:
        """Whether the files are in an object store."""
        return is_store(self.folder)

    @property
    def written_format(self) -> Format:
        """The format of a flow into the endpoint. Reading the topology refuses one that would write text."""
        return _WRITTEN.get(self.format, "raw")

    @property
    def read_format(self) -> SourceFormat:
        """The format of a flow from the endpoint. Reading the topology refuses one that would read raw."""
        return _READ.get(self.format, "text")

    @property
    def size_bytes(self) -> int:
        """Returns the size in bytes."""
        return bytes_of(self.size)


def at_home(flow: Flow) -> Flow:
    """Returns a flow into or from an endpoint as its job has it.

    Both ends are the cluster of the job's internal topics, and the duties of a flow between clusters are off.
    """
    home = flow.destination_cluster if flow.from_files else flow.source_cluster
    return structs.replace(
        flow,
        source_cluster=home,
        destination_cluster=home,
        groups=GroupsSpec(sync=False),
        configs=ConfigsSpec(sync="off"),
        follow_every_ms=None,
        heartbeats_every_ms=None,
        checkpoints_every_ms=None,
        origin_commits=None,
    )
