"""What is kept of a job is its owner's, whole, and one job's only."""

import os
from pathlib import Path

import pytest

from runtime.launch.folder import JobFolder, Supervision, hold
from runtime.launch.launcher import LaunchError
from tests.runtime.launch.specs import spec_of


def test_spec_and_state_are_for_the_owner_only(tmp_path: Path):
    folder = JobFolder(tmp_path / "jobs", "dc2")
    folder.make()
    folder.write_spec(spec_of())
    state = Supervision(host="h", phase="running")
    folder.note(state)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.path.iterdir()} == {0o600}
    assert folder.read_spec() == spec_of()
    assert folder.supervision() == state


@pytest.mark.parametrize("job", ["../up", ".", "..", "a/b", "a b"])
def test_a_job_of_any_name_stays_below_its_home(tmp_path: Path, job: str):
    assert JobFolder(tmp_path, job).path.resolve().parent == tmp_path


def test_what_can_not_be_written_is_said(tmp_path: Path):
    (tmp_path / "home").write_text("a file where the folder should be")
    with pytest.raises(LaunchError, match="can't be made") as caught:
        JobFolder(tmp_path / "home", "dc2").make()
    assert "REPL_HOME" in caught.value.way_out
    full = JobFolder(tmp_path, "dc2")
    full.make()
    full.spec.mkdir()
    (full.spec / "x").touch()
    with pytest.raises(LaunchError, match="can't be written"):
        full.write_spec(spec_of())


def test_a_state_nobody_can_read_is_an_error_and_none_is_none(tmp_path: Path):
    folder = JobFolder(tmp_path, "dc2")
    assert folder.supervision() is None
    folder.make()
    folder.state.write_text("{")
    with pytest.raises(LaunchError, match="can't be read"):
        folder.supervision()


def test_a_lock_has_one_holder_and_goes_with_it(tmp_path: Path):
    first = hold(tmp_path / "lock")
    assert first is not None
    assert hold(tmp_path / "lock", 0.1) is None
    os.close(first)
    again = hold(tmp_path / "lock")
    assert again is not None
    os.close(again)
