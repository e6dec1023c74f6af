"""Archives of Spark's classes do not pile up in the cache."""

import os
import time
from pathlib import Path

import pytest

from runtime.lab.kit import cache_folder
from tests.spark import class_archive

DAY_S = 24 * 3600


def test_what_no_test_used_for_a_week_is_removed(tmp_path: Path) -> None:
    ages = {
        "spark-new.jsa": 6,
        "spark-old.jsa": 8,
        ".spark-cut.jsa": 8,
        ".spark-cut.py": 8,
        "kafka-old.jsa": 8,
    }
    for name, days in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - days * DAY_S,) * 2)
    class_archive.remove_unused(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"spark-new.jsa", "kafka-old.jsa"}


def test_an_archive_in_use_stays_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.setenv(name, "set by this test")  # what use() sets goes with it
        monkeypatch.delenv(name)
    archive = cache_folder() / "spark-0.jsa"
    archive.parent.mkdir()
    archive.touch()
    os.utime(archive, (time.time() - 8 * DAY_S,) * 2)
    monkeypatch.setattr(class_archive, "_archive", lambda: archive)
    class_archive.use()
    class_archive.remove_unused(archive.parent)
    assert archive.exists()
    assert str(archive) in os.environ["SPARK_SUBMIT_OPTS"]
