"""The archive of classes: made once, by one, and never in the way."""

from pathlib import Path

import pytest

from runtime.lab.files import LabError, exclusive
from runtime.lab.kit import Kit, ensure_archive


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    (tmp_path / "cache" / "kafka").mkdir(parents=True)
    return Kit(str(java), f"{tmp_path}/cache/kafka/*")


class Training:
    def __init__(self, problem: Exception | None = None) -> None:
        self.runs = 0
        self.problem = problem

    def __call__(self, _scratch: Path, archive: Path) -> None:
        self.runs += 1
        if self.problem:
            raise self.problem
        archive.write_bytes(b"classes")


def test_made_once_and_used_from_then_on(kit: Kit) -> None:
    assert f"-XX:SharedArchiveFile={kit.archive}" not in kit.command()
    training = Training()
    ensure_archive(kit, training)
    ensure_archive(kit, training)
    assert training.runs == 1
    assert f"-XX:SharedArchiveFile={kit.archive}" in kit.command()


@pytest.mark.parametrize("problem", [LabError("the broker died"), OSError("disk full")])
def test_what_cannot_be_made_is_not_tried_again(kit: Kit, problem: Exception) -> None:
    training = Training(problem)
    ensure_archive(kit, training)
    ensure_archive(kit, training)
    assert training.runs == 1
    assert not kit.archive.exists()


def test_an_interrupt_is_no_failure(kit: Kit) -> None:
    with pytest.raises(KeyboardInterrupt):
        ensure_archive(kit, lambda _scratch, _archive: (_ for _ in ()).throw(KeyboardInterrupt))
    again = Training()
    ensure_archive(kit, again)
    assert again.runs == 1


def test_nobody_waits_for_somebody_else_who_makes_it(kit: Kit) -> None:
    training = Training()
    with exclusive(kit.archive.with_suffix(".lock"), "preparing Kafka"):
        ensure_archive(kit, training)
    assert training.runs == 0
    ensure_archive(kit, training)
    assert training.runs == 1


def test_another_java_makes_its_own(kit: Kit, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "other-java"
    other.touch()
    assert Kit(str(other), kit.classpath).archive != kit.archive
