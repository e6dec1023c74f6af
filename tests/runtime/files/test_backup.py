"""A backup as its manifest and files say it: lineages, cuts by time, and what can't be trusted."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.batch import Batch, Codec, records, walk
from runtime.files.backup import (
    BackedUpRecords,
    DamagedFile,
    PartitionCut,
    check_file,
    cut,
    files_up_to,
    flows_in,
    raw_records,
    read_backup,
    windows,
)
from runtime.files.manifest import ManifestProblem
from runtime.files.store import LocalFolder
from tests.runtime.batch.forge import batch_bytes, record, sets
from tests.runtime.files.backups import ONE, TWO, WHERE, WrittenBackup, text_of


@pytest.fixture
def written(tmp_path: Path) -> WrittenBackup:
    return WrittenBackup(tmp_path)


def test_a_backup_is_read_though_no_slot_of_the_usual_memory_unpacks_its_batch() -> None:
    """Raw files hold batches as they are, and no setting has a restore unpack more."""
    (large,) = sets(batch_bytes([record(1, bytes(140 << 20))], Codec.ZSTD))
    ((offset, _, _),) = raw_records(large, WHERE)
    assert offset == 1
    assert [row.offset for row in records(large, WHERE)] == [1]  # as verify and a restore to a time read it


def test_the_newest_lineage_is_restored_and_before_it_began_the_one_before(written: WrittenBackup) -> None:
    written.commit(100, ONE, 2, text_of(0, [1, 2]))
    written.commit(200, TWO, 1, text_of(0, [3]))
    backup = read_backup(str(written.folder), "f")
    assert (backup.commit, backup.cluster_id, backup.at_ms) == (2, "c1", 200)
    chosen = {until: backup.topics(until)["orders"].topic_id for until in (None, 200, 199, 5)}
    assert chosen == {None: TWO, 200: TWO, 199: ONE, 5: ONE}
    assert [file.records for file in backup.topics(None)["orders"].files[0]] == [1]
    assert backup.topics(None)["orders"].partitions == 1
    assert flows_in(LocalFolder(written.folder)) == ["f"]


def test_a_clock_that_jumps_changes_neither_the_order_of_commits_nor_their_state(
    written: WrittenBackup,
) -> None:
    """The order is that of the numbers. A topic that was made again then is the newest."""
    written.commit(9_000_000, ONE, 1, text_of(0, [1]))  # the clock was ahead
    written.commit(200, ONE, 2, text_of(1, [2]))
    written.commit(100, TWO, 1, text_of(0, [3]))  # and went back
    backup = read_backup(str(written.folder), "f")
    assert (backup.commit, backup.at_ms) == (3, 100)
    assert [one.topic_id for one in backup.lineages["orders"]] == [ONE, TWO]
    assert [one.first for one in backup.lineages["orders"][0].files[0]] == [0, 1]
    assert backup.topics()["orders"].topic_id == TWO
    state = written.manifest.read()
    assert state.last is not None
    assert (state.last.number, state.positions["orders", 0].topic_id) == (3, TWO)


def test_a_commit_that_was_exchanged_or_removed_is_noticed_wherever_it_is(
    written: WrittenBackup, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = WrittenBackup(tmp_path / "other")
    for number in range(1, 4):
        written.commit(number, ONE, number, text_of(number - 1, [1]))
        other.commit(number, ONE, number, text_of(number - 1, [9]))
    paths = sorted((written.folder / "_repl/f/log").iterdir())
    whole = paths[1].read_bytes()
    paths[1].write_bytes((tmp_path / "other/_repl/f/log" / paths[1].name).read_bytes())
    with pytest.raises(ManifestProblem, match="does not follow"):
        read_backup(str(written.folder), "f")
    paths[1].unlink()
    with pytest.raises(ManifestProblem, match="is missing"):
        read_backup(str(written.folder), "f")
    paths[1].write_bytes(whole)
    assert read_backup(str(written.folder), "f").commit == 3


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (None, PartitionCut(9, 6, 0, 50)),
        (50, PartitionCut(9, 6, 0, 50)),
        (49, PartitionCut(5, 4, 0, 40)),  # 50 is at 5; the one behind it is left out, though it is older
        (30, PartitionCut(3, 3, 0, 30)),
        (25, PartitionCut(2, 2, 0, 20)),
        (5, PartitionCut(0, 0, 0, -1)),
    ],
)
def test_a_partition_ends_before_its_first_later_record(
    written: WrittenBackup, until: int | None, expected: PartitionCut
) -> None:
    written.commit(100, ONE, 3, text_of(0, [10, 20]), text_of(2, [30]))
    written.commit(200, ONE, 9, text_of(3, [40]), text_of(5, [50, 15]))  # 4, 7 and 8 were markers
    lineage = read_backup(str(written.folder), "f").topics()["orders"]
    found = cut(written.manifest, lineage, 0, until)
    assert (found.end, found.records, found.last_timestamp) == (
        expected.end,
        expected.records,
        expected.last_timestamp,
    )
    restored = BackedUpRecords(
        ((one, written.manifest.store.file(one.path)) for one in files_up_to(lineage.files[0], found.end)),
        WHERE,
    )
    offsets = []
    while (one := restored.pop()) is not None:
        offsets.append(one[0])
    assert offsets == [0, 1, 2, 3, 5, 6][: expected.records]


@pytest.mark.parametrize(("first", "kept"), [(1, [(0, 10), (1, 31), (2, 32)]), (0, [(0, 31), (1, 32)])])
def test_records_that_the_source_lost_are_not_restored_beside_those_that_took_their_place(
    written: WrittenBackup, first: int, kept: list[tuple[int, int]]
) -> None:
    """The flow went back with `on_data_loss: skip`. A file that begins where another one did has its name."""
    written.commit(100, ONE, 3, text_of(0, [10, 20]), text_of(2, [30]))
    written.commit(200, ONE, first + 2, text_of(first, [31, 32]))
    lineage = read_backup(str(written.folder), "f").topics()["orders"]
    found = cut(written.manifest, lineage, 0)
    assert (found.end, found.records, found.last_timestamp) == (first + 2, len(kept), 32)
    assert cut(written.manifest, lineage, 0, 31).end == first + 1
    files = files_up_to(lineage.files[0], found.end)
    restored = BackedUpRecords(((one, check_file(written.manifest, one)) for one in files), WHERE)
    seen = []
    while (one := restored.pop()) is not None:
        seen.append(one[:2])
    assert seen == kept


def test_a_file_that_changed_is_not_used(written: WrittenBackup) -> None:
    file = written.commit(100, ONE, 2, text_of(0, [1, 2]))
    assert file is not None
    path = written.folder / file.path
    whole = path.read_bytes()
    assert str(check_file(written.manifest, file)) == str(path)
    for text, why in (
        (whole[:-1], "bytes in place of"),
        (b"\x01" + whole[1:], "another checksum"),  # the base offset is in no checksum of the batch
    ):
        path.write_bytes(text)
        with pytest.raises(DamagedFile, match=why):
            check_file(written.manifest, file)
    path.unlink()
    with pytest.raises(DamagedFile, match="can't be read"):
        check_file(written.manifest, file)
    path.symlink_to("/etc/hostname")
    with pytest.raises(DamagedFile, match="is a symbolic link, and none is followed"):
        check_file(written.manifest, file)


def test_a_file_that_ends_inside_a_batch_is_damaged(tmp_path: Path) -> None:
    text = text_of(0, [1]) + text_of(1, [2])
    (tmp_path / "cut.log").write_bytes(text[:-3])
    with pytest.raises(DamagedFile, match="ends inside a batch"):
        list(windows(LocalFolder(tmp_path).file("cut.log"), WHERE))


def test_a_batch_that_is_larger_than_a_window_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.files.backup._WINDOW", 40)
    text = text_of(0, [1, 2, 3]) + text_of(3, [4])
    (tmp_path / "small.log").write_bytes(text)
    found = [
        one.next_offset for some in windows(LocalFolder(tmp_path).file("small.log"), WHERE) for one in some
    ]
    assert found == [3, 4]


def test_equal_batches_are_taken_whole_and_others_record_by_record(written: WrittenBackup) -> None:
    file = written.commit(100, ONE, 3, text_of(0, [1, 2]), text_of(2, [3]))
    assert file is not None
    equal, other = (walk(text, WHERE).sets[0] for text in (text_of(7, [1, 2]), text_of(9, [4])))
    assert isinstance(equal, Batch)
    assert isinstance(other, Batch)
    wanted = BackedUpRecords([(file, written.manifest.store.file(file.path))], WHERE)
    assert wanted.takes_whole(equal)
    assert not wanted.takes_whole(other)
    last = wanted.pop()
    assert last is not None
    assert last[:2] == (2, 3)
    assert wanted.pop() is None
    cut_off = BackedUpRecords([(replace(file, end=1), written.manifest.store.file(file.path))], WHERE)
    assert not cut_off.takes_whole(equal)  # the restore ends inside the batch
