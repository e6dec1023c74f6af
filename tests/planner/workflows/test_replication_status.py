"""A job on Kubernetes that is down: the status names what Kubernetes says of its driver."""

import asyncio
import json
from pathlib import Path

import pytest

from planner.config import load
from planner.workflows.audit.replication_status import with_launchers
from runtime.contract.results.status import DOWN, JobHealth
from tests.fakes.kubectl import FakeKubectl

TOPOLOGY = """
apiVersion: repl/v1
name: a
clusters: {dc1: {bootstrap: "a:1"}, dc2: {bootstrap: "b:1"}}
flows:
  - {name: f, from: dc1, to: dc2, topics: {include: a}, job: there}
  - {name: g, from: dc1, to: dc2, topics: {include: b}, job: here}
jobs:
  here: {}
  there: {launcher: kubernetes, master: "k8s://https://h:443", options: {image: repl:1}}
"""
REFUSED = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}


def health(name: str, state: str) -> JobHealth:
    return JobHealth(name=name, destination="dc2", up=state != DOWN, state=state, why="silent", flows=[])


def test_a_job_that_is_down_says_what_kubernetes_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kubectl = FakeKubectl(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    kubectl.answers(
        "get",
        json.dumps({"items": [{"kind": "Deployment", "metadata": {}, "status": {"conditions": [REFUSED]}}]}),
    )
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    jobs = [health("there", DOWN), health("there", "running"), health("here", DOWN)]

    seen = asyncio.run(with_launchers(load(tmp_path / "t.yaml"), jobs))

    assert [job.why for job in seen] == [
        "silent; Kubernetes refuses the driver's pod: exceeded quota: small",
        "silent",
        "silent",
    ]
