"""The wheel where nothing else is installed: its base by pip, and Spark by `uv tool`.

The second one is the last release (before the first: these sources). Its job copies while the base of this
release plans, applies and fails over: the upgrade rule of docs/stability.md.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml

from runtime.contract.extras import _MODULES
from tests.dist.conftest import ROOT, build, sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_DEMO = ROOT / "plans" / "examples" / "replicator-demo.yaml"
_MEGABYTE = 1e6


class Installed:
    """The command of an environment, called from a folder outside of the checkout."""

    def __init__(self, command: Path, folder: Path) -> None:
        self._command = command
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REPL_"))}
        self.environment: Mapping[str, str] = {**kept, "REPL_HOME": str(folder / "state")}

    def __call__(self, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [self._command, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, f"repl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def cpu_s(self, *words: str) -> float:
        """Returns the least CPU time of five calls."""

        def spent() -> float:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime

        times = []
        for _ in range(5):
            before = spent()
            self(*words)
            times.append(spent() - before)
        return min(times)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def base(built: tuple[Path, Path], folder: Path) -> Installed:
    """This release without extras, installed by pip."""
    environment = folder / "base"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", built[0]], check=True)
    return Installed(environment / "bin" / "repl", folder)


@pytest.fixture(scope="module")
def old(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The last release with Spark, installed by `uv tool`."""
    wheel, _ = build(_last_release(tmp_path_factory.mktemp("old")), tmp_path_factory.mktemp("old-dist"))
    tools = folder / "tools"
    install = [sys.executable, "-m", "uv", "tool", "install", "--quiet", "--python", sys.executable]
    subprocess.run(
        [*install, f"kafka-repl[spark] @ file://{wheel}"],
        env={**os.environ, "UV_TOOL_DIR": str(tools), "UV_TOOL_BIN_DIR": str(folder / "bin")},
        check=True,
    )
    return Installed(folder / "bin" / "repl", folder)


def _last_release(into: Path) -> Path:
    """Returns the sources of the last tag; without one, these sources with an older number."""
    describe = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"]
    tag = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if tag:
        archive = subprocess.run(["git", "archive", tag], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", into], input=archive, check=True)
        return into
    project = sources(into) / "pyproject.toml"
    text = project.read_text()
    assert text.count('version = "0.1.0"') == 1
    project.write_text(text.replace('version = "0.1.0"', 'version = "0.0.1"'))
    return into


@pytest.fixture(scope="module")
def demo(old: Installed, folder: Path) -> Iterator[str]:
    """The demo's topology, on two clusters of the installed lab."""
    lab = json.loads(old("lab", "up", "--ports", "auto", "--json").stdout)
    try:
        topology = yaml.safe_load(_DEMO.read_text())
        topology["clusters"] = {one["name"]: {"bootstrap": one["bootstrap"]} for one in lab["clusters"]}
        for job in topology["jobs"].values():
            del job["metrics"]
        (folder / "demo.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
        yield "demo.yaml"
    finally:
        old("lab", "up", "--ports", "auto")
        old("destroy", "demo.yaml", "--auto-approve")
        old("lab", "down", "--purge")


def brought(packages: Path) -> int:
    """Returns the bytes that an installation has brought, compiled files too.

    An environment has pip and setuptools from its beginning; pkg_resources is setuptools' as well.
    """
    files = (
        Path(str(file.locate()))
        for distribution in distributions(path=[str(packages)])
        if distribution.name not in ("pip", "setuptools")
        for file in distribution.files or ()
    )
    return sum(file.stat().st_size for file in files if file.exists())


def test_the_base_is_small_and_quick(base: Installed) -> None:
    packages = next((base.folder / "base" / "lib").glob("python3*/site-packages"))
    held = {path.name for path in packages.iterdir()}
    assert not held & {module for modules in _MODULES.values() for module in modules}
    assert brought(packages) <= 62 * _MEGABYTE
    assert base.cpu_s("--help") <= 0.2
    assert base("--version").stdout.startswith("repl, version ")


def test_a_base_plans_and_names_the_extra_that_an_apply_needs(base: Installed, demo: str) -> None:
    said = base("plan", demo, "--detailed-exitcode", code=2)
    assert "needs the extra spark, which is not installed" in said.stdout
    assert base.cpu_s("plan", demo) <= 2.0
    refused = base("apply", demo, "--auto-approve", code=1)
    assert "needs the extra spark" in refused.stdout + refused.stderr
    assert "topic1" not in base("read", "dc1", demo).stdout


def test_a_new_planner_runs_beside_an_old_job_and_back(base: Installed, old: Installed, demo: str) -> None:
    old("plan", demo, "--out", "demo.plan")
    old("apply", "demo.plan")
    old("lab", "load", "dc1:topic1", "dc1:topic2", "--seconds", "2")

    base("plan", demo, "--detailed-exitcode")  # no change: the job goes on as it is
    base("pause", "dc1-to-dc2-topic2", demo, "--auto-approve")
    base("resume", "dc1-to-dc2-topic2", demo, "--auto-approve")
    topology = base.folder / demo
    topology.write_text(
        topology.read_text().replace(
            "cleanup.policy: compact", "cleanup.policy: compact\n    retention.ms: 7d"
        )
    )
    base("apply", demo, "--auto-approve")
    old("lab", "load", "dc1:topic2", "--seconds", "1")
    flows = json.loads(base("status", demo, "--json").stdout)["flows"]
    assert len(flows) == 4
    assert {flow["state"] for flow in flows} <= {"caught_up", "copying"}
    base("verify", "dc1-to-dc2-topic2", demo)  # few records are compared without Spark

    old("plan", demo, "--detailed-exitcode")
    topology.write_text(topology.read_text().replace("retention.ms: 7d", "retention.ms: 6d"))
    old("apply", demo, "--auto-approve")

    old("lab", "kill", "dc1")
    assert "dc1-to-dc2-topic2" in base("failover", "dc1", demo, "--auto-approve").stdout


def test_the_code_that_is_shipped_to_spark_comes_from_the_wheel(old: Installed, folder: Path) -> None:
    python = folder / "tools" / "kafka-repl" / "bin" / "python"
    subprocess.run([python, "-I", "-m", "runtime.driver.package", folder / "runtime.zip"], check=True)
    code = (
        "import sys; sys.path.insert(0, 'runtime.zip'); from runtime.driver import task; print(task.__file__)"
    )
    done = subprocess.run([python, "-I", "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("runtime.zip/", f"{folder}/runtime.zip/"))
