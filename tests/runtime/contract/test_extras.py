"""What needs an extra says so in one sentence with the command to type."""

from pathlib import Path

import pytest

from runtime.contract.extras import Extra, extra_of, install_command, is_missing, missing_extra
from tests.extras import without


@pytest.mark.parametrize(
    ("mark", "command"),
    [
        ("uv-receipt.toml", "uv tool install 'kafka-repl[drill,files,keystores,msk,policies,spark,ui]'"),
        (
            "pipx_metadata.json",
            "pipx install --force 'kafka-repl[drill,files,keystores,msk,policies,spark,ui]'",
        ),
    ],
)
def test_a_tool_is_installed_again_with_all_its_extras(tmp_path: Path, mark: str, command: str) -> None:
    (tmp_path / mark).touch()
    assert install_command(Extra.SPARK, tmp_path) == command


def test_another_environment_gets_the_extra_from_its_own_pip(tmp_path: Path) -> None:
    assert install_command(Extra.UI, tmp_path).endswith("/python -m pip install 'kafka-repl[ui]'")


def test_the_sentence_names_what_needs_the_extra() -> None:
    what, hint = missing_extra(Extra.FILES, "the endpoint lake")
    assert what == "the endpoint lake needs the extra files, which is not installed"
    assert "kafka-repl[files]" in hint


def test_an_extra_is_missing_when_one_of_its_modules_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(is_missing(extra) for extra in Extra)
    without(monkeypatch, "obstore")
    assert [extra for extra in Extra if is_missing(extra)] == [Extra.FILES]


def test_spark_may_come_from_its_home_but_its_packages_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyspark", "py4j")
    assert is_missing(Extra.SPARK, {})
    assert not is_missing(Extra.SPARK, {"SPARK_HOME": "/opt/spark"})
    without(monkeypatch, "pyarrow")
    assert is_missing(Extra.SPARK, {"SPARK_HOME": "/opt/spark"})


def test_a_module_belongs_to_the_first_extra_that_brings_it() -> None:
    assert extra_of("pyspark.sql") is Extra.SPARK
    assert extra_of("obstore.store") is Extra.FILES
    assert extra_of("runtime.kafka") is None
