"""`down` ends what its lab holds when it begins, whatever was there when it was called."""

import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.lab import processes
from runtime.lab.cluster import BrokerPorts, LabClusterSpec, LabKafkaCluster, process_mark
from runtime.lab.create import RECORD, store
from runtime.lab.files import LabError, claim, exclusive
from runtime.lab.lab import Lab
from runtime.lab.processes import LabProcess
from tests.records import wait_for

NODE = BrokerPorts(1, 1_000, 1_001)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """The mark of a process that runs, as that of a broker does."""
    mark = process_mark(tmp_path.name, NODE.id)
    processes.spawn(mark, [sys.executable, "-c", "import time; time.sleep(60)", mark], tmp_path / "log")
    yield mark
    processes.kill([mark])


def test_it_stops_a_cluster_that_was_created_while_it_waited(tmp_path: Path, mark: str) -> None:
    lab, names = Lab(tmp_path), list[str]()
    with exclusive(tmp_path / "lock", "repl lab up"):
        down = threading.Thread(target=lambda: names.extend(lab.down(purge=True)))
        down.start()
        claim(tmp_path / "dc1")
        store(LabKafkaCluster(LabClusterSpec("dc1"), tmp_path.name, (NODE,), tmp_path / "dc1"))
    down.join(30)
    assert names == ["dc1"]
    assert not processes.find([mark])
    assert not (tmp_path / "dc1").exists()


def test_two_commands_never_hold_the_lock_of_a_lab_that_is_purged(tmp_path: Path) -> None:
    """One that waited for the lock of a folder that is gone takes the lock of the new one."""
    home = tmp_path / "lab"
    waiting, held, release = threading.Event(), threading.Event(), threading.Event()

    def up() -> None:
        waiting.set()
        with exclusive(home / "lock", "repl lab up", wait_s=30):
            held.set()
            release.wait(30)

    second = threading.Thread(target=up)
    with exclusive(home / "lock", "repl lab down"):
        second.start()
        waiting.wait(30)
        time.sleep(0.2)  # it tries meanwhile
        shutil.rmtree(home)
    try:
        assert held.wait(30)
        with (
            pytest.raises(LabError, match=r"repl lab up .* is at work there"),
            exclusive(home / "lock", "third"),
        ):
            pass
    finally:
        release.set()
        second.join(30)
    Lab(home).down(purge=True)
    assert not home.exists()


def test_it_stops_a_cluster_of_another_version(tmp_path: Path, mark: str) -> None:
    claim(tmp_path / "dc1")
    record = tmp_path / "dc1" / RECORD
    record.write_text(f'{{"cluster_id": "{tmp_path.name}", "nodes": [{{"id": 1, "of": "later"}}]}}')
    lab = Lab(tmp_path)
    with pytest.raises(
        LabError, match=r"is not a cluster of this version of the lab.* repl lab down --purge"
    ):
        lab.status()
    assert lab.down(purge=True) == ("dc1",)
    assert not processes.find([mark])
    assert not record.exists()


def test_a_process_of_another_user_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", refuse)
    with pytest.raises(LabError, match="process 7 belongs to another user"):
        processes.send(LabProcess(7, False, 0), signal.SIGTERM)


def test_a_broker_reads_names_of_files_as_utf_8(tmp_path: Path) -> None:
    """Below a path with other letters than ASCII, whatever the locale of the caller."""
    text = "import os; print(os.environ['LC_ALL'], flush=True)"
    processes.spawn("locale", [sys.executable, "-c", text], tmp_path / "log", {"LC_ALL": "C"})
    wait_for(lambda: (tmp_path / "log").read_text() == "C.UTF-8\n")
