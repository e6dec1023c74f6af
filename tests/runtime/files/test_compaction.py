"""Small files become larger ones with the same records, once, wherever the driver dies."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.batch import records
from runtime.contract.records.manifest import Commit, DataFile, encode
from runtime.driver.application import RoundWork, TasksFailed
from runtime.driver.duties.compaction import merging
from runtime.files import tasks
from runtime.files.backup import BackedUpRecords, check_file, files_up_to, read_backup
from runtime.files.compaction import (
    COMPACTION,
    CompactionTicket,
    FileIndex,
    MergedFiles,
    compact,
    one_pass,
    read_index,
)
from runtime.files.manifest import ManifestFolder, ManifestProblem, ManifestTaken
from tests.checker.shapes import digest
from tests.runtime.batch.forge import sets
from tests.runtime.files.backups import TWO, WHERE, commit_of, file, own_of, root_of
from tests.runtime.files.lake import NOON, Lake, in_this_process, offsets_in
from tests.spark.exported import files_of, lines_of

K = 1 << 10
DAY_MS = 86_400_000


def firsts(merges: Sequence[Sequence[DataFile]]) -> list[list[int]]:
    return [[one.first for one in some] for some in merges]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 1], [[0, 1]]),
        ([4, 1], []),  # the larger file would be written again for little
        ([4, 1, 1], [[1, 2]]),
        ([4, 2, 2], [[0, 1, 2]]),
        ([15, 1], [[0, 1]]),  # it is small no longer
        ([1, 16, 1], []),  # never over a larger file
        ([1, 1, 16, 1, 1], [[0, 1], [3, 4]]),
        ([15] * 9, [[0, 1, 2, 3], [4, 5, 6, 7]]),  # at most 64 in a file
    ],
)
def test_what_is_merged(sizes: list[int], expected: list[list[int]]) -> None:
    index = FileIndex(16 * K)
    index.apply(commit_of(1, [file(at, size * K) for at, size in enumerate(sizes)]))
    assert firsts(index.merges(64 * K)) == expected


def test_files_of_another_folder_partition_or_lineage_are_never_merged() -> None:
    some = [file(0, K), file(1, K, "other"), file(2, K, partition=1), file(3, K, topic_id=TWO), file(4, K)]
    index = FileIndex(16 * K)
    index.apply(commit_of(1, some))
    assert firsts(index.merges(64 * K)) == [[0, 4]]


def test_offsets_that_go_back_end_a_run() -> None:
    index = FileIndex(16 * K)
    index.apply(commit_of(1, [file(0, K), file(5, K), file(3, K), file(4, K)]))
    assert firsts(index.merges(64 * K)) == [[0, 5], [3, 4]]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.integers(1, 30))
def test_a_byte_is_written_again_a_few_times_and_few_files_are_left(sizes: list[int], every: int) -> None:
    """Whatever the sizes of the rounds are and how often it merges."""
    index, written, number = FileIndex(64 * K), 0, 0
    for at, size in enumerate(sizes):
        number += 1
        index.apply(commit_of(number, [file(at, size * K)]))
        if at % every and at != len(sizes) - 1:
            continue
        while merges := index.merges(256 * K):
            written += sum(one.size for some in merges for one in some)
            number += 1
            index.apply(merged_by(number, merges))
            assert [one.first for one in index.small().files] == sorted(
                one.first for one in index.small().files
            )
    left = [one.size for one in index.small().files if one.size < 64 * K]
    assert written <= sum(sizes) * K * 8  # from 1 KiB to 64 KiB a file doubles six times
    assert len(left) <= 8 * (1 + sum(sizes) // 64)


def merged_by(number: int, merges: Sequence[Sequence[DataFile]]) -> Commit:
    files = [
        replace(
            some[0],
            path=f"orders/m{number}-{some[0].first}.log",
            end=some[-1].end,
            size=sum(one.size for one in some),
        )
        for some in merges
    ]
    return commit_of(number, files, replaced=[one.path for some in merges for one in some])


def test_folders_that_others_have_followed_are_left_as_they_are() -> None:
    index = FileIndex(16 * K)
    for day in range(60):
        index.apply(commit_of(day + 1, [file(day, K, f"orders/{day}")]))
    assert [one.first for one in index.small().files] == list(range(12, 60))


def test_a_pass_is_bounded_and_spread_over_the_tasks() -> None:
    merges = [[file(at, 100 << 20)] * 2 for at in range(6)]
    assert [len(some) for some in one_pass(merges, 2)] == [2, 2]
    assert [len(some) for some in one_pass(merges[:1], 4)] == [1]
    assert one_pass([], 2) == []
    many = [[file(at, 1)] * 800 for at in range(4)]
    assert [len(some) for some in one_pass(many, 1)] == [2]  # a third one would make it 2,400 files


@pytest.mark.parametrize("form", ["raw", "json", "parquet"])
def test_a_merged_file_holds_the_same_records(tmp_path: Path, form: str) -> None:
    lake = Lake(tmp_path, form)
    for at in range(5):
        lake.round(NOON + at, NOON + at + 1, NOON)
    lines, texts = lines_of(tmp_path), [one.read_bytes() for one in sorted(files_of(tmp_path))]
    lake.merge()
    (path,) = files_of(tmp_path)
    assert path.name == "f-00000-00000000000000000000-11111111.m6." + path.suffix[1:]
    assert lines_of(tmp_path) == lines
    if form != "parquet":
        assert path.read_bytes() == b"".join(texts)
    last = lake.state.last
    assert last is not None
    (merged,) = last.files
    assert (merged.first, merged.end, merged.records) == (0, 15, 15)
    assert (merged.first_timestamp, merged.last_timestamp) == (NOON, NOON + 5)
    assert str(check_file(lake.folder, merged)) == str(path)
    assert len(last.replaced) == 5
    assert b'"version":2' in encode(last)  # a reader that knows nothing of merges refuses it


Step = Callable[["Lake", Commit], None]
STEPS: list[Step] = [
    lambda lake, commit: lake.folder.add(lake.state, commit),
    lambda lake, commit: lake.folder.publish(commit.files[:1]),
    lambda lake, commit: lake.folder.publish(commit.files),
    lambda lake, commit: lake.folder.hide(commit.replaced[:1]),
    lambda lake, commit: lake.folder.hide(commit.replaced),
]


@pytest.mark.parametrize("done", range(len(STEPS) + 1))
def test_wherever_the_driver_dies_the_next_one_finishes_and_the_manifest_is_never_wrong(
    tmp_path: Path, done: int
) -> None:
    lake = Lake(tmp_path, "raw", "{topic}/p={partition}")
    for _ in range(3):
        lake.round(NOON, NOON + 1)
    lake.round(NOON)
    lines = lines_of(tmp_path)
    (whole,) = lake.staged()
    # The same merge as two, so that a step can be half done.
    first, rest = whole.replaced[:2], whole.replaced[2:]
    staged = [one for some in (first, rest) for one in _merged(lake, some)]
    commit = merging(lake.next(), "raw", staged)
    for step in STEPS[:done]:
        step(lake, commit)
    assert lake.seen_by_the_manifest() == list(range(7))
    assert sorted(line for path in documented_files(lake) for line in lines_in(path)) == lines

    again = ManifestFolder(lake.spec.folder, "f")
    state = again.read()
    assert state.last is not None
    assert state.last.number == (4 if done == 0 else 5)
    again.publish(state.last.files)
    again.hide(state.last.replaced)
    again.clear_staging(1)
    assert lines_of(tmp_path) == lines
    assert len(files_of(tmp_path)) == (4 if done == 0 else 2)
    assert lake.seen_by_the_manifest() == list(range(7))
    assert list((own_of(again) / "staging").rglob("*.part")) == []


def documented_files(lake: Lake) -> list[Path]:
    """The files that the program in docs/files.md finds."""
    text = Path("docs/files.md").read_text(encoding="utf-8")
    program = next(one for one in text.split("```") if "def files_of" in one).removeprefix("python\n")
    names: dict[str, Any] = {}
    exec(program.partition("spark.read")[0], names)
    return [Path(one) for one in names["files_of"](lake.spec.folder, "f")]


def lines_in(path: Path) -> list[tuple[int, int, int, bytes]]:

    return [
        (0, one.offset, one.timestamp, digest(one.timestamp, one.key, one.value, list(one.headers)))
        for member in sets(path.read_bytes())
        for one in records(member, WHERE)
    ]


def _merged(lake: Lake, files: list[DataFile]) -> list[MergedFiles]:
    ticket = CompactionTicket("f", 1, lake.spec, [files])
    (result,) = COMPACTION.results(list(compact([tasks.encode(ticket)])))
    return result.done


def test_a_driver_that_was_replaced_puts_nothing_in_the_place_of_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "json")
    for _ in range(2):
        lake.round(NOON)
    merged, base = lake.staged(), lake.next()
    lines = lines_of(tmp_path)
    other = ManifestFolder(lake.spec.folder, "f")
    other.add(other.read(), replace(lake.next(), generation=2))
    with pytest.raises(ManifestTaken):
        asyncio.run(lake.duty.commit(lake.state, base, merged))
    assert lines_of(tmp_path) == lines
    assert len(files_of(tmp_path)) == 2


def test_what_is_left_to_merge_is_read_from_the_last_merge_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "raw")
    for _ in range(3):
        lake.round(NOON)
    whole = read_index(lake.folder, 1 << 20)
    lake.merge()
    merged = read_index(lake.folder, 1 << 20)
    assert [one.first for one in whole.small().files] == [0, 1, 2]
    assert lake.state.last is not None
    assert merged.small() == lake.state.last.small
    lake.round(NOON)
    assert [one.first for one in read_index(lake.folder, 1 << 20).small().files] == [0, 3]
    # A smaller limit is no reason to read more; a larger one may find files that were not listed.
    (own_of(lake.folder) / "log" / f"{2:020d}.json").write_bytes(b"edited")
    assert [one.first for one in read_index(lake.folder, 1 << 10).small().files] == [0, 3]
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        read_index(lake.folder, 2 << 20)


def test_replaced_files_stay_readable_until_their_retention_is_over(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "raw")
    for _ in range(3):
        lake.round(NOON)
    before = read_backup(lake.spec.folder, "f").topics()["orders"].files[0]
    lake.merge()
    assert offsets_in(BackedUpRecords([(one, check_file(lake.folder, one)) for one in before], WHERE)) == [
        0,
        1,
        2,
    ]
    assert lake.folder.remove_replaced(3_600) == 0
    assert lake.folder.remove_replaced(0) == 3
    assert not any(path.is_file() for path in (own_of(lake.folder) / "replaced").rglob("*.log"))
    assert lake.folder.remove_replaced(0) == 0
    assert lake.seen_by_the_manifest() == [0, 1, 2]


def test_a_planned_restore_reads_the_same_records_from_merged_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "raw")
    for _ in range(3):
        lake.round(NOON, NOON)
    planned = read_backup(lake.spec.folder, "f")
    lake.merge()
    lake.round(NOON)  # after the plan, and merged with what was before it
    lake.round(*[NOON] * 12)
    lake.duty.forget()
    lake.merge()
    lake.folder.remove_replaced(0)
    assert len(files_of(tmp_path)) == 1
    again = read_backup(lake.spec.folder, "f", planned.commit, planned.digest)
    (lineage,) = again.lineages["orders"]
    assert lineage.positions[0].position == 6
    files = files_up_to(lineage.files[0], 6)
    assert offsets_in(BackedUpRecords([(one, check_file(lake.folder, one)) for one in files], WHERE)) == list(
        range(6)
    )


def test_a_damaged_file_is_named_and_left_and_others_are_merged(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "json", "{topic}/date={date}/")
    for _ in range(2):
        lake.round(NOON, NOON + DAY_MS)
    damaged = min(files_of(tmp_path))
    text = damaged.read_bytes()
    damaged.write_bytes(text.replace(b"v0", b"v9"))
    lake.merge()
    assert len(files_of(tmp_path)) == 3
    lake.merge()
    assert lake.duty.note.startswith(f"small files are not merged: {damaged} has another checksum than")
    damaged.write_bytes(text)
    lake.duty.forget()
    until_due(lake)
    lake.merge()
    lake.merge()
    assert (len(files_of(tmp_path)), lake.duty.note) == (2, "")


def until_due(lake: Lake) -> None:
    while not lake.duty.is_due:
        asyncio.run(asyncio.sleep(0.01))


def test_raw_files_whose_first_batch_is_cut_are_not_joined_to_others(tmp_path: Path) -> None:
    """The batch would count as a whole then: records that were given up, or that are in the file before."""
    lake = Lake(tmp_path, "raw")
    lake.round(NOON, NOON, begin=1)  # a flow that starts inside a batch
    lake.round(NOON)
    lake.round(NOON, NOON, begin=4)
    lake.round(NOON)
    assert lake.seen_by_the_manifest() == [1, 2, 4, 5]
    lake.merge()
    assert len(files_of(tmp_path)) == 3
    assert lake.seen_by_the_manifest() == [1, 2, 4, 5]


def test_a_pass_that_fails_is_noted_and_leaves_nothing_staged(tmp_path: Path) -> None:
    async def failing(work: RoundWork, tickets: Sequence[bytes]) -> list[bytes]:
        await in_this_process(work, tickets)
        raise TasksFailed("the executor was lost")

    lake = Lake(tmp_path, "parquet", every_ms=3_600_000)
    for _ in range(2):
        lake.round(NOON)
    assert asyncio.run(lake.duty.stage(1, 2, failing)) == []
    assert lake.duty.note == "small files are not merged: the executor was lost"
    assert list((own_of(lake.folder) / "staging").rglob("*.part")) == []
    assert not lake.duty.is_due


def test_a_folder_that_takes_no_file_fails_the_pass_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "raw")
    for _ in range(2):
        lake.round(NOON)
    lake.folder.clear_staging(1)
    staging = root_of(lake.folder) / lake.folder.staging(1)
    staging.parent.rmdir()
    staging.parent.write_text("no folder")  # refuses root too, as a full disk does
    assert lake.staged() == []
    assert lake.duty.note.startswith("small files are not merged: on ")
    assert lake.duty.note.endswith(f": {staging.parent}: Not a directory")
    assert lake.seen_by_the_manifest() == [0, 1]


def test_an_old_commit_that_was_edited_stops_merges_and_not_the_flow(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "json")
    for _ in range(2):
        lake.round(NOON)
    (own_of(lake.folder) / "log" / f"{1:020d}.json").write_bytes(b"edited")
    assert lake.staged() == []
    assert "it was cut off or edited; restore the folder" in lake.duty.note


def test_parquet_is_merged_only_with_neighbours_of_the_same_columns(tmp_path: Path) -> None:
    """A changed transform gives the values other columns: nothing is wrong, so nothing is noted."""
    lake = Lake(tmp_path, "parquet")
    lake.round(NOON)
    for kind in (pa.int64(), pa.int64(), pa.string()):
        lake.round(NOON, values=pa.struct([("id", kind)]))
    lines = tables_of(tmp_path)
    lake.merge()
    assert [file.records for file in lake.last.files] == [2]
    assert (len(files_of(tmp_path)), len(lake.last.replaced)) == (3, 2)
    assert tables_of(tmp_path) == lines
    number = lake.last.number
    seen = [lake.duty.has_more]  # the other ones are looked at, once
    for _ in range(2):
        lake.merge()
        seen.append(lake.duty.has_more)
    assert seen[:2] == [True, False]
    assert (lake.last.number, lake.duty.note) == (number, "")


def tables_of(folder: Path) -> list[tuple[int, Any]]:
    tables = [pq.ParquetFile(path).read() for path in files_of(folder)]
    return sorted((row["offset"], str(row["value"])) for one in tables for row in one.to_pylist())


def test_parquet_with_other_rows_than_the_manifest_says_is_left(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "parquet")
    for _ in range(2):
        lake.round(NOON)
    (whole,) = lake.staged()
    (short,) = _merged(lake, [whole.replaced[0], replace(whole.replaced[0], records=2)])
    assert "hold 2 rows in place of 3" in short.why
