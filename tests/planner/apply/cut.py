"""Applies that are cut short, and what a cluster holds afterwards: for the fault tests."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from planner.kafka import run, run_at
from planner.model.observed import RegistryEntry
from planner.model.plan import Plan
from planner.model.step import ApplyRecord
from planner.state.history import read_history
from planner.state.internal_topics import read_registry
from planner.workflows.plans import observe_and_plan
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import load_and_lint
from runtime.lab.lab import Lab
from tests.commands import environment
from tests.endpoints import endpoint
from tests.records import wait_for
from tests.topologies import Topology

PROGRAM = Path(__file__).with_name("apply_program.py")
SHORT_LEASE_MS = 3_000
LEASE_MS = 30_000
ENV = {"LOGNAME": "ada", "USER": "ada"}


def start(path: Path, lease_ms: int = SHORT_LEASE_MS, *signal_and_when: str) -> subprocess.Popen[str]:
    """The apply program in a process group of its own; its events come from stdout."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), str(lease_ms), *signal_and_when],
        env=environment(ENV),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def await_stopped(process: subprocess.Popen[str]) -> None:
    """Until it has stopped itself, as a laptop does when its lid is closed."""

    def stopped() -> bool:
        assert process.poll() is None, process.communicate()
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED

    wait_for(stopped)


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def killed_after(path: Path, steps: int) -> list[dict[str, Any]]:
    """SIGKILL in the moment when so many steps ended; what it had told by then."""
    process = start(path, SHORT_LEASE_MS, "SIGKILL", str(steps))
    out, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    return events(out)


def plan_now(path: Path) -> Plan:
    return run(observe_and_plan(load_and_lint(TopologyRequest(path)).topology, 10.0))


def topic_ids(lab: Lab, prefix: str, cluster: str = "dc1") -> dict[str, str]:
    """By name; the same id before and after means that it was never made a second time."""
    admin = AdminClient(lab.clusters[cluster].client)
    names = [name for name in admin.list_topics(timeout=60).topics if name.startswith(prefix)]
    found = {}
    for name, answer in admin.describe_topics(TopicCollection(names)).items() if names else ():
        with suppress(KafkaException):  # a delete that was under way is over by now
            found[name] = id_text(answer.result(timeout=60).topic_id)
    return found


def id_text(topic_id: object) -> str:
    """A topic id of librdkafka's in the base64 alphabet of Kafka's tools."""
    return str(topic_id).replace("+", "-").replace("/", "_").rstrip("=")


def registry(lab: Lab, topology: Topology, cluster: str = "dc1") -> dict[str, RegistryEntry]:
    entries = run_at(endpoint(lab, cluster), read_registry)
    return {entry.address.name: entry for entry in entries if entry.topology == topology.name}


def history(lab: Lab, topology: Topology, cluster: str = "dc1") -> list[ApplyRecord]:
    applies = run_at(endpoint(lab, cluster), lambda client: read_history(client, print))
    return [one for one in applies if one.topology == topology.name]
