from pathlib import Path

from runtime.launch.folder import LogFile, log_tail


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
