"""The archive of a JVM's classes: it is made once, by one process, and old ones leave the cache."""

import os
import time
from pathlib import Path

import pytest

from runtime.class_archive import ClassArchive

DAY_S = 24 * 3600


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    return archive_of(tmp_path)


def archive_of(folder: Path, java: str = "java", *jars: str) -> ClassArchive:
    files = [folder / name for name in (java, *jars)]
    for file in files:
        file.touch()
    return ClassArchive(folder / "cache", "spark", files[0], files[1:])


def make(archive: ClassArchive) -> bool:
    """Returns whether this call made it."""
    with archive.making() as made:
        if made is not None:
            made.write_bytes(b"classes")
    return made is not None


def test_it_is_made_once_and_used_from_then_on(archive: ClassArchive) -> None:
    assert not archive.options
    assert make(archive)
    assert archive.options == (f"-XX:SharedArchiveFile={archive.path}",)
    assert not make(archive)


def test_a_file_of_another_user_is_not_used(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    make(archive)
    monkeypatch.setattr(os, "geteuid", lambda: archive.path.stat().st_uid + 1)
    assert not archive.options


def test_another_java_and_other_jars_have_their_own(tmp_path: Path) -> None:
    archives = [
        archive_of(tmp_path),
        archive_of(tmp_path, "java21"),
        archive_of(tmp_path, "java", "spark.jar"),
    ]
    assert len({archive.path for archive in archives}) == 3


def test_one_process_makes_it(archive: ClassArchive) -> None:
    with archive.making() as made:
        assert made is not None
        assert not make(archive)
        made.touch()
    assert archive.options


def test_a_failure_leaves_nothing_and_the_next_call_tries_again(archive: ClassArchive) -> None:
    with pytest.raises(FileNotFoundError), archive.making():
        pass  # the JVM wrote nothing
    with pytest.raises(KeyboardInterrupt), archive.making():
        raise KeyboardInterrupt
    assert [file.name for file in archive.path.parent.iterdir()] == ["spark.lock"]
    assert make(archive)


def test_what_no_jvm_used_for_a_month_is_removed_and_what_was_left_behind(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / ".spark.killed").mkdir(parents=True)
    for name, days in {"spark-new.jsa": 29, "spark-old.jsa": 31, "kafka-old.jsa": 31}.items():
        (cache / name).touch()
        os.utime(cache / name, (time.time() - days * DAY_S,) * 2)
    archive = archive_of(tmp_path)
    make(archive)
    kept = {file.name for file in cache.iterdir()}
    assert kept == {"spark-new.jsa", "kafka-old.jsa", archive.path.name, "spark.lock"}


def test_an_archive_in_use_stays_young(archive: ClassArchive) -> None:
    make(archive)
    os.utime(archive.path, (time.time() - 31 * DAY_S,) * 2)
    assert archive.options
    assert time.time() - archive.path.stat().st_mtime < DAY_S
