"""The programs of docs/python.md, run in order on a real lab with real Spark, print what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import planner.workflows
from tests.commands import HERE, repl
from tests.conftest import MakeLab
from tests.docs.tutorial_page import matches
from tests.labs import spec
from tests.ports import free_port

PAGE = HERE / "docs" / "python.md"
DEMO = Path("plans/examples/replicator-demo.yaml")
_PROGRAM = re.compile(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(own_lab: MakeLab, tmp_path: Path) -> Iterator[Path]:
    """The demo on clusters of its own, at free ports."""
    lab = own_lab(spec("dc1"), spec("dc2"))
    text = (HERE / DEMO).read_text(encoding="utf-8")
    for port, cluster in (("19092", "dc1"), ("29092", "dc2")):
        text = text.replace(f"127.0.0.1:{port}", lab.clusters[cluster].bootstrap)
    for port in ("9404", "9405"):
        text = text.replace(port, str(free_port()))
    demo = tmp_path / DEMO
    demo.parent.mkdir(parents=True)
    demo.write_text(text, encoding="utf-8")
    yield tmp_path
    done = repl("destroy", str(demo), "--auto-approve")
    assert done.returncode == 0, done.stderr


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.spark
def test_every_program_prints_what_the_page_shows(folder: Path) -> None:
    programs = _PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    assert len(programs) == 4
    for program, shown in programs:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{program}\n{done.stderr}"
        assert matches(shown, done.stdout), f"the page shows\n{shown}\nand it prints\n{done.stdout}"


def test_the_table_names_every_workflow() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## All workflows")[2]
    named = set(re.findall(r"`(\w+)`", table))
    functions = {name for name in planner.workflows.__all__ if name.islower()}
    requests = {name for name in planner.workflows.__all__ if name.endswith("Request")}
    approvals = {"approve_all", "approve_nothing", "silent"}

    assert functions - approvals <= named
    assert requests <= named


def test_every_public_name_is_loaded_from_its_module() -> None:
    for name in planner.workflows.__all__:
        assert getattr(planner.workflows, name).__name__ == name
