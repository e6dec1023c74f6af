"""plans/examples on real clusters: each is planned and applied, and then there is nothing left to do.

Their jobs are fakes that copy nothing, but for one example, whose records are compared at both sides.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.cli.app import run
from planner.cli.apply import look_again
from planner.cli.apply_view import View
from planner.cli.applying import Applying, carry_out
from planner.cli.endpoints import endpoints_of
from planner.cli.observing import observe
from planner.cli.pipeline import apply_plan, destroy_plan, see
from planner.cli.validate import checked
from planner.model.diagnostic import ExitCode
from planner.model.plan import Plan
from runtime.lab.lab import Lab
from tests.bdd.running import eventually
from tests.fakes.jobs import FakeJobs
from tests.labs import spec
from tests.records import read, write

pytestmark = pytest.mark.integration

EXAMPLES = sorted(Path("plans/examples").glob("*.yaml"))
PORTS = {"127.0.0.1:19092": "dc1", "127.0.0.1:29092": "dc2", "127.0.0.1:39092": "dc3"}
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three clusters for one example after the other; each is destroyed before the next."""
    made = Lab(tmp_path_factory.mktemp("examples"))
    made.up([spec(name) for name in ("dc1", "dc2", "dc3")])
    yield made
    made.down(purge=True)


def of_the_lab(example: Path, lab: Lab, folder: Path) -> str:
    """On its clusters, and without metrics: two tests on one machine would want the same ports."""
    text = example.read_text()
    for address, name in PORTS.items():
        text = text.replace(address, lab.clusters[name].bootstrap)
    file = folder / example.name
    file.write_text(re.sub(r"metrics: \{port: \d+\}", "metrics: off", text))
    return str(file)


def carried_out(plan: Plan, jobs: FakeJobs, folder: Path) -> int:
    endpoints = endpoints_of(plan.connections.values())
    look = look_again(endpoints, PATIENCE_MS)
    return carry_out(
        plan, Applying(endpoints, look, 60_000, View(as_json=False), "repl apply", folder, launchers=jobs)
    )


def test_each_is_planned_and_comes_to_rest(
    three: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXAMPLES
    jobs = FakeJobs()
    for example in EXAMPLES:
        file = of_the_lab(example, three, tmp_path)
        topology = checked(Path(file), ()).topology

        assert run(["plan", "--detailed-exitcode", file]) == ExitCode.DIFFERENT, capsys.readouterr()
        assert carried_out(apply_plan(see(topology, PATIENCE_MS)), jobs, tmp_path) == ExitCode.DONE
        assert bool(jobs.running) is bool(topology.flows)
        capsys.readouterr()
        assert run(["plan", "--detailed-exitcode", file]) == ExitCode.DONE, capsys.readouterr()
        assert "No changes." in capsys.readouterr().out
        assert run(["drift", file]) == ExitCode.DONE, capsys.readouterr()
        destroyed = destroy_plan(topology, observe(topology, PATIENCE_MS))
        assert carried_out(destroyed, jobs, tmp_path) == ExitCode.DONE
        assert not jobs.running
        jobs.forget()


@pytest.mark.spark
def test_the_demo_copies(
    three: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways under one name, one way under another, and a compacted topic."""
    monkeypatch.setenv("REPL_HOME", str(tmp_path))
    file = of_the_lab(Path("plans/examples/replicator-demo.yaml"), three, tmp_path)
    at = {name: dict(three.clusters[name].client) for name in ("dc1", "dc2")}

    def values(cluster: str, topic: str) -> list[bytes | None]:
        return sorted(record.value for record in read(at[cluster], topic))

    try:
        assert run(["apply", "--auto-approve", file]) == ExitCode.DONE, capsys.readouterr()
        write(at["dc1"], "topic1", [b"a1", b"a2"])
        write(at["dc2"], "topic1", [b"b1"])
        write(at["dc1"], "topic2", [b"c"])
        write(at["dc1"], "_schemas", [b"d"], key=b"k")

        expected = {"topic1": [b"a1", b"a2", b"b1"], "topic2.replica": [b"c"], "_schemas": [b"d"]}
        for topic, records in expected.items():
            eventually(lambda topic=topic, records=records: values("dc2", topic) == records, about=topic)
        eventually(lambda: values("dc1", "topic1") == expected["topic1"], about="the way back")
        capsys.readouterr()
        assert run(["plan", "--detailed-exitcode", file]) == ExitCode.DONE, capsys.readouterr()
    finally:
        ended = run(["destroy", "--auto-approve", file])
    assert ended == ExitCode.DONE, capsys.readouterr()
