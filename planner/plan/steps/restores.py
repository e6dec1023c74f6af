"""The steps that bring a backup back: its records, and the offsets of consumer groups."""

from collections.abc import Collection, Iterator

from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.step import ApplyRecord, Step, Undone
from runtime.contract.records.manifest import SnapshotOffset


class RestoreStep(Step, frozen=True):
    """A step that writes what a backup holds. It is neither compared afterwards nor undone."""

    verb = "restore"
    past = "restored"

    def no_longer_done(
        self, now: ObservedCluster, entry: RegistryEntry | None, superseded: Collection[str]
    ) -> Iterator[str]:
        yield from ()

    def undo(self, now: ObservedCluster, entry: RegistryEntry | None, applied: ApplyRecord) -> Undone:
        return Undone(
            why_not="what a restore wrote is kept",
            hint="delete the restored topics, or reset the offsets of the group",
        )


class RestoreRecords(RestoreStep, frozen=True):
    """Writes the records of a backup's topic into `topic`, and compares them in the end.

    `commit` and `digest` name the state of the flow's manifest in `folder`. `ends` has, for each partition,
    the offset of the backup before which the restore ends. `client` is a JSON text: how the object store is
    reached that `folder` names, with references in the place of secrets.
    """

    in_one_batch = True

    topic: str
    endpoint: str
    folder: str
    flow: str
    commit: int
    digest: str
    source: str
    source_id: str
    ends: tuple[int, ...]
    records: int
    client: str = ""

    @property
    def progress(self) -> str:
        return f"restoring {self.records:,} records"

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        records = f"{self.records:,} record{'' if self.records == 1 else 's'}"
        yield f"{records} of {self.source} from {self.folder}"
        yield f"flow {self.flow}, commit {self.commit}, topic id {self.source_id}"
        yield f"before the offsets {', '.join(map(str, self.ends))}"


class RestoreOffsets(RestoreStep, frozen=True):
    """Commits the offsets of a consumer group, translated by the offset map of the restored topics."""

    group: str
    flow: str
    offsets: tuple[SnapshotOffset, ...]

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield ", ".join(f"{offset.topic}-{offset.partition}: {offset.offset}" for offset in self.offsets)
