"""Where Python looks for Spark's modules."""

import sys
from pathlib import Path

import pytest

from runtime.driver.python_path import use_installed_spark


def test_only_the_archives_of_the_installed_package_leave_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, other = tmp_path / "site", tmp_path / "spark-4.3.0"
    installed, home = site / "pyspark", other / "python" / "lib"
    for folder in (installed / "jars", installed / "python" / "lib", home):
        folder.mkdir(parents=True)
    (installed / "__init__.py").touch()
    archives = [installed / "python" / "lib" / "pyspark.zip", installed / "jars" / "spark-core.jar"]
    kept = [str(home / "pyspark.zip"), str(tmp_path / "runtime.zip"), str(site)]
    monkeypatch.setattr(sys, "path", [*map(str, archives), *kept])
    use_installed_spark()
    assert sys.path == kept


def test_all_archives_stay_where_no_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [str(tmp_path / "pyspark.zip"), str(tmp_path / "spark-core.jar"), str(tmp_path)]
    monkeypatch.setattr(sys, "path", list(before))
    use_installed_spark()
    assert sys.path == before
