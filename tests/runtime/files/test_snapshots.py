"""Snapshots on a real file system: whole, dated and few."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.manifest import Snapshot, SnapshotOffset, SnapshotTopic
from runtime.files.manifest import ManifestProblem, ManifestTaken
from runtime.files.snapshots import KEPT_DAYS, KEPT_NEWEST, SnapshotFolder, readable, superfluous
from tests.runtime.files.backups import root_of

_MINUTE, _DAY = 60_000, 86_400_000


def snapshot(at_ms: int, offset: int = 0) -> Snapshot:
    return Snapshot(
        flow="f",
        cluster_id="c1",
        generation=1,
        at_ms=at_ms,
        topics=[SnapshotTopic(name="orders", topic_id="aa", partitions=3, config={"retention.ms": "5"})],
        offsets=[SnapshotOffset(group="billing", topic="orders", partition=0, offset=offset)],
    )


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(str(tmp_path), "f")


def test_a_snapshot_is_read_as_it_was_written_and_its_name_is_its_time(folder: SnapshotFolder) -> None:
    at = datetime(2026, 1, 31, 23, 59, 59, 7_000, UTC)
    at_ms = int(at.timestamp() * 1000)
    assert folder.times() == []
    assert folder.add(snapshot(at_ms))
    assert folder.read(at_ms) == snapshot(at_ms)
    (path,) = (root_of(folder) / "_repl/f/snapshots").iterdir()
    assert path.name == "20260131T235959.007Z.json"


def test_a_snapshot_that_could_not_be_read_again_is_kept_without_offsets(folder: SnapshotFolder) -> None:
    """Else no later one could be compared with it, and no restore could read any."""
    offsets = [
        SnapshotOffset(group="g", topic="orders", partition=at, offset=0, metadata="m" * 16_000)
        for at in range(2_100)
    ]
    whole = snapshot(1_000)
    assert readable(whole) is whole
    kept = readable(replace(whole, offsets=offsets))
    assert (kept.topics, kept.offsets) == (whole.topics, [])
    assert kept.unread["groups"].startswith("2,100 offsets make it ")
    assert folder.add(kept)
    assert folder.read(1_000) == kept


def test_one_that_says_the_same_is_not_written_again(folder: SnapshotFolder) -> None:
    assert folder.add(snapshot(1_000))
    assert not folder.add(replace(snapshot(2_000), generation=2))
    assert folder.add(snapshot(3_000, offset=1))
    assert folder.add(snapshot(4_000))
    assert folder.times() == [1_000, 3_000, 4_000]


def test_after_a_clock_jump_the_newest_snapshot_is_the_last_one_taken(folder: SnapshotFolder) -> None:
    """The clock was years ahead for one snapshot. Its date is noted until somebody moves it away."""
    ahead = 100 * 365 * _DAY
    folder.add(snapshot(1_000, offset=1))
    folder.add(snapshot(ahead, offset=2))
    folder.add(snapshot(2_000, offset=3))
    assert folder.times() == [1_000, ahead, ahead + 1]
    found = folder.describing("orders", "aa")
    assert found is not None
    assert found[0].offsets[0].offset == 3
    misdated = folder.misdated(3_000)
    assert misdated is not None
    wrong = Path(misdated)
    assert wrong.name == "20691207T000000.001Z.json"
    assert folder.misdated(ahead) is None

    wrong.unlink()
    wrong.with_name("20691207T000000.000Z.json").unlink()
    folder.add(snapshot(3_000, offset=4))
    assert folder.times() == [1_000, 3_000]
    assert folder.misdated(2_000) is None  # clocks of two machines differ a little


def test_the_newest_stay_and_the_last_of_each_day() -> None:
    times = [day * _DAY + minute * _MINUTE for day in range(100) for minute in range(0, 1440, 10)]
    stays = sorted(set(times) - set(superfluous(times)))
    newest = times[-KEPT_NEWEST:]
    assert set(newest) <= set(stays)
    ends = [one for one in stays if one not in newest[:-1]]
    assert ends == [day * _DAY + 1430 * _MINUTE for day in range(100 - KEPT_DAYS, 100)]


def test_old_files_are_removed_when_a_new_one_is_written(folder: SnapshotFolder) -> None:
    for number in range(KEPT_NEWEST + 5):
        folder.add(snapshot(1_000 + number, offset=number))
    assert len(folder.times()) == KEPT_NEWEST
    assert folder.times()[-1] == 1_000 + KEPT_NEWEST + 4


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(b"billing", b"nobody!"),
        lambda text: text[: len(text) // 2],
        lambda text: b"",
    ],
)
def test_one_that_was_changed_is_not_read_and_the_next_one_is_written(
    folder: SnapshotFolder, edit: Callable[[bytes], bytes]
) -> None:
    folder.add(snapshot(1_000))
    (path,) = (root_of(folder) / "_repl/f/snapshots").iterdir()
    path.write_bytes(edit(path.read_bytes()))
    with pytest.raises(ManifestProblem, match="its digest is not that of its content"):
        folder.read(1_000)
    assert folder.add(snapshot(2_000))
    assert folder.read(2_000) == snapshot(2_000)


def test_a_renamed_one_does_not_stand_for_another_time(folder: SnapshotFolder) -> None:
    folder.add(snapshot(1_000))
    (path,) = (root_of(folder) / "_repl/f/snapshots").iterdir()
    path.rename(path.with_name("19700101T000009.000Z.json"))
    with pytest.raises(ManifestProblem, match="of another time"):
        folder.read(9_000)


def test_two_drivers_never_write_one_time(folder: SnapshotFolder) -> None:
    folder.add(snapshot(1_000))
    with pytest.raises(ManifestTaken):
        folder.add(snapshot(1_000, offset=1))
    assert folder.read(1_000) == snapshot(1_000)


def test_other_files_in_the_folder_are_no_snapshots(folder: SnapshotFolder) -> None:
    folder.add(snapshot(1_000))
    place = root_of(folder) / "_repl/f/snapshots"
    for name in (".19700101T000009.000Z.json.1.tmp", "notes.txt", "19700101T000009.1Z.json", "x.000Z.json"):
        (place / name).write_text("x")
    assert folder.times() == [1_000]
