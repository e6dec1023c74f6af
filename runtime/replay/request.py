"""Defines requests and outcomes of the application of `repl salvage --replay` and `repl restore`."""

from __future__ import annotations

from typing import Final

import msgspec

from runtime.audit.ledger import SparkOutcome
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import BackupState, DataFile
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import RecordPart, RegistrySpec

RESTORED: Final = "are equal to the backup"  # the line of a partition that is restored ends so


class CopyStopped(Exception):
    """The partition can't be copied completely, or its content is not the expected one; the text says why."""


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


class RestorePartition(AssignedPartition, frozen=True, kw_only=True):
    """Describes a partition to restore: its files, cut off at `end`. The application adds the files.

    `flow` is that of the backup, `topic` and `topic_id` are the topic's name and id there.
    """

    topic_id: str
    end: int
    files: list[DataFile] = msgspec.field(default_factory=list)

    @property
    def key(self) -> PartitionKey:
        return restore_key(self.flow, self.destination_topic, self.partition)


def restore_key(flow: str, into: str, partition: int) -> PartitionKey:
    """Returns the ledger's name of a restored partition. No flow of a topology has such a name."""
    return PartitionKey(f"restore:{flow}:{into}", into, partition)


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, tag="restore"):
    """Describes a restore. It holds no secret: the cluster holds references, as in a job's spec.

    `ids` are written into the records, by the topic that these go into; without them, records keep theirs. A
    transaction holds about `bytes` of one partition. A partition that makes no progress for `within_s` fails.
    """

    backup: BackupState
    name: str
    cluster: ClusterSpec
    parts: list[RestorePartition]
    ids: dict[str, RestoredIds] = {}
    bytes: int = 16 << 20
    within_s: float = 30.0

    def into(self, part: AssignedPartition) -> str:
        """Returns the topic that the records of a partition are copied to."""
        return part.destination_topic


encode_request = msgspec.json.encode
decode_request = msgspec.json.Decoder(ReplayRequest | RestoreRequest).decode
decode_outcome = msgspec.json.Decoder(SparkOutcome[list[ReplayedPartition]]).decode
