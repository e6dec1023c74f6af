"""What a restore brings back, as it was read of a backup and fitted to the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.topology import AclRule
from runtime.contract.records.manifest import BackupState, SnapshotOffset
from runtime.schemas.versions import SchemaVersion


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
class RestoredSubject:
    """A subject of the cluster's schema registry, and versions of the backup that it lacks."""

    name: str
    subject: str  # its name in the backup
    versions: tuple[SchemaVersion, ...]
    compatibility: str = ""


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """What a restore takes from a backup, up to the time `until`.

    `translated`: the records get the ids of schemas that the cluster's registry gives. `held` are the
    settings that a topic has while it is restored.
    """

    endpoint: str
    state: BackupState
    until: str
    cluster: str
    held: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[RestoredTopic, ...] = ()
    groups: tuple[RestoredGroup, ...] = ()
    acls: tuple[AclRule, ...] = ()
    subjects: tuple[RestoredSubject, ...] = ()
    translated: bool = False
