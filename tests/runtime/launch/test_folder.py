"""The folder of a job is its owner's, whole, and one job's only; its log is bounded; restarts wait."""

from pathlib import Path

import pytest

from runtime.contract.launching import LaunchError
from runtime.launch.folder import JobFolder, LogFile, Supervision, log_tail
from runtime.launch.supervision.supervisor import LONGEST_S, STEADY_S, Backoff
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
    assert "REPL_HOME" in caught.value.hint
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
    with pytest.raises(LaunchError, match="can't be read") as damaged:
        folder.supervision()
    assert "remove the file" in damaged.value.hint
    folder.state.unlink()
    folder.state.mkdir()
    with pytest.raises(LaunchError, match="can't be read") as refused:
        folder.supervision()
    assert "the user that started the job" in refused.value.hint


def test_a_log_is_bounded_and_its_end_is_read_over_a_rotation(tmp_path: Path):
    path = tmp_path / "job.log"
    log = LogFile(path, largest=100, kept=2, own=False)
    for number in range(60):
        log.write(f"line {number}\n".encode())
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["job.log", "job.log.1", "job.log.2"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert log_tail(path, 15) == [f"line {number}" for number in range(45, 60)]


def test_only_what_was_said_since(tmp_path: Path):
    path = tmp_path / "job.log"
    path.write_bytes(b"old\n")
    start = path.stat().st_size
    LogFile(path, own=False).write_line("new")
    assert [line.split(" ", 1)[1] for line in log_tail(path, 9, start)] == ["supervisor: new"]
    assert log_tail(tmp_path / "none", 9) == []


def test_the_first_crash_is_answered_at_once_and_the_next_ones_later_and_later():
    backoff, delays = Backoff(), []
    for _ in range(8):
        backoff = backoff.failed(lived_s=1.0)
        delays.append(round(backoff.delay_s, 1))
    assert delays == [0.2, 0.6, 1.8, 5.4, 16.2, 48.6, LONGEST_S, LONGEST_S]


def test_a_steady_life_forgives():
    assert Backoff(7).failed(STEADY_S).delay_s == Backoff(0).failed(0).delay_s
    assert Backoff().delay_s == 0
