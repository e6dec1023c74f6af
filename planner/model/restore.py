"""What a restore brings back, as it was read of a backup and fitted to the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.topology import AclRule
from runtime.contract.records.manifest import SnapshotOffset


@dataclass(frozen=True, slots=True)
class BackupState:
    """Which backup is restored: the manifest of `flow` in `folder` after a commit, and up to which time.

    `client` is how the object store is reached that holds it, as the steps have it.
    """

    endpoint: str
    folder: str
    flow: str
    commit: int
    digest: str
    until: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic to restore. `exists`: the cluster has it, and it is empty or holds a part of this restore.

    `ends` has, for each partition, the offset of the backup before which the restore ends.
    """

    name: str
    source: str
    source_id: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]
    ends: tuple[int, ...]
    records: int
    exists: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredGroup:
    """A consumer group whose offsets are restored, by partitions of the restored topics."""

    name: str
    offsets: tuple[SnapshotOffset, ...]
    snapshot: str = field(default="")


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """What a restore takes from a backup. `held` are the settings that a topic has while it is restored."""

    state: BackupState
    cluster: str
    held: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[RestoredTopic, ...] = ()
    groups: tuple[RestoredGroup, ...] = ()
    acls: tuple[AclRule, ...] = ()
