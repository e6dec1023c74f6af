"""Defines requests and outcomes of the application of `repl salvage --replay` and `repl restore`."""

from __future__ import annotations

from typing import Final

import msgspec

from runtime.audit.ledger import SparkOutcome
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.manifest import BackupState, DataFile
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import RecordPart, RegistrySpec

RESTORED: Final = "are equal to the backup"  # the line of a partition that is restored ends so


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, tag="replay"):
    """Describes a replay. It holds no secret: clusters hold references, as in a job's spec.

    `parts` are the partitions with orphans, as a slot of the flow would copy them. Their records go into the
    topic `to`, or without it into each one's own mirror. `bytes` is the approximate size of one transaction,
    in bytes at the source. `registries` are the schema registries of a flow that syncs schemas, by cluster.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    parts: list[AssignedPartition]
    to: str | None = None
    bytes: int = 2 << 20
    within_s: float = 10.0
    registries: dict[str, RegistrySpec] = msgspec.field(default_factory=dict)

    def into(self, part: AssignedPartition) -> str:
        """Returns the topic that the records of a partition are copied to."""
        return self.to or part.destination_topic


class RestoredIds(msgspec.Struct, frozen=True):
    """The cluster's ids for those of a backup, in keys and values of one topic (`parts`).

    With `every`, a number in these parts that is no id of the backup is an error. Without it, such a number
    is no id, and stays.
    """

    numbers: dict[int, int]
    parts: list[RecordPart]
    every: bool


class RestoreTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Names a topic of a backup, the topic that it is restored into, and where each partition ends.

    `ids` are written into its records; without them, the records keep theirs.
    """

    topic: str
    topic_id: str
    into: str
    ends: dict[int, int]
    ids: RestoredIds | None = None


class RestorePartition(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a partition to restore: its files, cut off at `end`."""

    topic: str
    topic_id: str
    into: str
    partition: int
    end: int
    max_message_bytes: int
    files: list[DataFile]
    ids: RestoredIds | None = None


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, tag="restore"):
    """Describes a restore. It holds no secret: the cluster holds references, as in a job's spec.

    The application makes `parts` of the topics, and a task gets some of them. A transaction holds about
    `bytes` of one partition. A partition that makes no progress for `within_s` fails.
    """

    backup: BackupState
    name: str
    cluster: ClusterSpec
    topics: list[RestoreTopic]
    parts: list[RestorePartition] = []
    bytes: int = 16 << 20
    within_s: float = 30.0


encode_request = msgspec.json.encode
decode_request = msgspec.json.Decoder(ReplayRequest | RestoreRequest).decode
decode_outcome = msgspec.json.Decoder(SparkOutcome[list[ReplayedPartition]]).decode
encode_copied = msgspec.json.encode
decode_copied = msgspec.json.Decoder(list[ReplayedPartition]).decode
