"""The runs of large segments lie in temporary files, and nothing is left of the files afterwards."""

from __future__ import annotations

import functools
import gc
import os
import resource
import tempfile
from pathlib import Path

import pytest

from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.offset_map import Run, Span, StoredRuns, encode_runs
from runtime.ledger.runs_files import RunsFiles


@functools.cache
def runs(count: int) -> bytes:
    return encode_runs([Run(2 * one, 3 * one, 1) for one in range(count)], 0, 0)


def open_files(folder: Path) -> list[int]:
    """Returns the descriptors of this process for files that were made in the folder."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = descriptor.readlink()
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if target.is_relative_to(folder):
            found.append(int(descriptor.name))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_large_runs_are_read_back_from_a_file_without_a_name(folder: Path) -> None:
    files = RunsFiles()
    stored = [files.store(runs(count)) for count in (1_000, 8_192)]
    for count, one in zip((1_000, 8_192), stored, strict=True):
        assert not isinstance(one, bytes)
        assert one.count == count
        assert one.read() == runs(count)
        assert (
            Span(0, 2 * count, 0, 3 * count, one).runs == Span(0, 2 * count, 0, 3 * count, runs(count)).runs
        )
    assert len(open_files(folder)) == 1
    assert list(folder.iterdir()) == []


def test_small_runs_stay_in_memory(folder: Path) -> None:
    assert RunsFiles().store(runs(128)) == runs(128)
    assert open_files(folder) == []


def test_a_file_is_closed_when_its_last_runs_are_trimmed(folder: Path) -> None:
    files = RunsFiles(file_bytes=1_000)
    stored: list[bytes | StoredRuns] = [files.store(runs(1_000 + one)) for one in range(150)]
    many = len(open_files(folder))
    assert many > 5
    del stored[: len(stored) // 2]
    gc.collect()
    assert 0 < len(open_files(folder)) <= many // 2 + 1
    for one, left in enumerate(stored, 75):
        assert not isinstance(left, bytes)
        assert left.read() == runs(1_000 + one)
    stored.clear()
    del files, left
    gc.collect()
    assert open_files(folder) == []


def test_runs_stay_in_memory_where_no_file_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    assert RunsFiles().store(runs(1_000)) == runs(1_000)


def test_a_full_disk_keeps_what_is_stored_and_the_rest_in_memory(folder: Path) -> None:
    files = RunsFiles()
    before = files.store(runs(4_000))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        kept = files.store(runs(5_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert kept == runs(5_000)
    after = files.store(runs(6_000))
    for one, count in ((before, 4_000), (after, 6_000)):
        assert not isinstance(one, bytes)
        assert one.read() == runs(count)


def test_a_file_that_was_cut_off_is_a_record_that_cannot_be_read(folder: Path) -> None:
    stored = RunsFiles().store(runs(1_000))
    assert not isinstance(stored, bytes)
    (descriptor,) = open_files(folder)
    os.ftruncate(descriptor, 10)
    with pytest.raises(UnreadableRecord, match="its temporary file can't be read"):
        stored.read()
