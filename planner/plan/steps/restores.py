"""The steps that bring a backup back: its records, and the offsets of consumer groups."""

from collections.abc import Collection, Iterator

from planner.model.restore import RestoredTopic
from planner.model.step import Step
from runtime.contract.records.manifest import BackupState, SnapshotOffset
from runtime.schemas.versions import SchemaVersion


class RestoreStep(Step, frozen=True):
    """A step that writes what a backup holds. It is neither compared afterwards nor undone."""

    verb = "restore"
    past = "restored"
    not_undone = (
        "what a restore wrote is kept",
        "delete the restored topics, or reset the offsets of the group",
    )


class RestoreRecords(RestoreStep, frozen=True):
    """Writes the records of a backup's topic into `topic`, and compares them in the end."""

    in_one_batch = True

    topic: str
    restored: RestoredTopic
    backup: BackupState
    translated: bool = False

    @property
    def progress(self) -> str:
        return f"restoring {self.restored.records:,} records"

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        number = self.restored.records
        records = f"{number:,} record{'' if number == 1 else 's'}"
        yield f"{records} of {self.restored.source} from {self.backup.folder}"
        yield f"flow {self.backup.flow}, commit {self.backup.commit}, topic id {self.restored.source_id}"
        yield f"before the offsets {', '.join(map(str, self.restored.ends))}"
        if self.translated:
            yield f"ids of schemas as the registry of {self.cluster} gives them"


class RestoreOffsets(RestoreStep, frozen=True):
    """Commits the offsets of a consumer group, translated by the offset map of the restored topics."""

    group: str
    flow: str
    offsets: tuple[SnapshotOffset, ...]

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield ", ".join(f"{offset.topic}-{offset.partition}: {offset.offset}" for offset in self.offsets)


class RestoreSchemas(RestoreStep, frozen=True):
    """Registers versions of a backup's subject, and first the schemas that they refer to.

    They keep their ids, or get those of the registry where ids are `translated`.
    """

    subject_name: str
    source_subject: str
    versions: tuple[SchemaVersion, ...]
    compatibility: str
    backup: BackupState
    translated: bool = False

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        numbers = ", ".join(f"{version.number} (id {version.id})" for version in self.versions)
        ids = "translated" if self.translated else "kept"
        yield f"version {numbers} of {self.source_subject} from {self.backup.folder}, ids {ids}"
        if self.compatibility:
            yield f"compatibility={self.compatibility}"
