"""Encodes and decodes the manifest of a flow into files, and the snapshots beside it.

A commit of the manifest is one file: a line of JSON and the SHA-256 of that line. A commit that was cut off
or edited is not read. It names the digest of the commit before, so that an exchanged commit is noticed too.

A checkpoint sums up all commits up to one: what they say of positions, and the lists of the files that are
there. It is named by the digest of its content, which a commit records, as are its lists.

A snapshot has the same form. It describes what records do not hold: configs and partitions of topics, their
ACLs, and the committed offsets of consumer groups. Schemas have files of that form, too.

A digest is no signature: whoever may write the endpoint's folder may have written any of these. So each name
of a file is checked as it is decoded, and each number has its bounds.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from runtime.contract.client.stores import Setting
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.records.schemas import RegisteredSchema
from runtime.contract.spec.files import data_name_problem, staged_name_problem
from runtime.contract.spec.schemas import SubjectNames

VERSION: Final = 1
REPLACING: Final = 2  # the version of commits that replace files: earlier readers refuse it
_T = TypeVar("_T")
_MOST_PARTITIONS: Final = 1_000_000  # of a topic: far more than a cluster has
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Partition = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_PARTITIONS)]
_Time = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # ms, before the year 10000
_Timestamp = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # of a record: its producer chose it
_TopicId = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{2})*\Z", max_length=32)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # a part of the name of a file


class OffsetGap(msgspec.Struct, frozen=True, kw_only=True):
    """Records that a flow gave up the offsets `low … end-1` of a partition."""

    low: _Offset
    end: _Offset
    why: str
    at_ms: _Time


class FilePosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records where a partition resumes (R1): every committed record below `position` is in the files.

    `topic_id` is the lineage: a topic that was made again has another one, and begins at 0. The counts are
    those of this lineage; `dropped` counts the records that the flow's transform filtered, and `tombstones`
    those that it filtered and that were written as tombstones.
    """

    topic: str
    topic_id: _TopicId
    partition: _Partition
    position: _Offset
    records: _Count = 0
    bytes: _Count = 0
    dropped: _Count = 0
    tombstones: _Count = 0
    last_timestamp: _Timestamp = -1
    gaps: list[OffsetGap] = []

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a file with the records of the offsets `first … end-1`, as far as there are any.

    `path` is relative to the endpoint's folder, `staged` relative to the flow's own folder. A raw file may
    begin with a batch that also holds records before `first`: they are not part of it.
    """

    path: str
    staged: str
    topic: str
    topic_id: _TopicId
    partition: _Partition
    first: _Offset
    end: _Offset
    records: _Count
    size: _Count
    crc32c: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    first_timestamp: _Timestamp = -1
    last_timestamp: _Timestamp = -1

    def __post_init__(self) -> None:
        problem = data_name_problem(self.path) or staged_name_problem(self.staged)
        if problem is not None:
            raise ValueError(f"the name of a file, {problem}")


class SmallFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Lists the files that may still be merged, in the order of offsets: those below `below` bytes.

    A larger file is listed where it parts two others, which are never merged over it.
    """

    below: _Count
    files: list[DataFile]


class ManifestOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Names the job that writes a manifest, and the cluster whose records it holds."""

    topology: str
    job: str
    cluster_id: str


class CheckpointRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a checkpoint: the commit whose state it holds, and the digest of its content."""

    number: _Number
    digest: _Digest


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes one commit of a flow's manifest.

    `generation` is the flow's at the job's home cluster (R3). With `complete`, `positions` has every
    partition, else those that moved. `selection` is the digest of the selection that has begun: `start`
    applies to topics that are new under another one. A merged file in `files` takes the place of those in
    `replaced`, which hold the same records; `small` is then what is left to be merged. `checkpoint` is the
    newest one: readers begin there.
    """

    version: Literal[1, 2] = VERSION
    number: _Number
    flow: str
    owner: ManifestOwner
    generation: _Count
    at_ms: _Time
    format: str
    previous: str = ""
    complete: bool = False
    selection: str = ""
    positions: list[FilePosition] = []
    files: list[DataFile] = []
    replaced: list[str] = []
    small: SmallFiles | None = None
    checkpoint: CheckpointRef | None = None

    def __post_init__(self) -> None:
        problem = next(filter(None, map(data_name_problem, self.replaced)), None)
        if problem is not None:
            raise ValueError(f"the name of a replaced file, {problem}")


class FileListRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a list of files by the digest of its content, and counts its files."""

    digest: _Digest
    files: _Count


class FileList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lists some of the files of a checkpoint, in the order in which they were committed."""

    version: Literal[1] = VERSION
    flow: str
    files: list[DataFile]


class CheckpointTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one lineage of a topic: when it was seen first, where its partitions begin, how far they are.

    `ids` are the ids that the topic had, the newest one last.
    """

    name: str
    ids: Annotated[list[_TopicId], msgspec.Meta(min_length=1)]
    since_ms: _Time
    begins: dict[_Partition, _Offset]
    positions: list[FilePosition]


class ManifestCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the state after the commit `number`, whose digest is `commit` and whose time is `at_ms`.

    `topics` has the lineages in the order in which they began, `lists` the files that no merge has replaced.
    """

    version: Literal[1] = VERSION
    flow: str
    number: _Number
    commit: str
    at_ms: _Time
    owner: ManifestOwner
    format: str
    topics: list[CheckpointTopic] = []
    lists: list[FileListRef] = []


class SnapshotTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a topic. `config` has the values that are set on the topic itself."""

    name: str
    topic_id: _TopicId
    partitions: Annotated[int, msgspec.Meta(ge=1, le=_MOST_PARTITIONS)]
    replication: Annotated[int, msgspec.Meta(ge=1, le=2**15 - 1)] = 1
    config: dict[str, str] = {}


class SnapshotAcl(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Describes an ACL rule on topics, in Kafka's upper-case enum names."""

    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: Annotated[str, msgspec.Meta(pattern=r"\A[A-Z_]*\Z", max_length=40)]
    permission: Literal["ALLOW", "DENY"]


class BackupState(msgspec.Struct, frozen=True, kw_only=True):
    """Names a backup as it was read: the manifest of `flow` in `folder` after `commit`.

    `client` is how the object store is reached that holds the folder, with references in place of secrets.
    """

    folder: str
    flow: str
    commit: int
    digest: str
    client: Mapping[str, Setting] = {}


class SnapshotOffset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes an offset that a consumer group has committed."""

    group: str
    topic: str
    partition: _Partition
    offset: _Offset
    metadata: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the topics of a flow at one time. `acls` is None where the cluster has no authorizer.

    `unread` names what is missing here, and why: `configs`, `acls`, `groups`, or `share groups`, whose start
    offsets are not backed up.
    """

    version: Literal[1] = VERSION
    flow: str
    cluster_id: str
    generation: _Count
    at_ms: _Time
    topics: list[SnapshotTopic] = []
    acls: list[SnapshotAcl] | None = None
    offsets: list[SnapshotOffset] = []
    unread: dict[str, str] = {}


class StoredSchemas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Adds schemas to a backup: versions that it lacked, and compatibilities that changed.

    A compatibility of "" says that the subject has none of its own any more. `names` is how producers
    name subjects.
    """

    version: Literal[1] = VERSION
    flow: str
    number: _Number
    names: SubjectNames = "topic_name"
    versions: list[RegisteredSchema] = []
    levels: dict[str, Annotated[str, msgspec.Meta(pattern=r"\A[A-Z_]*\Z", max_length=40)]] = {}


class UnreadableCommit(UnreadableValue):
    """A part of a manifest that was cut off or edited, or that another version wrote."""


def encode(value: Commit | Snapshot | ManifestCheckpoint | FileList | StoredSchemas) -> bytes:
    line = msgspec.json.encode(value)
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def digest_of(text: bytes) -> str:
    """Returns the digest that an encoded value ends with."""
    return text.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", "replace")


def _decoder(kind: type[_T]) -> Callable[[bytes], _T]:
    """Returns the function that decodes such a value. It raises UnreadableCommit."""
    decoder = msgspec.json.Decoder(kind)

    def decoded(text: bytes) -> _T:
        line, _, digest = text.rstrip(b"\n").rpartition(b"\n")
        if hashlib.sha256(line).hexdigest().encode() != digest:
            raise UnreadableCommit("its digest is not that of its content: it was cut off or edited")
        try:
            return record_values.decode(decoder, line)
        except UnreadableValue as error:
            raise UnreadableCommit(str(error)) from error

    return decoded


decode = _decoder(Commit)
decode_snapshot = _decoder(Snapshot)
decode_checkpoint = _decoder(ManifestCheckpoint)
decode_list = _decoder(FileList)
decode_schemas = _decoder(StoredSchemas)
