"""plans/examples/: each targets the lab, and runs on clusters of one broker."""

from pathlib import Path

import pytest

from planner.config import load_with_warnings

EXAMPLES = sorted(Path("plans/examples").glob("*.yaml"))
LAB = {"127.0.0.1:19092", "127.0.0.1:29092", "127.0.0.1:39092"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_in_the_lab(example: Path) -> None:
    loaded = load_with_warnings(example)
    topology = loaded.topology
    assert loaded.warnings == ()
    assert {cluster.bootstrap for cluster in topology.clusters.values()} <= LAB
    assert topology.name == example.stem
    assert all(topic.replication in (None, 1) for topic in topology.topics)
    ports = [job.metrics.port for job in topology.jobs.values() if job.metrics is not None]
    assert len(ports) == len(set(ports)), "jobs on one machine need ports of their own"
