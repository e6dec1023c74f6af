"""The base has no extra: its modules import no package of one, and what needs one says so.

`tests/dist` proves the same with the wheel in environments that hold nothing else.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WITHOUT_EXTRAS = """
import sys
from runtime.contract.extras import _MODULES
for modules in _MODULES.values():
    sys.modules.update(dict.fromkeys(modules, None))
"""
IMPORT_ALL = """
import importlib, pkgutil
import planner, runtime.audit, runtime.kafka, runtime.lab, runtime.launch, runtime.ledger
AWAY = ("planner.ui", "planner.drill", "planner.__main__", "runtime.lab.brokers.certificates")
SPARK = ("runtime.audit.on_spark", "runtime.audit.verify.main", "runtime.audit.offsets.spark_map")
rooms = (planner, runtime.audit, runtime.kafka, runtime.lab, runtime.launch, runtime.ledger)
names = [one.name for room in rooms for one in pkgutil.walk_packages(room.__path__, room.__name__ + ".")]
for name in names:
    if not name.startswith((*AWAY, *SPARK)):
        importlib.import_module(name)
print(len(names))
"""


def python_without_extras(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", WITHOUT_EXTRAS + code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


@pytest.mark.slow
def test_the_base_imports_no_package_of_an_extra() -> None:
    done = python_without_extras(IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


RUN = "from planner.cli.app import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("ui", "plans/examples/active-active.yaml", "--port", "0"), "ui"),
        (("drill", "plans/examples/active-active.yaml"), "drill"),
        (("drill", "--steps", "plans/examples/active-active.yaml"), "drill"),
    ],
)
def test_a_command_that_needs_an_extra_says_so(words: tuple[str, ...], extra: str) -> None:
    done = python_without_extras(RUN, *words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"needs the extra {extra}, which is not installed" in line
    assert line.endswith(f"-m pip install 'kafka-repl[{extra}]'")


def test_an_import_of_another_module_is_a_mistake_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_HOME", str(tmp_path))
    done = python_without_extras("sys.modules['planner.workflows.topology'] = None;" + RUN, "init")
    assert "this is a mistake in repl" in done.stderr


def test_the_extras_of_the_code_are_those_of_the_distribution() -> None:
    from runtime.contract.extras import DISTRIBUTION, Extra

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    # Kerberos is in the base: its extra can be named, and brings nothing.
    assert {*project["optional-dependencies"]} == {*Extra, "kerberos", "dev"}
    assert project["optional-dependencies"]["kerberos"] == []
