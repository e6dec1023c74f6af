"""The manifest on a real file system: one commit for each number, and no file by half."""

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.manifest import (
    Commit,
    DataFile,
    FilePosition,
    UnreadableCommit,
    decode,
    encode,
)
from runtime.driver.flows.files_sink import commits_of
from runtime.files import manifest
from runtime.files.backup import read_backup
from runtime.files.checkpoint import write_checkpoint
from runtime.files.export import ExportPartition
from runtime.files.formats import PARTITION_FILES
from runtime.files.manifest import (
    COMMIT_FILES,
    EndpointUnavailable,
    ManifestFolder,
    ManifestProblem,
    ManifestState,
    owner_problem,
)
from tests.runtime.files.backups import ONE, OWNER, commit_of, file, own_of, root_of


def commit(number: int, *, position: int = 0) -> Commit:
    moved = FilePosition(topic="orders", topic_id="aa", partition=0, position=position)
    return commit_of(number, positions=[moved])


def staged(folder: ManifestFolder, text: bytes) -> DataFile:
    described = file(0, len(text))
    place = own_of(folder) / described.staged
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text)
    return described


@pytest.fixture
def folder(tmp_path: Path) -> ManifestFolder:
    return ManifestFolder(str(tmp_path), "f")


def test_the_state_is_that_of_the_last_commit(folder: ManifestFolder) -> None:
    state = folder.read()
    assert state.last is None
    for number in range(1, 131):
        folder.add(state, commit(number, position=number))
    again = folder.read()
    assert again.last is not None
    assert (again.last.number, again.digest) == (130, state.digest)
    assert again.positions == state.positions
    assert again.positions["orders", 0].position == 130


def test_what_the_driver_does_not_see_is_not_committed(folder: ManifestFolder) -> None:
    described = staged(folder, b"abc")
    with pytest.raises(EndpointUnavailable, match="has 3 bytes in place of 4"):
        folder.check_staged([replace(described, size=4)])
    with pytest.raises(EndpointUnavailable, match="is not there for the driver"):
        folder.check_staged([replace(described, staged="staging/1/other.part")])


def test_files_have_the_mode_that_the_umask_gives(folder: ManifestFolder) -> None:
    before = os.umask(0o027)
    try:
        folder.add(folder.read(), commit(1))
    finally:
        os.umask(before)
    path = own_of(folder) / "log" / "00000000000000000001.json"
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o777 == 0o750


def test_a_commit_that_was_edited_cut_off_or_lost_stops_the_flow(folder: ManifestFolder) -> None:
    state = folder.read()
    for number in range(1, 4):
        folder.add(state, commit(number, position=number))
    paths = sorted((own_of(folder) / "log").iterdir())
    whole = paths[1].read_bytes()

    paths[1].write_bytes(whole.replace(b'"position":2', b'"position":1'))
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        folder.read()
    paths[1].write_bytes(whole[:-70])
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        folder.read()
    paths[1].write_bytes(encode(replace(decode(whole), at_ms=99)))  # a whole commit in its place
    with pytest.raises(ManifestProblem, match="does not follow the commit before it"):
        folder.read()
    paths[1].unlink()
    with pytest.raises(ManifestProblem, match="the commit 2 is missing"):
        folder.read()


@pytest.mark.parametrize("text", [b"", b"{}\n", b"\xff\xfe\n\n", b'{"version":2}\nabc\n', b"[" * 100_000])
def test_bytes_that_are_no_commit(text: bytes) -> None:
    with pytest.raises(UnreadableCommit):
        decode(text)


def test_the_last_commit_is_noticed_when_it_was_edited_or_exchanged(folder: ManifestFolder) -> None:
    state = folder.read()
    folder.add(state, commit(1, position=7))
    (path,) = (own_of(folder) / "log").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"position":7', b'"position":6'))
    with pytest.raises(ManifestProblem, match="cut off or edited"):
        folder.check(state)
    path.write_bytes(encode(replace(decode(whole), at_ms=99)))
    with pytest.raises(ManifestProblem, match="was exchanged: restore the folder"):
        folder.check(state)
    path.write_bytes(whole)
    folder.check(state)


def test_an_endpoint_that_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(EndpointUnavailable, match="is not there: create it, or mount it"):
        ManifestFolder(str(tmp_path / "none"), "f").read()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file() -> None:
    with pytest.raises(EndpointUnavailable, match=r"^/sys/_repl: "):  # read-only, also for root
        ManifestFolder("/sys", "f").add(ManifestState(), commit(1))


def test_a_full_disk_commits_nothing(folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(28, "No space left on device")

    state = folder.read()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(EndpointUnavailable, match="No space left on device"):
            folder.add(state, commit(1))
    assert folder.read().last is None
    assert list((own_of(folder) / "log").iterdir()) == []


def test_another_job_or_cluster_is_named(folder: ManifestFolder) -> None:
    state = folder.read()
    assert owner_problem(state, OWNER, folder.store.address) == ""
    folder.add(state, commit(1))
    assert owner_problem(state, OWNER, folder.store.address) == ""
    assert "job lake of topology t writes" in owner_problem(
        state, replace(OWNER, job="x"), folder.store.address
    )
    assert "from the cluster c1" in owner_problem(
        state, replace(OWNER, cluster_id="c2"), folder.store.address
    )


def test_what_failed_rounds_and_older_generations_have_staged_is_removed(folder: ManifestFolder) -> None:
    staged(folder, b"abc")
    (root_of(folder) / folder.staging(2)).mkdir(parents=True)
    folder.clear_staging(2)
    assert list((own_of(folder) / "staging").iterdir()) == []
    folder.clear_staging(2)


def test_a_driver_that_was_replaced_leaves_the_files_of_its_successor(folder: ManifestFolder) -> None:
    """It was suspended while it had the flow; meanwhile its successor has committed a file (R3)."""
    described = replace(staged(folder, b"old"), staged="staging/2/y.part")
    theirs = root_of(folder) / folder.staging(2) / "y.part"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"new")
    folder.clear_staging(1)
    assert list((own_of(folder) / "staging").iterdir()) == [theirs.parent]
    folder.publish([described])
    assert (root_of(folder) / described.path).read_bytes() == b"new"


def test_the_largest_commit_is_read_again(folder: ManifestFolder) -> None:
    """A round of more files is several commits."""
    sizes = [PARTITION_FILES - 1, *[PARTITION_FILES] * (COMMIT_FILES // PARTITION_FILES)]
    done = [
        ExportPartition(
            FilePosition(topic="orders", topic_id=ONE, partition=number, position=size),
            size,
            [file(first, 1, "orders" + "/date=2026-01-31" * 15, number) for first in range(size)],
        )
        for number, size in enumerate(sizes)
    ]
    largest, following = commits_of([*done, done[0]])
    assert (largest, following) == (done, done[:1])
    files = [one for partition in done for one in partition.files]
    folder.add(folder.read(), commit_of(1, files, positions=[partition.position for partition in done]))
    (lineage,) = read_backup(str(root_of(folder)), "f").lineages["orders"]
    assert {number: len(files) for number, files in lineage.files.items()} == dict(enumerate(sizes))
    assert {number: at.position for number, at in lineage.positions.items()} == dict(enumerate(sizes))


def test_a_checkpoint_that_could_not_be_read_again_is_not_written(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = folder.read()
    for number in range(1, 3):
        folder.add(state, commit(number, position=number))
    monkeypatch.setattr(manifest, "MAX_TEXT_BYTES", 100)
    with pytest.raises(ManifestProblem, match="at most 100 are read: split the flow"):
        write_checkpoint(folder, state)
    assert not list((own_of(folder) / "checkpoints").glob("*"))
