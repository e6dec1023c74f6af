"""Checkpoints of a manifest, in a folder and at a real S3 server: readers that begin there see the same."""

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.manifest import Commit, DataFile, FilePosition, encode
from runtime.driver.duties.checkpoint import CheckpointDuty
from runtime.files import checkpoint
from runtime.files.backup import Backup, read_backup
from runtime.files.checkpoint import write_checkpoint
from runtime.files.compaction import FileIndex, read_index
from runtime.files.manifest import ManifestFolder, ManifestProblem, ManifestState
from tests.runtime.files.backups import ONE, TWO, UNNAMED, Place, commit_of, file, own_of
from tests.runtime.files.lake import NOON, Lake
from tests.runtime.files.test_compaction import documented_files, lines_in
from tests.spark.exported import lines_of

SMALL = 1 << 10


class Log:
    """A manifest that grows, and what its readers see."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.folder = ManifestFolder(place[0], "f", place[1])
        self.state = ManifestState()

    def next(self) -> Commit:
        last = self.state.last
        return commit_of(last.number + 1 if last is not None else 1)

    def add(self, *files: DataFile, replaced: Sequence[DataFile] = (), topic_id: str = ONE) -> Commit:
        """Adds a commit that moves the position by one for each file."""
        known = self.state.positions.get(("orders", 0))
        same = known is not None and known.topic_id == topic_id
        at = (known.position if known is not None and same else 0) + len(files) - len(replaced)
        position = FilePosition(topic="orders", topic_id=topic_id, partition=0, position=max(at, 0))
        paths = [one.path for one in replaced]
        self.folder.add(
            self.state, replace(self.next(), files=list(files), replaced=paths, positions=[position])
        )
        assert self.state.last is not None
        return self.state.last

    def checkpoint(self) -> None:
        duty = CheckpointDuty("f", self.folder)
        asyncio.run(duty.run(self.state, self.next()))
        assert duty.note == ""

    def backup(self) -> Backup:
        return read_backup(self.place[0], "f", client=self.place[1])

    def rounds(self, first: int, end: int) -> list[DataFile]:
        files = [file(at, SMALL) for at in range(first, end)]
        for one in files:
            self.add(one)
        return files


def paths_of(backup: Backup) -> list[str]:
    return [one.path for lineage in backup.lineages["orders"] for one in lineage.files.get(0, [])]


def without_checkpoints(log: Log, last: Commit) -> Backup:
    """What all commits say, read one by one."""
    found = Backup("f")
    for commit, digest in log.folder.chained(log.folder.numbers(1), ""):
        if commit.number <= last.number:
            found.take(commit, digest)
    return found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log((str(tmp_path), {}))


def test_a_reader_begins_at_the_newest_checkpoint_and_sees_the_same(place: Place) -> None:
    log = Log(place)
    files = log.rounds(0, 5)
    log.checkpoint()
    files += log.rounds(5, 8)
    log.checkpoint()
    files += log.rounds(8, 9)
    newest, numbers = log.folder.base()
    assert newest is not None
    assert (newest.number, numbers) == (9, [10, 11])
    assert log.folder.numbers() == [9, 10, 11]
    assert log.backup() == without_checkpoints(log, log.next())
    assert paths_of(log.backup()) == [one.path for one in files]
    again = log.folder.read()
    assert (again.last, again.digest, again.positions) == (
        log.state.last,
        log.state.digest,
        log.state.positions,
    )
    assert again.checkpoint == log.state.checkpoint


def test_commits_before_the_newest_checkpoint_are_not_needed(log: Log) -> None:
    files = log.rounds(0, 5)
    log.checkpoint()
    files += log.rounds(5, 8)
    planned = log.backup()
    early = without_checkpoints(log, replace(log.next(), number=2))
    log.folder.store.remove(f"{log.folder.own}/log/{number:020d}.json" for number in range(1, 5))
    assert paths_of(log.backup()) == [one.path for one in files]
    assert log.folder.read().digest == log.state.digest
    assert read_backup(log.place[0], "f", planned.commit, planned.digest, log.place[1]) == planned
    with pytest.raises(ManifestProblem, match="not the one that was planned with: plan again"):
        read_backup(log.place[0], "f", early.commit, early.digest, log.place[1])
    log.rounds(8, 9)
    log.checkpoint()
    assert log.backup().topics()["orders"].positions[0].position == 9
    log.folder.store.remove([f"{log.folder.own}/log/{9:020d}.json"])  # and this one is needed
    with pytest.raises(ManifestProblem, match=r"the commit \d+ is missing"):
        log.folder.numbers(8)


def test_a_state_that_was_planned_before_checkpoints_is_read_as_it_was(log: Log) -> None:
    log.rounds(0, 3)
    planned = log.backup()
    log.rounds(3, 5)
    log.checkpoint()
    between = log.backup()
    log.rounds(5, 6)
    log.checkpoint()
    for one in (planned, between):
        assert read_backup(log.place[0], "f", one.commit, one.digest, log.place[1]) == one


def test_the_documented_program_begins_at_the_checkpoint(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "raw")
    for at in range(4):
        lake.round(NOON + at)
        if at == 2:
            lake.merge()
            asyncio.run(CheckpointDuty("f", lake.folder).run(lake.state, lake.next()))
    (own_of(lake.folder) / "log" / f"{1:020d}.json").unlink()
    found = documented_files(lake)
    assert len(found) == 2
    assert sorted(line for path in found for line in lines_in(path)) == lines_of(tmp_path)


def test_lineages_of_a_topic_that_was_made_again_or_got_its_id_later(log: Log) -> None:
    log.add(file(0, SMALL, topic_id=UNNAMED), topic_id=UNNAMED)
    log.add(file(1, SMALL, topic_id=ONE), topic_id=ONE)
    log.add(file(0, SMALL, topic_id=TWO), topic_id=TWO)
    before = log.backup()
    log.checkpoint()
    found = log.backup()
    assert found.lineages == before.lineages
    assert [(one.topic_id, [each.first for each in one.files[0]]) for one in found.lineages["orders"]] == [
        (ONE, [0, 1]),
        (TWO, [0]),
    ]


@pytest.mark.parametrize("what", ["checkpoints", "lists"])
def test_a_checkpoint_that_was_edited_or_exchanged_is_noticed(log: Log, what: str) -> None:
    log.rounds(0, 3)
    log.checkpoint()
    (path,) = (one for one in (own_of(log.folder) / what).iterdir() if one.suffix == ".json")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"records":1', b'"records":2').replace(b'"at_ms":', b'"at_ms":9'))
    assert path.read_bytes() != whole
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        log.backup()
    path.write_bytes(whole[:-9])
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        log.backup()
    path.write_bytes(encode(replace(log.next(), number=7)))  # a whole value of another kind
    with pytest.raises(ManifestProblem, match="can't be read"):
        log.backup()
    path.write_bytes(whole)
    assert len(paths_of(log.backup())) == 3
    path.unlink()  # all commits are there
    assert len(paths_of(log.backup())) == 3
    (own_of(log.folder) / "log" / f"{1:020d}.json").unlink()
    with pytest.raises(ManifestProblem, match="the commit 1 is missing"):
        log.backup()


def test_another_whole_checkpoint_in_its_place_is_noticed(tmp_path: Path) -> None:
    log, forged = Log((str(tmp_path / "a"), {})), Log((str(tmp_path / "b"), {}))
    for one in (log, forged):
        Path(one.place[0]).mkdir()
        one.rounds(0, 2 if one is forged else 3)
        one.checkpoint()
    (path,) = (own_of(log.folder) / "checkpoints").glob("*.json")
    (other,) = (own_of(forged.folder) / "checkpoints").glob("*.json")
    path.write_bytes(other.read_bytes())
    with pytest.raises(ManifestProblem, match="it was exchanged"):
        log.backup()


class Killed(BaseException):
    """The driver ends where this is raised: nothing of its own code runs behind it."""


def killed_at(change: int, log: Log, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Runs the duty until its nth change of the folder, which is not made. False where there are fewer."""
    changes = itertools.count(1)

    def mortal(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            if next(changes) == change:
                raise Killed
            return make(*arguments)

        return made

    with monkeypatch.context() as patched:
        for name in ("add", "remove_older"):
            patched.setattr(log.folder.store, name, mortal(getattr(log.folder.store, name)))
        try:
            asyncio.run(CheckpointDuty("f", log.folder).run(log.state, log.next()))
        except Killed:
            return True
    return False


@pytest.mark.parametrize("change", range(1, 6), ids=["list", "checkpoint", "commit", "checkpoints", "lists"])
def test_wherever_a_driver_dies_at_a_checkpoint_its_readers_and_the_next_driver_miss_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    """It dies before each write. The commits before the checkpoint that is named then may be gone, too."""
    log = Log((str(tmp_path), {}))
    files: list[DataFile] = []
    for at in range(4):
        files += log.rounds(at, at + 1)
        if at < 3:
            log.checkpoint()
    for path in own_of(log.folder).rglob("*.json"):
        os.utime(path, (0, 0))  # so old that those which are not needed are removed
    state = ManifestState(log.state.last, log.state.digest, dict(log.state.positions))
    assert killed_at(change, log, monkeypatch)

    after = Log((str(tmp_path), {}))
    after.state = after.folder.read()
    assert (after.state.digest == state.digest) == (change <= 3)
    assert after.state.positions == state.positions
    named = after.state.checkpoint
    assert named is not None
    log.folder.store.remove(f"{log.folder.own}/log/{number:020d}.json" for number in range(1, named.number))
    assert paths_of(after.backup()) == [one.path for one in files]
    after.checkpoint()
    files += after.rounds(4, 5)
    assert paths_of(after.backup()) == [one.path for one in files]
    assert after.state.checkpoint != named
    assert not killed_at(6, after, monkeypatch)  # that were all changes


def test_a_state_without_all_positions_at_its_newest_checkpoint_is_read_from_the_one_before(log: Log) -> None:
    log.rounds(0, 3)
    log.checkpoint()
    log.rounds(3, 5)
    write_checkpoint(log.folder, log.state)
    assert log.folder.numbers() == [6]  # its commit has not all positions
    again = log.folder.read()
    assert (again.digest, again.positions) == (log.state.digest, log.state.positions)


def test_of_older_checkpoints_two_and_those_of_the_last_hour_stay(place: Place) -> None:
    log = Log(place)
    for at in range(4):
        log.rounds(at, at + 1)
        log.checkpoint()

    def there(what: str) -> list[str]:
        return sorted(one for one in log.folder.store.names(f"{log.folder.own}/{what}") if one != ".now")

    assert (len(there("checkpoints")), len(there("lists"))) == (4, 4)
    assert log.folder.remove_checkpoints(3_600) == 0
    assert log.folder.remove_checkpoints(0) == 4
    assert (len(there("checkpoints")), len(there("lists"))) == (2, 2)
    assert len(paths_of(log.backup())) == 4
    assert log.folder.remove_checkpoints(0) == 0


def test_a_checkpoint_writes_no_list_anew_that_has_not_changed(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "LIST_FILES", 4)
    files = log.rounds(0, 9)
    log.checkpoint()
    first, _ = log.folder.base()
    files += log.rounds(9, 11)
    log.checkpoint()
    second, _ = log.folder.base()
    merged = replace(files[6], path="orders/merged.log", end=8, records=2)
    log.add(merged, replaced=files[6:8])
    log.checkpoint()
    third, _ = log.folder.base()
    assert first is not None
    assert second is not None
    assert third is not None
    assert [one.files for one in first.lists] == [4, 4, 1]
    assert [one.files for one in second.lists] == [4, 4, 3]
    assert [one.files for one in third.lists] == [4, 4, 2]
    assert first.lists[:2] == second.lists[:2]
    assert second.lists[0] == third.lists[0]
    assert paths_of(log.backup()) == paths_of(without_checkpoints(log, log.next()))


def test_a_store_that_is_away_is_no_reason_to_stop(log: Log) -> None:
    log.rounds(0, 2)
    (own_of(log.folder) / "lists").write_text("a file where a folder has to be")
    duty = CheckpointDuty("f", log.folder, every=2)
    assert duty.is_due(log.state)
    asyncio.run(duty.run(log.state, log.next()))
    assert "no checkpoint of the manifest is written: " in duty.note
    assert not duty.is_due(log.state)  # it is tried again later
    assert log.state.last is not None
    assert log.state.last.number == 2
    (own_of(log.folder) / "lists").unlink()
    log.checkpoint()
    assert not CheckpointDuty("f", log.folder, every=2).is_due(log.state)


def test_a_damaged_checkpoint_of_the_past_is_named(log: Log) -> None:
    for at in range(3):
        log.rounds(at, at + 1)
        log.checkpoint()
    for path in (own_of(log.folder) / "checkpoints").glob("*.json"):
        path.write_bytes(b"{}")
    with pytest.raises(ManifestProblem, match="can't be read"):
        log.folder.remove_checkpoints(3_600)
    with pytest.raises(ManifestProblem, match="can't be read"):
        log.backup()


_STEPS = st.lists(
    st.one_of(st.just("round"), st.just("checkpoint"), st.tuples(st.integers(0, 30), st.integers(2, 5))),
    max_size=40,
)


@pytest.mark.slow
@given(steps=_STEPS)
def test_any_history_reads_the_same_with_checkpoints_as_without(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | tuple[int, int]]
) -> None:
    log = Log((str(tmp_path_factory.mktemp("log")), {}))
    live: list[DataFile] = []
    offset = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint, "LIST_FILES", 3)
        for step in steps:
            if step == "round" or (step == "checkpoint" and log.state.last is None):
                live += log.rounds(offset, offset + 1)
                offset += 1
            elif step == "checkpoint":
                log.checkpoint()
            elif isinstance(step, tuple) and len(live) > step[0] + 1:
                at, end = step[0], min(step[0] + step[1], len(live))
                number = log.next().number
                path = f"orders/f-{live[at].first}.m{number}.log"
                merged = replace(live[at], path=path, end=live[end - 1].end)
                log.add(merged, replaced=live[at:end])
                live[at:end] = [merged]
    if log.state.last is None:
        return
    assert log.backup() == without_checkpoints(log, log.next())
    assert paths_of(log.backup()) == [one.path for one in live] if live else True
    index = FileIndex(1 << 20)
    for commit, _ in log.folder.chained(log.folder.numbers(1)):
        index.apply(commit)
    assert read_index(log.folder, 1 << 20).small() == index.small()
    again = log.folder.read()
    assert (again.digest, again.positions) == (log.state.digest, log.state.positions)
