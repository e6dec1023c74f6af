"""Codec of the manifest of a file endpoint, and of the snapshots beside it. Each flow has its own.

A commit of the manifest is one file: a line of JSON and the SHA-256 of that line. A commit that was cut off
or edited is not read. It names the digest of the commit before, so that an exchanged commit is noticed too.

A checkpoint sums up all commits up to one: what they say of positions, and the lists of the files that are
there. It is named by the digest of its content, which a commit records, as are its lists.

A snapshot has the same form. It describes what records do not hold: configs and partitions of topics, their
ACLs, and the committed offsets of consumer groups.
"""

import hashlib
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import MsgspecDecoder, UnreadableValue

VERSION: Final = 1
REPLACING: Final = 2  # the version of commits that replace files: earlier readers refuse it
_T = TypeVar("_T")
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class OffsetGap(msgspec.Struct, frozen=True, kw_only=True):
    """Records that a flow gave up the offsets `low … end-1` of a partition."""

    low: _Offset
    end: _Offset
    why: str
    at_ms: int


class FilePosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records where a partition resumes (R1): every committed record below `position` is in the files.

    `topic_id` is the lineage: a topic that was made again has another one, and begins at 0. The counts are
    those of this lineage; `dropped` counts the records that the flow's transform filtered, and `tombstones`
    those that it filtered and that were written as tombstones.
    """

    topic: str
    topic_id: str
    partition: int
    position: _Offset
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    tombstones: int = 0
    last_timestamp: int = -1
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
    topic_id: str
    partition: int
    first: _Offset
    end: _Offset
    records: int
    size: int
    crc32c: int
    first_timestamp: int = -1
    last_timestamp: int = -1


class SmallFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Lists the files that may still be merged, in the order of offsets: those below `below` bytes.

    A larger file is listed where it parts two others, which are never merged over it.
    """

    below: int
    files: list[DataFile]


class ManifestOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Names the job that writes a manifest, and the cluster whose records it holds."""

    topology: str
    job: str
    cluster_id: str


class CheckpointRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a checkpoint: the commit whose state it holds, and the digest of its content."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    digest: str


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes one commit of a flow's manifest.

    `generation` is the flow's at the job's home cluster (R3). With `complete`, `positions` has every
    partition, else those that moved. `selection` is the digest of the selection that has begun: `start`
    applies to topics that are new under another one. A merged file in `files` takes the place of those in
    `replaced`, which hold the same records; `small` is then what is left to be merged. `checkpoint` is the
    newest one: readers begin there.
    """

    version: Literal[1, 2] = VERSION
    number: Annotated[int, msgspec.Meta(ge=1)]
    flow: str
    owner: ManifestOwner
    generation: int
    at_ms: int
    format: str
    previous: str = ""
    complete: bool = False
    selection: str = ""
    positions: list[FilePosition] = []
    files: list[DataFile] = []
    replaced: list[str] = []
    small: SmallFiles | None = None
    checkpoint: CheckpointRef | None = None


class FileListRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a list of files by the digest of its content, and counts its files."""

    digest: str
    files: int


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
    ids: Annotated[list[str], msgspec.Meta(min_length=1)]
    since_ms: int
    begins: dict[int, _Offset]
    positions: list[FilePosition]


class ManifestCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the state after the commit `number`, whose digest is `commit` and whose time is `at_ms`.

    `topics` has the lineages in the order in which they began, `lists` the files that no merge has replaced.
    """

    version: Literal[1] = VERSION
    flow: str
    number: Annotated[int, msgspec.Meta(ge=1)]
    commit: str
    at_ms: int
    owner: ManifestOwner
    format: str
    topics: list[CheckpointTopic] = []
    lists: list[FileListRef] = []


class SnapshotTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a topic. `config` has the values that are set on the topic itself."""

    name: str
    topic_id: str
    partitions: Annotated[int, msgspec.Meta(ge=1)]
    replication: Annotated[int, msgspec.Meta(ge=1)] = 1
    config: dict[str, str] = {}


class SnapshotAcl(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Describes an ACL rule on topics, in Kafka's upper-case enum names."""

    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]


class SnapshotOffset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes an offset that a consumer group has committed."""

    group: str
    topic: str
    partition: int
    offset: _Offset
    metadata: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the topics of a flow at one time. `acls` is None where the cluster has no authorizer.

    `unread` names what could not be read (`configs`, `acls`, `groups`), and why: it is missing here.
    """

    version: Literal[1] = VERSION
    flow: str
    cluster_id: str
    generation: int
    at_ms: int
    topics: list[SnapshotTopic] = []
    acls: list[SnapshotAcl] | None = None
    offsets: list[SnapshotOffset] = []
    unread: dict[str, str] = {}


class UnreadableCommit(UnreadableValue):
    """A part of a manifest that was cut off or edited, or that another version wrote."""


_commit = msgspec.json.Decoder(Commit)
_snapshot = msgspec.json.Decoder(Snapshot)
_checkpoint = msgspec.json.Decoder(ManifestCheckpoint)
_list = msgspec.json.Decoder(FileList)


def encode(value: Commit | Snapshot | ManifestCheckpoint | FileList) -> bytes:
    line = msgspec.json.encode(value)
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def digest_of(text: bytes) -> str:
    """Returns the digest that an encoded value ends with."""
    return text.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", "replace")


def decode(text: bytes) -> Commit:
    """Decodes a commit. Raises UnreadableCommit."""
    return _decoded(_commit, text)


def decode_snapshot(text: bytes) -> Snapshot:
    """Decodes a snapshot. Raises UnreadableCommit."""
    return _decoded(_snapshot, text)


def decode_checkpoint(text: bytes) -> ManifestCheckpoint:
    """Decodes a checkpoint. Raises UnreadableCommit."""
    return _decoded(_checkpoint, text)


def decode_list(text: bytes) -> FileList:
    """Decodes a list of files. Raises UnreadableCommit."""
    return _decoded(_list, text)


def _decoded(decoder: MsgspecDecoder[_T], text: bytes) -> _T:
    line, _, digest = text.rstrip(b"\n").rpartition(b"\n")
    if hashlib.sha256(line).hexdigest().encode() != digest:
        raise UnreadableCommit("its digest is not that of its content: it was cut off or edited")
    try:
        return record_values.decode(decoder, line)
    except UnreadableValue as error:
        raise UnreadableCommit(str(error)) from error
